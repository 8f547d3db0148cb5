"""A job's secrets are in its plan, and in nothing that the server tells anybody."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from jobs.support import Worker, attempt_of
from postgres_server import NewDatabase
from torchyard import server
from torchyard.app import application
from torchyard.base.errors import InvalidSpec, Unreachable
from torchyard.base.settings import Settings
from torchyard.data.remote import RemoteFiles
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.files import scratch
from torchyard.jobs.spec import job_spec

ONE_DATABASE = True

JOBS = "/v1/workspaces/default/jobs"
MARKED, NAMED, PLAIN = "tr0ub4dor&3", "hf_QmZxTnVbKcLp", "customer_id"
VARIABLES = {"MY_PHRASE": MARKED, "HF_TOKEN": NAMED, "SORT_KEY": PLAIN, "SHORT_KEY": "abc"}
JOB: dict[str, Any] = {
    "name": "j",
    "command": f"python train.py --phrase '{MARKED}'",
    "environment": "python",
    "environment_variables": VARIABLES,
    "description": f"uses {NAMED}",
    "tags": {"with": NAMED},
    "properties": {"torchyard.secrets": ["MY_PHRASE"], "torchyard.not_secrets": "SORT_KEY"},
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Path:
    """The folder of environments of a home where `python` is built."""
    home = tmp_path_factory.mktemp("built")
    parts = _parts(home, new_database(home))
    parts.services.environments.builds.run(parts.services.environments.resolver.resolve("python"))
    parts.services.db.close()
    return home / "environments"


@pytest.fixture
def parts(tmp_path: Path, database_url: str, built: Path) -> Iterator[application.Parts]:
    shutil.copytree(built, tmp_path / "environments", symlinks=True, copy_function=os.link)
    made = _parts(tmp_path, database_url)
    server.ensure_token(made, Settings(tmp_path).token_file)
    yield made
    made.services.db.close()


def _parts(home: Path, database: str) -> application.Parts:
    return application.build(
        home, "http://127.0.0.1:1", os.environ, executor=FakeExecutor(), database=database
    )


@pytest.fixture
def client(parts: application.Parts, tmp_path: Path) -> Iterator[TestClient]:
    made = TestClient(application.create_app(parts), raise_server_exceptions=False)
    made.headers["Authorization"] = "Bearer " + Settings(tmp_path).token_file.read_text().strip()
    yield made
    made.close()


def _without_secrets(answer: Any) -> Any:
    assert answer.status_code < 300, answer.text
    assert MARKED not in answer.text and NAMED not in answer.text
    return answer


def test_no_answer_shows_a_secret(client: TestClient, parts: application.Parts) -> None:
    shown = _without_secrets(client.post(JOBS, json=JOB)).json()
    assert shown["spec"]["environment_variables"] == {
        "MY_PHRASE": "*****",
        "HF_TOKEN": "*****",
        "SORT_KEY": PLAIN,
        "SHORT_KEY": "abc",
    }
    assert shown["spec"]["command"] == f"python train.py --phrase '{'*' * len(MARKED)}'"
    for _ in range(5):
        parts.scheduler.run_round()
    services = parts.services
    executor: FakeExecutor = parts.services.engines.local  # type: ignore[assignment]
    plan = executor.launches[0]
    assert plan.environment_variables == VARIABLES
    assert (plan.secrets, plan.not_secrets) == (["MY_PHRASE"], ["SORT_KEY"])
    job = actions.get(services, "default", "j")
    worker = Worker(services, attempt_of(services, job))
    worker.tell("ranks_started", ranks=[])
    worker.tell("notice", message=f"seen: {MARKED}")
    history = {
        "node": 0,
        "seq": 0,
        "records": [
            {"run": "j", "kind": "param", "key": "phrase", "value": MARKED},
            {"run": "j", "kind": "tag", "key": "token", "value": f"Bearer {NAMED}"},
        ],
    }
    headers = {"Authorization": f"Bearer {plan.report_token}"}
    sent = client.post(f"/v1/attempts/{plan.attempt_id}/history", json=history, headers=headers)
    assert sent.json() == {"next": 2, "rejected": []}
    log = scratch.folder(services, plan.attempt_id) / "node-0" / "worker.log"
    log.parent.mkdir(parents=True)
    log.write_text(f"failed with {NAMED}\n")
    error = {"code": "rank_failed", "message": f"ValueError: {MARKED}", "hint": f"not {NAMED}"}
    worker.tell("rank_exited", rank=0, local_rank=0, exit_code=1, signal=None)
    worker.tell("node_exited", exit_code=1, error=error)
    scratch.clear(services, attempt_of(services, job))
    for path in ("j", "j/stream", "j/document", "", "j/files/system_logs/node-0.log"):
        _without_secrets(client.get(f"{JOBS}/{path}".rstrip("/")))
    run = client.get("/api/2.0/mlflow/runs/get", params={"run_id": "j"})
    assert MARKED not in run.text
    shown = client.get(f"{JOBS}/j").json()
    assert shown["params"] == {"phrase": "*" * len(MARKED)}
    assert shown["status"] == "Failed"


def test_what_a_script_tells_the_server_itself_is_masked(
    client: TestClient, parts: application.Parts
) -> None:
    """With its run's token and no relay between: every word but the names of what exists."""
    client.post(JOBS, json=JOB)
    for _ in range(5):
        parts.scheduler.run_round()
    executor: FakeExecutor = parts.services.engines.local  # type: ignore[assignment]
    headers = {"Authorization": f"Bearer {executor.launches[0].run_token}"}
    base = "/mlflow/default/api/2.0/mlflow"

    def say(path: str, **fields: Any) -> Any:
        answer = client.post(f"{base}/{path}", json=fields, headers=headers)
        return _without_secrets(answer).json()

    say("runs/log-parameter", run_id="j", key="phrase", value=MARKED)
    say("runs/set-tag", run_id="j", key="mlflow.note.content", value=f"uses {NAMED}")
    say("runs/log-metric", run_id="j", key=f"loss of {MARKED}", value=1.0, timestamp=1, step=0)
    say(
        "runs/log-batch",
        run_id="j",
        metrics=[{"key": NAMED, "value": 1.0, "timestamp": 1, "step": 0}],
        params=[{"key": "inner", "value": json.dumps({"a": NAMED})}],
        tags=[{"key": MARKED, "value": PLAIN}],
    )
    say("runs/log-inputs", run_id="j", datasets=[{"dataset": _dataset(NAMED)}])
    experiment = say("experiments/create", name=f"e {NAMED}")["experiment_id"]
    made = say("runs/create", experiment_id=experiment, run_name=f"with {MARKED}")["run"]
    say("registered-models/create", name="m", description=f"made with {MARKED}")
    refused = client.post(f"{base}/runs/log-parameter", headers=headers, json={"run_id": [NAMED]})
    assert refused.status_code == 400
    shown = client.get(f"{base}/runs/get", params={"run_id": "j"}).text
    shown += client.get(f"{base}/runs/get", params={"run_id": made["info"]["run_id"]}).text
    shown += client.post(f"{base}/experiments/search", json={"max_results": 9}).text
    shown += client.get(f"{base}/registered-models/get", params={"name": "m"}).text
    assert MARKED not in shown and NAMED not in shown
    assert "*" * len(NAMED) in shown and "*" * len(MARKED) in shown and PLAIN in shown


