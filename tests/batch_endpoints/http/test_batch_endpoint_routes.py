"""Batch endpoints over HTTP: what is kept and refused, who may do what, the job that is made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchyard.base.blobs import SNAPSHOT_PREFIX
from workspaces.served import HERE, Served, served

ENDPOINTS = f"{HERE}/batch-endpoints"
DIGITS = f"{ENDPOINTS}/digits"
BLUE = f"{DIGITS}/deployments/blue"
JOBS = f"{DIGITS}/jobs"


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path, database_url) as made:
        made.ok("carl", "PUT", DIGITS, {"description": "numbers"})
        yield made


def snapshot(site: Served, **contents: str) -> str:
    """Files by name, `_` for a dot."""
    rows = []
    for name, text in contents.items():
        sha256 = site.parts.services.blobs.of("default").put_bytes(text.encode())
        rows.append({"path": name.replace("_", "."), "sha256": sha256, "size": len(text)})
    made = site.ok("carl", "PUT", f"{HERE}/snapshots", {"files": rows})
    return f"snapshot:{made['id']}"


def document(site: Served, **changes: Any) -> dict[str, Any]:
    code = snapshot(site, score_py="def init(): pass\ndef run(batch): return batch\n")
    return {
        "model": {"path": snapshot(site, model_pkl="weights"), "folder": "model"},
        "code_configuration": {"code": code, "scoring_script": "score.py"},
        "environment": "python",
        **changes,
    }


def create(site: Served, name: str = "blue", **changes: Any) -> Any:
    return site.ok("carl", "PUT", f"{DIGITS}/deployments/{name}", document(site, **changes))


def data(site: Served) -> dict[str, Any]:
    return {"inputs": {"data": {"path": snapshot(site, a_txt="1")}}}


def wrong(site: Served, method: str, path: str, body: Any = None, who: str = "carl") -> Any:
    answer = site.ask(who, method, path, body)
    assert answer.status_code in (400, 404, 409), answer.text
    error: Any = answer.json()
    return error.get("error", error)


def settings_of(site: Served, job: Any) -> dict[str, Any]:
    """What the program in the job is told."""
    blobs = site.parts.services.blobs.of("default")
    files = blobs.snapshot(job["spec"]["code"].removeprefix(SNAPSHOT_PREFIX)).files
    (file,) = [file for file in files if file.path.endswith("/settings.json")]
    settings: dict[str, Any] = json.loads(blobs.path(file.sha256).read_bytes())
    return settings


def test_an_unknown_key_of_a_change_is_named_with_the_nearest(site: Served) -> None:
    create(site)
    for path, key, guess in ((DIGITS, "tag", "tags"), (BLUE, "descripton", "description")):
        error = wrong(site, "PATCH", path, {key: {}})
        assert error["message"] == f"unknown key `{key}`"
        assert error["hint"] == f"did you mean `{guess}`?"


def test_an_endpoint_is_created_shown_changed_and_deleted(site: Served) -> None:
    shown = site.ok("rita", "GET", DIGITS)
    assert shown["provisioning_state"] == "Succeeded" and shown["owner"] == "carl"
    assert shown["defaults"] == {"deployment_name": ""}
    assert site.ok("carl", "PATCH", DIGITS, {"tags": {"a": "b"}})["tags"] == {"a": "b"}
    assert [row["name"] for row in site.ok("rita", "GET", ENDPOINTS)["value"]] == ["digits"]
    create(site)
    site.ok("carl", "DELETE", DIGITS)
    error = wrong(site, "GET", DIGITS)
    assert error["code"] == "endpoint_not_found" and "batch-endpoint list" in error["hint"]
    site.ok("carl", "PUT", DIGITS, {})
    assert site.ok("carl", "GET", f"{DIGITS}/deployments")["value"] == []


def test_the_first_deployment_is_the_default_until_another_is_chosen(site: Served) -> None:
    create(site)
    create(site, "green")
    assert site.ok("rita", "GET", DIGITS)["defaults"] == {"deployment_name": "blue"}
    error = wrong(site, "DELETE", BLUE)
    assert error["code"] == "deployment_is_default"
    site.ok("carl", "PATCH", DIGITS, {"defaults": {"deployment_name": "GREEN"}})
    assert site.ok("rita", "GET", DIGITS)["defaults"] == {"deployment_name": "green"}
    error = wrong(site, "PATCH", DIGITS, {"defaults": {"deployment_name": "gren"}})
    assert error["hint"] == "did you mean `green`?"
    assert error["at"] == ["defaults", "deployment_name"]
    site.ok("carl", "DELETE", BLUE)
    site.ok("carl", "DELETE", f"{DIGITS}/deployments/green")
    assert site.ok("rita", "GET", DIGITS)["defaults"] == {"deployment_name": ""}


def test_a_model_that_a_batch_deployment_names_is_not_deleted(site: Served) -> None:
    model = {"name": "net", "path": snapshot(site, model_pkl="w"), "type": "custom_model"}
    for _ in range(2):
        site.ok("carl", "POST", f"{HERE}/models", model)
    assert create(site, model="azureml:net:1")["model"] == "azureml:net:1"
    for path in ("net/versions/1?force=true", "net/versions/1", "net?force=true"):
        error = wrong(site, "DELETE", f"{HERE}/models/{path}")
        assert error["code"] == "asset_in_use"
        assert "deployment `blue` of batch endpoint `digits` serves it" in error["message"]
        assert "`yard batch-deployment delete`" in error["hint"]
    mlflow = f"/mlflow/{HERE.rpartition('/')[2]}/api/2.0/mlflow/model-versions/delete"
    error = wrong(site, "DELETE", mlflow, {"name": "net", "version": "1"})
    assert "of batch endpoint `digits`" in error["message"]
    site.ok("carl", "DELETE", f"{HERE}/models/net/versions/2")
    site.ok("carl", "DELETE", DIGITS)
    site.ok("carl", "DELETE", f"{HERE}/models/net/versions/1?force=true")


def test_a_deployment_shows_azures_defaults_and_no_secret(site: Served) -> None:
    shown = create(
        site,
        settings={"mini_batch_size": 3, "environment_variables": {"API_KEY": "hunter2hunter2"}},
    )
    assert shown["settings"] == {
        "mini_batch_size": 3,
        "max_concurrency_per_instance": 1,
        "output_action": "append_row",
        "output_file_name": "predictions.csv",
        "retry_settings": {"max_retries": 3, "timeout": 30},
        "error_threshold": -1,
        "logging_level": "info",
    }
    assert shown["resources"] == {"instance_count": 1} and shown["compute"] == "local"
    assert "hunter2" not in json.dumps(site.ok("rita", "GET", BLUE))


def test_a_change_is_merged_and_what_was_not_named_stays(site: Served) -> None:
    create(site, settings={"mini_batch_size": 3, "retry_settings": {"timeout": 60}})
    changes = {"settings": {"retry_settings": {"max_retries": 1}}}
    shown = site.ok("carl", "PATCH", BLUE, changes)["settings"]
    assert shown["mini_batch_size"] == 3
    assert shown["retry_settings"] == {"max_retries": 1, "timeout": 60}
    assert wrong(site, "PATCH", BLUE, {"setings": {}})["hint"] == "did you mean `settings`?"


@pytest.mark.parametrize(
    ("changes", "at", "text"),
    [
        ({"compute": "azureml:nowhere"}, ["compute"], "nowhere"),
        ({"model": "azureml:nothing:1"}, ["model"], "nothing"),
        ({"environment": "azureml:nothing:1"}, ["environment"], "nothing"),
        ({"environment": None}, [], "no `environment`"),
        ({"code_configuration": None}, [], "no `code_configuration`"),
        ({"resources": {"instance_count": 1000}}, ["resources", "instance_count"], "1000"),
        ({"settings": {"mini_batch_size": "x"}}, ["settings", "mini_batch_size"], "whole number"),
        ({"type": "pipeline"}, ["type"], "`type: pipeline` is not served"),
        ({"endpoint_name": "other"}, ["endpoint_name"], "other"),
    ],
)
def test_what_a_deployment_names_must_be_there(
    site: Served, changes: dict[str, Any], at: list[str], text: str
) -> None:
    error = wrong(site, "PUT", BLUE, document(site, **changes))
    assert text in error["message"] and error["hint"]
    assert error.get("at", []) == at
    assert wrong(site, "GET", BLUE)["code"] == "deployment_not_found"


def test_a_script_that_is_not_in_the_code_is_named(site: Served) -> None:
    code = {**document(site)["code_configuration"], "scoring_script": "run.py"}
    error = wrong(site, "PUT", BLUE, document(site, code_configuration=code))
    assert error["code"] == "scoring_script_missing" and "`score.py`" in error["hint"]


def test_an_invocation_makes_a_job_of_the_one_who_asks(site: Served) -> None:
    create(site, settings={"mini_batch_size": 3})
    job = site.ok("dan", "POST", JOBS, {**data(site), "mini_batch_size": 20, "job_name": "first"})
    assert (job["name"], job["owner"], job["experiment_name"]) == ("first", "dan", "digits")
    assert job["tags"] == {"endpoint": "digits", "deployment": "blue"}
    assert list(job["spec"]["outputs"]) == ["score"]
    settings = settings_of(site, job)
    assert settings["mini_batch_size"] == 20 and settings["script"] == "score.py"
    assert site.ok("rita", "GET", BLUE)["settings"]["mini_batch_size"] == 3
    for path in (JOBS, f"{JOBS}?deployment_name=blue"):
        assert [row["name"] for row in site.ok("rita", "GET", path)["value"]] == ["first"]
    create(site, "green")
    assert site.ok("rita", "GET", f"{JOBS}?deployment_name=green")["value"] == []


def test_an_invocation_may_name_what_a_job_may(site: Served) -> None:
    create(site)
    job = site.ok(
        "carl",
        "POST",
        JOBS,
        {
            **data(site),
            "outputs": {"score": {"path": "azureml://datastores/workspaceblobstore/paths/p"}},
            "settings": {"output_file_name": "x.csv", "retry_settings": {"timeout": 9}},
            "experiment_name": "nightly",
            "tags": {"a": "b"},
        },
    )
    assert job["experiment_name"] == "nightly" and job["tags"]["a"] == "b"
    settings = settings_of(site, job)
    assert (settings["output_file_name"], settings["timeout_s"]) == ("x.csv", 9)
    assert settings["max_retries"] == 3


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"inputs": {"data": {"path": "azureml:nothing:1"}}}, ["inputs", "data", "path"]),
        ({"deployment_name": "grey"}, []),
        ({"outputs": {"score": {"path": "ftp://x"}}}, ["outputs", "score", "path"]),
        ({"job_name": "a b"}, ["job_name"]),
        ({"mini_batch_size": 0}, ["mini_batch_size"]),
    ],
)
def test_a_wrong_invocation_makes_no_job(site: Served, change: Any, at: list[str]) -> None:
    create(site)
    error = wrong(site, "POST", JOBS, {**data(site), **change})
    assert error["hint"] and error.get("at", []) == at
    assert site.ok("carl", "GET", JOBS)["value"] == []


def test_an_endpoint_without_a_deployment_cannot_be_invoked(site: Served) -> None:
    error = wrong(site, "POST", JOBS, data(site))
    assert error["code"] == "no_default_deployment"


def test_the_same_invocation_by_name_is_the_same_job(site: Served) -> None:
    create(site)
    body = {**data(site), "job_name": "once"}
    assert site.ok("carl", "POST", JOBS, body)["submitted"]
    assert not site.ok("carl", "POST", JOBS, body)["submitted"]
    error = wrong(site, "POST", JOBS, {**body, "mini_batch_size": 4})
    assert "once" in error["message"]


def test_a_deleted_job_is_not_listed_and_its_name_may_come_again(site: Served) -> None:
    create(site)
    site.ok("carl", "POST", JOBS, {**data(site), "job_name": "once"})
    site.ok("carl", "POST", f"{HERE}/jobs/once/cancel")
    site.ok("carl", "DELETE", f"{HERE}/jobs/once")
    assert site.ok("carl", "GET", JOBS)["value"] == []
    site.ok(
        "carl", "POST", f"{HERE}/jobs", {"name": "once", "command": "true", "environment": "python"}
    )
    assert site.ok("carl", "GET", JOBS)["value"] == []


def test_readers_invoke_nothing_and_others_change_nothing(site: Served) -> None:
    create(site)
    site.refused("rita", "POST", JOBS, data(site))
    site.refused("rita", "PUT", f"{ENDPOINTS}/other", {})
    site.refused("dan", "PATCH", DIGITS, {"description": "x"})
    site.refused("dan", "DELETE", DIGITS)
    site.refused("dan", "PUT", BLUE, document(site))
    site.refused("dan", "DELETE", BLUE)
    site.ok("dan", "PUT", f"{ENDPOINTS}/dans-own", {})
    site.ok("dan", "DELETE", f"{ENDPOINTS}/dans-own")
