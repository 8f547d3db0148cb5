"""Collections of a deployment are data assets, under Azure's names or others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from endpoints.http.test_endpoint_routes import BLUE, DIGITS, create, snapshot, wrong
from torchyard.endpoints.records import collected_data
from torchyard.endpoints.router.collected_files import CollectedFiles
from torchyard.endpoints.running import collection, programs
from torchyard.endpoints.spec import deployment_spec
from workspaces.served import HERE, Served, served

INPUTS = "digits-blue-model_inputs"


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path, database_url) as made:
        made.ok("carl", "PUT", DIGITS, {})
        yield made


def collecting(site: Served, *names: str, data: Any = None, **changes: Any) -> Any:
    collections = {name: {"enabled": True, "data": data} for name in names}
    return create(site, data_collector={"collections": collections}, **changes)


def assets(site: Served, name: str = "") -> list[tuple[str, str]]:
    rows = site.ok("rita", "GET", f"{HERE}/data?name={name}")["value"]
    return sorted((row["name"], row["version"]) for row in rows)


def test_each_collection_is_a_folder_with_azures_name(site: Served) -> None:
    collecting(site, "model_inputs", "model_outputs", "own_features")
    names = [f"digits-blue-{name}" for name in ("model_inputs", "model_outputs", "own_features")]
    assert assets(site) == [(name, "1") for name in names]
    shown = site.ok("rita", "GET", f"{HERE}/data/{INPUTS}/versions/1")
    assert shown["type"] == "uri_folder" and shown["owner"] == "carl"
    below = "modelDataCollector/digits/blue/model_inputs"
    assert shown["path"] == f"azureml://datastores/workspaceblobstore/paths/{below}"
    assert shown["properties"] == {"collection": "model_inputs", "deployment": "digits/blue"}
    files = f"{HERE}/data/{INPUTS}/versions/1/files"
    assert site.ok("rita", "GET", files)["value"] == []
    stores = site.parts.services.datastores
    folder = collected_data.folder_of(stores, "default", "digits", "blue")
    at = datetime(2026, 11, 24, 5, tzinfo=timezone.utc)
    CollectedFiles(folder).append("model_inputs", at, b'{"data": 1}\n', "hour", 1 << 20)
    (file,) = site.ok("rita", "GET", files)["value"]
    assert (file["path"], file["size_bytes"]) == ("2026/11/24/05.jsonl", 12)
    assert site.ask("rita", "GET", f"{files}/{file['path']}").content == b'{"data": 1}\n'


def test_a_change_and_another_deployment_of_the_name_go_on_with_it(site: Served) -> None:
    collecting(site, "model_inputs")
    collecting(site, "model_inputs", "request")
    assert assets(site, INPUTS) == [(INPUTS, "1")]
    assert assets(site, "digits-blue-request") == [("digits-blue-request", "1")]


def test_a_job_takes_it_as_an_input_before_anything_is_collected(site: Served) -> None:
    collecting(site, "model_inputs")
    job = {
        "name": "reads",
        "command": "ls ${{inputs.kept}}",
        "environment": "python",
        "inputs": {"kept": {"type": "uri_folder", "path": f"azureml:{INPUTS}:1"}},
    }
    site.ok("carl", "POST", f"{HERE}/jobs", job)


def test_it_has_the_name_and_version_that_the_file_says(site: Served) -> None:
    collecting(site, "model_inputs", data={"name": "kept", "version": "7"})
    collecting(site, "model_inputs", data="azureml:kept:7")
    assert assets(site) == [("kept", "7")]


def test_other_data_is_not_taken_over(site: Served) -> None:
    body = {"name": "kept", "type": "uri_file", "path": snapshot(site, a_csv="a")}
    site.ok("carl", "POST", f"{HERE}/data", body)
    create(site)
    before = site.rows()
    collector = {"collections": {"model_inputs": {"data": "azureml:kept:1"}}}
    error = wrong(site, "PATCH", BLUE, {"data_collector": collector})
    assert "`kept:1` is other data" in error["message"]
    assert site.rows() == before
    collecting(site, "model_inputs", data={"name": "kept"})
    assert assets(site, "kept") == [("kept", "1"), ("kept", "2")]


def test_a_deleted_version_is_followed_by_the_next(site: Served) -> None:
    collecting(site, "model_inputs")
    site.ok("carl", "DELETE", f"{HERE}/data/{INPUTS}/versions/1")
    collecting(site, "model_inputs")
    assert assets(site, INPUTS) == [(INPUTS, "2")]


def test_a_script_that_collects_by_itself_is_known(site: Served) -> None:
    script = "from azureml.ai.monitoring import Collector\ndef init(): pass\ndef run(d): return d\n"
    code = {"code": snapshot(site, score_py=script), "scoring_script": "score.py"}
    services = site.parts.services
    plain = collecting(site, "model_inputs", "request")
    scripted = collecting(site, "model_inputs", "request", code_configuration=code)
    with services.db.read() as connection:
        from torchyard.endpoints.records import store

        (deployment,) = store.deployments_in(connection)
    for shown, by_script in ((plain, False), (scripted, True)):
        keys = ("model", "code_configuration", "environment", "data_collector")
        body = {key: shown[key] for key in keys}
        spec = deployment_spec.read({**body, "name": "blue", "endpoint_name": "digits"})
        assert collection.is_by_script(services.blobs.of("default"), spec) is by_script
        variables = collection.variables(services, deployment, spec)
        assert (collection.VARIABLE in variables) is by_script
        assert '"request"' not in variables.get(collection.VARIABLE, "")
        paths = programs.of(services.blobs.of("default"), spec).code.removeprefix("snapshot:")
        listed = [file.path for file in services.blobs.of("default").snapshot(paths).files]
        assert f"{programs.FOLDER}/collected_files.py" in listed