def test_a_short_secret_hides_no_name_of_what_exists(
    client: TestClient, parts: application.Parts
) -> None:
    """A secret that is part of the job's own name would otherwise keep it from logging."""
    pin = {"MY_PIN": "1234"}
    marked = {"torchyard.secrets": "MY_PIN"}
    job = {**JOB, "name": "job-1234-5", "environment_variables": pin, "properties": marked}
    assert client.post(JOBS, json=job).status_code == 201
    for _ in range(5):
        parts.scheduler.run_round()
    executor: FakeExecutor = parts.services.engines.local  # type: ignore[assignment]
    headers = {"Authorization": f"Bearer {executor.launches[0].run_token}"}
    body = {"run_id": "job-1234-5", "key": "pin", "value": "is 1234"}
    base = "/mlflow/default/api/2.0/mlflow"
    assert client.post(f"{base}/runs/log-parameter", json=body, headers=headers).status_code == 200
    assert client.get(f"{JOBS}/job-1234-5").json()["params"] == {"pin": "is ****"}


def test_a_person_says_what_he_likes(client: TestClient) -> None:
    client.post(JOBS, json=JOB)
    body = {"run_id": "j", "key": "phrase", "value": "of my own"}
    assert client.post("/api/2.0/mlflow/runs/log-parameter", json=body).status_code == 200
    assert client.get(f"{JOBS}/j").json()["params"] == {"phrase": "of my own"}


