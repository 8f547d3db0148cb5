"""From data over jobs to models and deployments, as the records tell."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import support
from jobs.support import WORKSPACE
from pipelines.running.pipeline_lab import PipelineLab, source, taking
from torchyard.base.errors import NotFound
from torchyard.data import assets
from torchyard.data.datastores import BLOB_STORE
from torchyard.endpoints.actions.deployments import ONLINE_DEPLOYMENTS
from torchyard.endpoints.records.types import Deployment
from torchyard.jobs.cleanup import deletion, removal
from torchyard.jobs.cleanup.deletion import Choice
from torchyard.jobs.files import model_sources
from torchyard.jobs.records import store
from torchyard.jobs.records.types import NewJob, Status
from torchyard.lineage import routes
from torchyard.models import actions as models

RAW = f"azureml://datastores/{BLOB_STORE}/paths/raw/"


def edges(found: routes.Lineage) -> set[tuple[str, str, str, str]]:
    return {
        (edge["source"], edge["output"], edge["target"], edge["input"]) for edge in found["edges"]
    }


def of_job(lab: PipelineLab, name: str) -> routes.Lineage:
    return routes.of_job(lab.services, WORKSPACE, name)


def register_data(lab: PipelineLab, name: str, path: str, job: str = "") -> None:
    services = lab.services
    request = assets.DataRequest(name, path, job=job)
    assets.register(services.db, services.clock, WORKSPACE, request, path, "me")


def register_model(lab: PipelineLab, name: str, path: str) -> None:
    services = lab.services
    models.register(
        services.db,
        services.clock,
        services.datastores,
        lambda workspace, source_path: model_sources.find(services, workspace, source_path),
        WORKSPACE,
        {"name": name, "path": path, "type": "custom_model"},
        "me",
    )


@pytest.fixture
def raw(lab: PipelineLab) -> PipelineLab:
    """Data asset `raw:1`."""
    folder = lab.services.datastores.root(WORKSPACE, BLOB_STORE) / "raw"
    folder.mkdir(parents=True)
    (folder / "rows.csv").write_text("1,2\n")
    register_data(lab, "raw", RAW)
    return lab


def reading(path: str, **keys: Any) -> dict[str, Any]:
    return source(inputs={"rows": {"type": "uri_folder", "path": path}}, **keys)


def test_from_data_over_steps_to_a_model(raw: PipelineLab) -> None:
    raw.create({"prep": reading("azureml:raw:1"), "train": taking("t", "prep")})
    raw.run()
    register_model(raw, "digits", "azureml://jobs/p_train/outputs/data")
    whole = {
        ("data:raw:1", "", "job:p_prep", "rows"),
        ("job:p_prep", "data", "job:p_train", "prep"),
        ("job:p_train", "data", "model:digits:1", ""),
    }
    for found in (
        of_job(raw, "p"),
        of_job(raw, "p_prep"),
        routes.of_data(raw.services, WORKSPACE, "raw", "1"),
        routes.of_model(raw.services, WORKSPACE, "digits", "latest"),
    ):
        assert edges(found) == whole
        assert [node["id"] for node in found["nodes"]] == [
            *("data:raw:1", "job:p_prep", "job:p_train", "model:digits:1")
        ]
    assert of_job(raw, "p")["of"] == ["job:p_prep", "job:p_train"]
    statuses = {node["id"]: node["status"] for node in of_job(raw, "p")["nodes"]}
    assert statuses["job:p_train"] == "Completed"
    assert statuses["data:raw:1"] == ""


def test_a_job_that_reads_a_model_comes_after_it(raw: PipelineLab) -> None:
    raw.create({"train": source("t")})
    raw.run()
    register_model(raw, "digits", "azureml://jobs/p_train/outputs/data")
    inputs = {"model": {"type": "custom_model", "path": "azureml:digits:1"}}
    support.submit(raw.services, name="score", inputs=inputs)
    assert ("model:digits:1", "", "job:score", "model") in edges(of_job(raw, "p"))


def test_an_output_at_a_path_is_known_to_who_reads_it_there(raw: PipelineLab) -> None:
    place = f"azureml://datastores/{BLOB_STORE}/paths/mine/"
    raw.create({"a": {**source("a"), "outputs": {"data": {"path": place}}}})
    raw.run()
    register_data(raw, "kept", place)
    inputs = {"rows": {"type": "uri_folder", "path": place}}
    support.submit(raw.services, name="late", inputs=inputs)
    found = edges(of_job(raw, "late"))
    assert found == {("job:p_a", "data", "job:late", "rows")}
    assert ("job:p_a", "data", "data:kept:1", "") in edges(of_job(raw, "p"))


def test_what_no_record_names_is_its_path(raw: PipelineLab) -> None:
    (raw.services.datastores.root(WORKSPACE, BLOB_STORE) / "other").mkdir()
    path = f"azureml://datastores/{BLOB_STORE}/paths/other/"
    support.submit(raw.services, name="j", inputs={"rows": {"type": "uri_folder", "path": path}})
    assert edges(of_job(raw, "j")) == {(f"path:{path}", "", "job:j", "rows")}


def test_a_url_is_shown_without_its_signature_and_its_user(raw: PipelineLab) -> None:
    url = "https://me:secret@example.invalid/rows.csv?sig=secret"
    support.submit(raw.services, name="j", inputs={"rows": {"type": "uri_file", "path": url}})
    found = of_job(raw, "j")
    assert [node["name"] for node in found["nodes"]] == ["https://example.invalid/rows.csv", "j"]
    assert "secret" not in str(found)


def test_a_deleted_job_is_still_named(raw: PipelineLab) -> None:
    raw.create({"train": source("t")})
    raw.run()
    register_model(raw, "digits", "azureml://jobs/p_train/outputs/data")
    deletion.delete(raw.services, WORKSPACE, Choice(["p"]), "me")
    removal.work(raw.services)
    found = routes.of_model(raw.services, WORKSPACE, "digits", "1")
    assert edges(found) == {("job:p_train", "data", "model:digits:1", "")}
    assert found["nodes"][0]["status"] == ""


def test_unknown_names_are_refused(lab: PipelineLab) -> None:
    with pytest.raises(NotFound):
        of_job(lab, "nobody")
    with pytest.raises(NotFound):
        routes.of_data(lab.services, WORKSPACE, "nothing", "1")


def test_a_job_without_data_is_alone(lab: PipelineLab) -> None:
    support.submit(lab.services, name="j")
    found = of_job(lab, "j")
    assert ([node["id"] for node in found["nodes"]], found["edges"]) == (["job:j"], [])
    assert found["is_whole"]


def test_the_trials_of_a_sweep_are_the_sweep(raw: PipelineLab) -> None:
    inputs = {"rows": {"type": "uri_folder", "path": "azureml:raw:1"}}
    first = support.submit(raw.services, name="first")
    now = raw.services.clock.now()
    with raw.services.db.write() as connection:
        for name, type, parent in (("tuned", "sweep", ""), ("tuned_0", "command", "tuned")):
            new = NewJob(
                WORKSPACE, name, type, first.experiment_id, Status.COMPLETED, "me", name,
                {"inputs": inputs}, now, parent=parent,
            )  # fmt: skip
            store.add_job(connection, new)
    best = f"azureml://datastores/{BLOB_STORE}/paths/azureml/tuned_0/best/"
    register_data(raw, "best", best, "tuned_0")
    whole = {
        ("data:raw:1", "", "job:tuned", "rows"),
        ("job:tuned", "best", "data:best:1", ""),
    }
    assert edges(of_job(raw, "tuned")) == edges(of_job(raw, "tuned_0")) == whole


def test_a_deployment_comes_after_its_model(raw: PipelineLab) -> None:
    raw.create({"train": source("t")})
    raw.run()
    register_model(raw, "digits", "azureml://jobs/p_train/outputs/data")
    now = raw.services.clock.now()
    model = {"name": "digits", "version": "1"}
    common: Any = {"owner": "me", "created_at": now, "changed_at": now, "workspace": WORKSPACE}
    served = Deployment(
        endpoint="answers", name="blue", document={"model": model}, served_document={}, **common
    )
    with raw.services.db.write() as connection:
        ONLINE_DEPLOYMENTS.rows.add(connection, served)
    found = routes.of_model(raw.services, WORKSPACE, "digits", "1")
    after = ("model:digits:1", "", "online-deployment:answers/blue", "")
    assert edges(found) == {("job:p_train", "data", "model:digits:1", ""), after}