def _dataset(secret: str) -> dict[str, str]:
    return {"name": f"d {secret}", "digest": "1", "source_type": "http", "source": secret}


def test_a_shown_document_is_no_job_until_its_secrets_are_given(client: TestClient) -> None:
    client.post(JOBS, json=JOB)
    document = client.get(f"{JOBS}/j/document").json()
    answer = client.post(JOBS, json=document)
    assert answer.status_code == 400
    assert answer.json()["error"]["at"] == ["environment_variables", "MY_PHRASE"]
    document["environment_variables"] = VARIABLES
    assert client.post(JOBS, json=document).status_code == 201


def test_the_same_name_with_the_same_secrets_is_the_same_job(client: TestClient) -> None:
    assert client.post(JOBS, json=JOB).status_code == 201
    assert client.post(JOBS, json=JOB).status_code == 200
    other = {**JOB, "environment_variables": {**VARIABLES, "HF_TOKEN": "hf_another_one"}}
    assert client.post(JOBS, json=other).status_code == 409


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"torchyard.secrets": ["MY_PHRASES"]}, "did you mean `MY_PHRASE`?"),
        ({"torchyard.secrets": ["SHORT_KEY"]}, "4 characters"),
        ({"torchyard.secrets": 5}, "MY_PIN"),
        ({"torchyard.secrets": [["MY_PHRASE"]]}, "MY_PIN"),
        ({"torchyard.not_secrets": "NOPE_NEVER"}, "add it"),
    ],
)
def test_what_can_not_be_kept_is_refused(properties: Any, words: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        job_spec.read({**JOB, "properties": properties})
    assert words in caught.value.hint
    assert caught.value.at[0] == "properties"


@pytest.mark.parametrize("value", ["MY_PHRASE, HF_TOKEN", ["MY_PHRASE", "HF_TOKEN"],
                                   '["MY_PHRASE", "HF_TOKEN"]'])  # fmt: skip
def test_a_list_is_written_in_any_way(value: Any) -> None:
    read = job_spec.read({**JOB, "properties": {"torchyard.secrets": value}})
    assert read.properties["torchyard.secrets"] == "MY_PHRASE,HF_TOKEN"


def test_the_words_of_a_datastores_library_show_no_credentials() -> None:
    key, signature = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzF==", "Rk9P%2FbAR%2BbazQUUX%3D"
    options = {
        "account_name": "me",
        "connection_string": f"AccountName=me;AccountKey={key};BlobEndpoint=http://h",
        "sas_token": f"?sv=1&sig={signature}",
        "client_kwargs": {"password": "hunter2-hunter2"},
    }
    files = RemoteFiles("datastore `d`", "s3", options, "b")
    words = f"no me at http://h?sig={signature}, {key} or {json.dumps(options)}"
    with pytest.raises(Unreachable) as caught, files._translated("x"):
        raise RuntimeError(words)
    message = caught.value.message
    assert not [secret for secret in (key, signature, "hunter2") if secret in message]
    assert "me at http://h" in message
