"""Jobs as Azure ML's clients create, read, change and follow them; without a scheduler."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from sqlalchemy import Engine, event

from azureml.azure_server import WORKSPACE, Azure
from postgres_server import NewDatabase
from torchyard.azureml.history.followers import Followers
from torchyard.data.datastores import ARTIFACT_STORE, BLOB_STORE
from torchyard.jobs import actions
from torchyard.jobs.records import progress, store
from torchyard.jobs.records.types import JobError, Status
from torchyard.jobs.requests import submission
from torchyard.workspaces.types import Identity, TokenKind
from workspaces.served import HERE, Served, served

HISTORY = f"/history/v1.0{WORKSPACE}"
CODE = f"azureml://datastores/{BLOB_STORE}/paths/LocalUpload/abc/src"


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Azure]:
    """One server for all; each test has jobs of its own."""
    home = tmp_path_factory.mktemp("home")
    with served(home, new_database(home)) as site:
        upload_code(site, "LocalUpload/abc/src")
        yield Azure(site)


def upload_code(site: Served, folder: str) -> None:
    for path, content in (("train.py", b"print(1)\n"), ("run.sh", b"#!/bin/sh\n")):
        stores = site.parts.services.datastores
        with stores.writing("default", BLOB_STORE, f"{folder}/{path}") as writing:
            writing.write(content)


def body(**more: Any) -> dict[str, Any]:
    return {
        "jobType": "Command",
        "command": "python train.py --lr ${{inputs.lr}}",
        "environmentId": "azureml:python@latest",
        "computeId": f"{WORKSPACE}/computes/local",
        "experimentName": "e",
        "displayName": "shown",
        "description": "said",
        "isArchived": False,
        "tags": {"team": "vision"},
        "properties": {"git": "main"},
        "environmentVariables": {"A": "1", "API_KEY": "hush-hush-hush"},
        "inputs": {"lr": {"jobInputType": "literal", "value": "0.1"}},
        "outputs": {"model": {"jobOutputType": "uri_folder", "mode": "ReadWriteMount"}},
        "distribution": {"distributionType": "PyTorch", "processCountPerInstance": 2},
        "resources": {"instanceCount": 1, "shmSize": "2g", "properties": {}},
        "limits": {"jobLimitsType": "Command", "timeout": "PT5M"},
        "queueSettings": {"jobTier": "Standard", "priority": 3},
        **more,
    }


def of_history(azure: Azure, method: str, path: str, sent: Any = None, who: str = "dan") -> Any:
    answer = azure.site.ask(who, method, f"{HISTORY}/{path}", sent)
    assert answer.status_code == 200, answer.text
    return answer.json()


def end(azure: Azure, name: str, status: Status, error: JobError | None = None) -> None:
    services = azure.site.parts.services
    with services.db.write() as connection:
        job = store.job_named(connection, "default", name)
        assert job is not None
        progress.end(connection, job, status, services.clock.now(), error=error)


def test_a_job_comes_back_as_it_was_given(azure: Azure) -> None:
    made = azure.put("jobs/given", body())
    shown = made["properties"]
    assert made["id"] == f"{WORKSPACE}/jobs/given"
    assert made["systemData"]["createdBy"] == "dan"
    for key in ("command", "displayName", "description", "experimentName", "tags", "computeId",
                "distribution", "limits", "queueSettings", "properties"):  # fmt: skip
        assert shown[key] == body()[key], key
    assert shown["environmentId"].startswith(f"{WORKSPACE}/environments/python/versions/")
    assert shown["environmentVariables"] == {"A": "1", "API_KEY": "*****"}
    assert shown["inputs"] == {"lr": {"jobInputType": "literal", "value": "0.1"}}
    assert shown["resources"] == {"instanceCount": 1, "shmSize": "2g", "properties": {}}
    assert shown["status"] == "NotStarted"
    assert set(shown["services"]) == {"Tracking", "Studio"}
    assert azure.ask("GET", "jobs/given")["properties"] == shown
    ours = azure.site.ok("dan", "GET", f"{HERE}/jobs/given")
    assert ours["spec"]["compute"] == "azureml:local"
    assert ours["spec"]["limits"] == {"timeout": 300}
    assert ours["priority"] == "high"


def test_a_job_by_file_and_one_by_azure_are_one(azure: Azure) -> None:
    """Each is read by the other's client, and put again as the job it is."""
    document = {
        "name": "mine", "command": "python t.py", "compute": "local",
        "environment": {"pip_requirements": ["tqdm==4.67.1"]}, "inputs": {"n": 3, "ok": True},
        "distribution": {"type": "pytorch", "communication_backend": "gloo"},
        "environment_variables": {"TOKEN": "very-secret-text"},
    }  # fmt: skip
    azure.site.ok("dan", "POST", f"{HERE}/jobs", document)
    shown = azure.ask("GET", "jobs/mine")["properties"]
    assert shown["inputs"]["ok"] == {"jobInputType": "literal", "value": "true"}
    assert "/environments/CliV2AnonymousEnvironment/versions/" in shown["environmentId"]
    # What no client of Azure knows is lost on its way; the job is the same.
    shown["distribution"].pop("communicationBackend")
    changed = azure.put("jobs/mine", {**shown, "tags": {"a": "b"}})
    assert changed["properties"]["tags"] == {"a": "b"}
    assert azure.site.ok("dan", "GET", f"{HERE}/jobs/mine")["tags"] == {"a": "b"}


def test_a_create_that_is_repeated_is_the_job_it_made(azure: Azure) -> None:
    first = azure.answer("PUT", "jobs/repeated", {"properties": body()})
    again = azure.answer("PUT", "jobs/repeated", {"properties": body()})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["properties"] == again.json()["properties"]


@contextmanager
def row_reads() -> Iterator[list[str]]:
    """The statements that read a job's row meanwhile."""
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if "FROM jobs JOIN experiments" in " ".join(statement.split()):
            statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def test_a_put_reads_the_job_once(azure: Azure) -> None:
    azure.put("jobs/read", body())
    with row_reads() as statements:
        azure.put("jobs/read", body())
    assert len(statements) == 1
    with row_reads() as statements:
        shown = azure.put("jobs/read", body(displayName="other", tags={}))["properties"]
    assert (shown["displayName"], shown["tags"]) == ("other", {})
    assert len(statements) == 2, "tags are merged with those there are when they are written"


def test_a_new_job_has_the_spec_that_parsing_its_row_gives(azure: Azure) -> None:
    services = azure.site.parts.services
    document = {"command": "true", "environment": "azureml:python@latest", "inputs": {"lr": 0.1}}
    identity = Identity("dan", TokenKind.PERSON)
    job, _ = submission.create(services, "default", document, identity)
    assert job.document["environment"] != document["environment"]
    assert job.parsed_spec == actions.get(services, "default", job.name).spec


def test_a_name_that_is_taken_is_refused(azure: Azure) -> None:
    azure.put("jobs/taken", body())
    for key, change in (
        ("command", {"command": "python other.py"}),
        ("inputs", {"inputs": {"lr": {"jobInputType": "literal", "value": "0.2"}}}),
        ("environment_variables", {"environmentVariables": {"A": "2", "API_KEY": "*****"}}),
        ("timeout_s", {"limits": {"jobLimitsType": "Command", "timeout": "PT6M"}}),
        ("environment", {"environmentId": "azureml:sklearn-1.5@latest"}),
    ):
        error = azure.refused(409, "PUT", "jobs/taken", {"properties": {**body(), **change}})
        assert error["code"] == "Conflict"
        assert (
            f"job `taken` exists in workspace `default` with another content: `{key}`"
            in (error["message"])
        )


def test_two_clients_with_one_name_make_one_job(azure: Azure) -> None:
    codes: list[int] = []

    def put(command: str) -> None:
        asked = body(command=command, inputs={})
        codes.append(azure.answer("PUT", "jobs/raced", {"properties": asked}).status_code)

    threads = [threading.Thread(target=put, args=(f"echo {n % 2}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [200, 200, 201, 409, 409, 409]
    assert azure.names("jobs").count("raced") == 1


def test_a_fetched_job_put_again_changes_words_only(azure: Azure) -> None:
    made = azure.put("jobs/fetched", body())["properties"]
    asked = {**made, "tags": {"new": "1"}, "displayName": "other", "description": "more"}
    shown = azure.put("jobs/fetched", {**asked, "properties": {**made["properties"], "x": "y"}})
    assert shown["properties"]["tags"] == {"new": "1"}
    assert shown["properties"]["displayName"] == "other"
    assert shown["properties"]["description"] == "more"
    assert shown["properties"]["properties"] == {"git": "main", "x": "y"}
    error = azure.refused(
        409, "PUT", "jobs/fetched", {"properties": {**made, "properties": {"git": "dev"}}}
    )
    assert "property `git`" in error["message"]


def test_archive_and_restore_by_put(azure: Azure) -> None:
    made = azure.put("jobs/archived", body())["properties"]
    running = azure.refused(
        409, "PUT", "jobs/archived", {"properties": {**made, "isArchived": True}}
    )
    assert "can't be archived" in running["message"]
    azure.ask("POST", "jobs/archived/cancel")
    got = azure.ask("GET", "jobs/archived")["properties"]
    assert got["status"] == "Canceled"
    azure.put("jobs/archived", {**got, "isArchived": True})
    assert "archived" not in azure.names("jobs")
    assert "archived" in azure.names("jobs", listViewType="ArchivedOnly")
    assert "archived" in azure.names("jobs", listViewType="All")
    azure.put("jobs/archived", {**got, "isArchived": False})
    assert "archived" in azure.names("jobs")
    azure.ask("DELETE", "jobs/archived")
    azure.refused(404, "GET", "jobs/archived")
    azure.refused(400, "GET", "jobs", listViewType="Some")


def test_pages_and_tags(azure: Azure) -> None:
    for number in range(5):
        tags = {"paged": "yes", "odd": "yes"} if number % 2 else {"paged": "yes"}
        azure.put(f"jobs/p{number}", body(tags=tags))
    found: list[str] = []
    asked = {"tag": "paged=yes", "maxpagesize": "2"}
    while asked:
        page = azure.ask("GET", "jobs", **asked)
        found += [one["name"] for one in page["value"]]
        assert len(page["value"]) <= 2
        asked = dict(parse_qsl(urlsplit(page.get("nextLink", "")).query))
    assert found == ["p4", "p3", "p2", "p1", "p0"]
    assert azure.names("jobs", tag="odd=yes") == ["p3", "p1"]
    assert azure.names("jobs", **{"$top": "2", "tag": "paged"}) == ["p4", "p3"]
    assert azure.names("jobs", jobType="Pipeline") == []
    azure.refused(400, "GET", "jobs", **{"$skipToken": "x"})


def test_what_is_wrong_is_told_in_azures_envelope(azure: Azure) -> None:
    def refused(status: int, **change: Any) -> str:
        error = azure.refused(status, "PUT", "jobs/wrong", {"properties": body(**change)})
        return str(error["message"])

    assert "sweep jobs" in refused(501, jobType="Sweep")
    assert "gpu-8" in refused(400, computeId=f"{WORKSPACE}/computes/gpu-8")
    assert "nope" in refused(400, environmentId="azureml:nope:1")
    assert "ray" in refused(400, distribution={"distributionType": "Ray", "port": 1})
    assert "inputs.lr" in refused(400, inputs={})
    assert "does not exist" in refused(404, codeId=f"{WORKSPACE}/codes/u/versions/1")
    assert "is no code of workspace" in refused(400, codeId="src")
    other = WORKSPACE.replace("workspaces/default", "workspaces/else")
    assert "lies in workspace `else`" in refused(404, computeId=f"{other}/computes/c")
    assert "wrong" not in azure.names("jobs")
    assert "job `none` does not exist" in azure.refused(404, "GET", "jobs/none")["message"]
    azure.refused(400, "PUT", "jobs/wrong", {"name": "k", "properties": body()})
    azure.refused(400, "PUT", "jobs/wrong", {"properties": []})


def test_who_may(azure: Azure) -> None:
    reader = Azure(azure.site, "rita")
    assert reader.answer("PUT", "jobs/owned", {"properties": body()}).status_code == 403
    azure.put("jobs/owned", body())
    made = azure.ask("GET", "jobs/owned")["properties"]
    azure.site.add("dora", "data-scientist")
    dora = Azure(azure.site, "dora")
    error = dora.refused(403, "PUT", "jobs/owned", {"properties": {**made, "tags": {"mine": "1"}}})
    assert "belongs to `dan`" in error["message"]
    assert dora.answer("POST", "jobs/owned/cancel").status_code == 403
    carl = Azure(azure.site, "carl")
    assert carl.put("jobs/owned", {**made, "tags": {"seen": "1"}})["properties"]["tags"] == {
        "seen": "1"
    }


def test_code_is_a_snapshot_and_known_by_its_hash(azure: Azure) -> None:
    said = {"hash_sha256": "h" * 64, "hash_version": "202208"}
    asked = {"codeUri": CODE, "isAnonymous": True, "properties": said}
    assert azure.answer("PUT", "codes/u/versions/1", {"properties": asked}).status_code == 201
    assert azure.answer("PUT", "codes/u/versions/1", {"properties": asked}).status_code == 200
    found = azure.ask("GET", "codes/other/versions", hash="h" * 64, hashVersion="202208")
    assert [one["id"] for one in found["value"]] == [f"{WORKSPACE}/codes/u/versions/1"]
    assert azure.ask("GET", "codes/other/versions", hash="g" * 64)["value"] == []
    azure.put("jobs/coded", body(codeId=f"{WORKSPACE}/codes/u/versions/1"))
    code = azure.site.ok("dan", "GET", f"{HERE}/jobs/coded")["spec"]["code"]
    snapshot = code.removeprefix("snapshot:")
    files = azure.site.ok("dan", "GET", f"{HERE}/snapshots/{snapshot}")["files"]
    assert {one["path"]: one["mode"] for one in files} == {"train.py": "0644", "run.sh": "0755"}
    got = azure.ask("GET", "jobs/coded")["properties"]
    assert got["codeId"] == f"{WORKSPACE}/codes/{snapshot}/versions/1"
    azure.put("jobs/coded", {**got, "tags": {}})
    error = azure.refused(
        409, "PUT", "codes/u/versions/1", {"properties": {"codeUri": f"{CODE}/other"}}
    )
    assert error["code"] == "Conflict"
    nothing = {"properties": {"codeUri": CODE.replace("abc", "zzz")}}
    assert "upload" in azure.refused(404, "PUT", "codes/v/versions/1", nothing)["message"]


def test_of_equal_code_uploaded_twice_at_once_the_first_stands_for_both(azure: Azure) -> None:
    """Else a component that names one seems changed to the client that is told of the other."""
    upload_code(azure.site, "LocalUpload/again/src")
    again_uri = CODE.replace("/abc/", "/again/")
    said = {"hash_sha256": "e" * 64, "hash_version": "202208"}
    for _ in range(2):
        first = azure.put("codes/first/versions/1", {"codeUri": CODE, "properties": said})
        again = azure.put("codes/again/versions/1", {"codeUri": again_uri, "properties": said})
        assert first["id"] == again["id"] == f"{WORKSPACE}/codes/first/versions/1"
        listed = azure.ask("GET", "codes/any/versions", hash="e" * 64)["value"]
        assert listed[0]["id"] == first["id"]
    assert azure.ask("GET", "codes/again/versions/1")["id"].endswith("/codes/again/versions/1")
    other = {"codeUri": again_uri, "properties": {"hash_sha256": "i" * 64}}
    assert azure.put("codes/other/versions/1", other)["id"].endswith("/codes/other/versions/1")


def test_a_run_has_its_details_and_its_error(azure: Azure) -> None:
    azure.put("jobs/failed", body())
    services = azure.site.parts.services
    services.logs.append("default", "failed", 0, "user_logs/std_log.txt", 0, b"hello\n")
    error = JobError(
        "rank_failed",
        "rank 1 on node 0 failed: ValueError: no such column",
        "see user_logs/std_log_process_1.txt",
        {"rank": 1, "node": 0, "traceback": "Traceback\n  File x\nValueError: no"},
    )
    end(azure, "failed", Status.FAILED, error)
    for top in ("runs/failed", "experiments/e/runs/failed", "experimentids/1/runs/failed"):
        told = of_history(azure, "GET", f"{top}/details")
        assert told["status"] == "Failed"
        assert list(told["logFiles"]) == ["user_logs/std_log.txt"]
        found = told["error"]["error"]
        assert (found["code"], found["details"][0]["code"]) == ("rank_failed", "Hint")
        info = found["additionalInfo"][0]["info"]
        assert (info["rank"], info["node"]) == (1, 0)
        assert info["traceback"][-1] == "ValueError: no"
        run = of_history(azure, "GET", top)
        assert (run["runId"], run["dataContainerId"], run["target"]) == (
            "failed",
            "dcid.failed",
            "local",
        )
        assert run["experimentId"].isdecimal() and run["runNumber"] > 0
    assert "hush" not in str(of_history(azure, "GET", "runs/failed"))


def test_words_by_the_run_history(azure: Azure) -> None:
    azure.put("jobs/worded", body())
    sent = {"displayName": "new", "description": "d", "tags": {"b": "2"}, "properties": {"p": "1"}}
    run = of_history(azure, "PATCH", "experiments/e/runs/worded", sent)
    assert (run["displayName"], run["description"]) == ("new", "d")
    assert run["tags"] == {"team": "vision", "b": "2"}
    assert run["properties"] == {"git": "main", "p": "1"}
    of_history(azure, "DELETE", "runs/worded/tags", ["b"])
    of_history(azure, "PATCH", "runs/worded", {"status": "Completed"})
    assert azure.ask("GET", "jobs/worded")["properties"]["status"] == "NotStarted"
    of_history(azure, "POST", "experiments/e/runs/worded/cancel")
    of_history(azure, "PATCH", "runs/worded", {"hidden": True})
    shown = azure.ask("GET", "jobs/worded")["properties"]
    assert (shown["isArchived"], shown["status"]) == (True, "Canceled")
    assert shown["tags"] == {"team": "vision"}


def test_runs_that_are_no_jobs(azure: Azure) -> None:
    """SDK v1 makes them by a PATCH with a name of its own."""
    made = of_history(
        azure, "PATCH", "experiments/new/runs/r1", {"name": "mine", "tags": {"a": "b"}}
    )
    assert (made["status"], made["displayName"], made["tags"]) == ("Running", "mine", {"a": "b"})
    assert of_history(azure, "GET", "experiments/new")["name"] == "new"
    of_history(azure, "PATCH", "experiments/new/runs/r1", {"status": "Completed"})
    assert of_history(azure, "GET", "runs/r1")["status"] == "Completed"
    assert "r1" not in azure.names("jobs")
    # Clients read such a run from the history when its resource has no properties.
    assert azure.ask("GET", "jobs/r1")["properties"] is None
    assert azure.site.ask("dan", "PATCH", f"{HISTORY}/runs/none", {}).status_code == 404
    answer = azure.site.ask("dan", "PATCH", f"{HISTORY}/experiments/e/runs/a.b", {})
    assert "is no name of a run" in answer.json()["error"]["message"]


def test_queries_over_runs(azure: Azure) -> None:
    for number in range(3):
        azure.put(f"jobs/j{number}", body(tags={"n": str(number)}, experimentName="asked"))
    azure.put("jobs/child", body(parentJobName="j0", experimentName="asked"))

    def names(**sent: Any) -> list[str]:
        answer = of_history(azure, "POST", "experiments/asked/runs:query", sent)
        return [one["runId"] for one in answer["value"]]

    assert names() == ["child", "j2", "j1", "j0"]
    assert names(filter="RunId eq j1 or RunId eq j2", orderby="RunId asc") == ["j1", "j2"]
    assert names(filter="(Tags/n eq 1) and (Status eq NotStarted)") == ["j1"]
    assert names(filter="(Tags/n ne null or Tags/n eq null)") == ["j2", "j1", "j0"]
    assert names(filter="RootRunId eq j0 and RunId ne j0") == ["child"]
    assert names(filter="ParentRunId eq null", top=2) == ["j2", "j1"]
    children = of_history(azure, "GET", "runs/j0/children")["value"]
    assert [one["runId"] for one in children] == ["child"]
    for wrong in ("RunId", "RunId is j1", "(RunId eq j1", "RunId eq j1 j2", "((((("):
        path = f"{HISTORY}/experiments/asked/runs:query"
        answer = azure.site.ask("dan", "POST", path, {"filter": wrong})
        assert answer.status_code == 400, wrong
        assert "is not understood" in answer.json()["error"]["message"]


def test_outputs_are_found_for_a_download(azure: Azure) -> None:
    azure.put("jobs/outputs", body())
    asked = {"runId": "outputs", "selectRunMetadata": True}
    outputs = of_history(azure, "POST", "rundata", asked)["runMetadata"]["outputs"]
    assert outputs["model"]["type"] == "UriFolder"
    asset_id = outputs["model"]["assetId"]
    path = f"/data/v1.0{WORKSPACE}/dataversion/batchGetResolvedUris"
    found = azure.site.ok("dan", "POST", path, {"values": [asset_id]})["values"][asset_id]
    assert found["uri"].endswith(
        f"/workspaces/default/datastores/{BLOB_STORE}/paths/azureml/outputs/model/"
    )
    missing = azure.site.ask(
        "dan", "POST", path, {"values": ["azureml://jobs/outputs/outputs/none"]}
    )
    assert missing.status_code == 404
    assert azure.site.ask("dan", "POST", path, {"values": "x"}).status_code == 400


def test_logs_lie_in_the_artifact_store(azure: Azure) -> None:
    from torchyard.jobs.files.run_files import RunFiles

    azure.put("jobs/logged", body())
    services = azure.site.parts.services
    services.logs.append("default", "logged", 0, "user_logs/std_log.txt", 0, b"hello\nworld\n")
    with services.datastores.writing(
        "default", ARTIFACT_STORE, "ExperimentRun/dcid.logged/outputs/a"
    ) as one:
        one.write(b"a")
    files = RunFiles(services, "default")
    assert [one.path for one in files.walk("ExperimentRun/dcid.logged")] == [
        "outputs/a", "user_logs/std_log.txt",
    ]  # fmt: skip
    top = "ExperimentRun/dcid.logged/"
    assert list(files.ordered(top, fold=True)) == [f"{top}outputs/", f"{top}user_logs/"]
    assert [one.path for one in files.ordered("Exp", after=f"{top}p")] == [  # type: ignore[union-attr]
        f"{top}user_logs/std_log.txt"
    ]
    log = f"{top}user_logs/std_log.txt"
    assert b"".join(files.read(log, 6, 3)) == b"wor"
    entry = files.entry(log)
    assert entry is not None and entry.size_bytes == 12
    assert files.is_folder(f"{top}user_logs") and not files.is_folder(f"{top}nothing")
    assert files.entry("ExperimentRun/dcid.none/user_logs/std_log.txt") is None
    with pytest.raises(Exception, match="which its job alone writes"):
        files.delete(log)


def test_a_job_that_ended_is_still_followed_once() -> None:
    """`stream` prints logs only while it is told that the job goes on."""
    now = [0.0]
    followers = Followers(lambda: now[0])
    who = ("default", "j", "dan")
    assert followers.begins(*who) and not followers.begins(*who)
    followers.ends(*who)
    assert followers.begins(*who)
    now[0] = 100.0
    assert not followers.begins(*who)
    now[0] = 1000.0
    assert followers.begins(*who) and followers.begins("default", "j", "olga")


def test_stream_of_an_ended_job_has_its_logs(azure: Azure) -> None:
    azure.put("jobs/quick", body())
    end(azure, "quick", Status.FAILED)
    path = f"{HISTORY}/runs/quick/details"
    agent = {"user-agent": "azure-ai-ml/1.35.2 azsdk-python"}
    told = [
        azure.site.client.get(
            path, headers={"authorization": f"Bearer {azure.site.tokens['dan']}", **sent}
        ).json()["status"]
        for sent in ({}, agent, agent, agent, {})
    ]
    assert told == ["Failed", "Finalizing", "Failed", "Finalizing", "Failed"]


def test_what_clients_call_types_of_outputs(azure: Azure) -> None:
    azure.put("jobs/typed", body(outputs={
        "d": {"jobOutputType": "uri_file"}, "m": {"jobOutputType": "mlflow_model"},
    }))  # fmt: skip
    for agent, types in (
        ("azure-ai-ml/1.20.0", ("UriFile", "MLFlowModel")),
        ("azure-ai-ml/1.35.2", ("uri_file", "uri_folder")),
    ):
        headers = {"authorization": f"Bearer {azure.site.tokens['dan']}", "user-agent": agent}
        answer = azure.site.client.post(
            f"{HISTORY}/rundata", headers=headers, json={"runId": "typed"}
        ).json()["runMetadata"]["outputs"]
        assert (answer["d"]["type"], answer["m"]["type"]) == types


def test_the_page_of_a_job(azure: Azure) -> None:
    page = azure.site.client.get(f"/runs/j-1?wsid={WORKSPACE}")
    assert page.status_code == 200 and "yard job show -n j-1 -w default" in page.text
    assert azure.site.client.get("/runs/<b>?wsid=x").status_code == 404


def test_code_whose_snapshot_was_reclaimed(azure: Azure) -> None:
    """It is made anew from the files; without these, clients upload again."""
    services = azure.site.parts.services
    folder = "LocalUpload/xyz/src"
    with services.datastores.writing("default", BLOB_STORE, f"{folder}/a.py") as writing:
        writing.write(b"print('a')\n")
    said = {"hash_sha256": "a" * 64}
    uri = f"azureml://datastores/{BLOB_STORE}/paths/{folder}"
    azure.put("codes/r/versions/1", {"codeUri": uri, "properties": said})

    def known() -> int:
        return len(azure.ask("GET", "codes/x/versions", hash="a" * 64)["value"])

    code_id = f"{WORKSPACE}/codes/r/versions/1"
    azure.put("jobs/reclaimed", body(codeId=code_id))
    code = azure.site.ok("dan", "GET", f"{HERE}/jobs/reclaimed")["spec"]["code"]
    manifest = services.blobs.path(code.removeprefix("snapshot:"))
    manifest.unlink()
    assert known() == 1 and manifest.exists()
    manifest.unlink()
    with services.datastores.writing("default", BLOB_STORE, f"{folder}/a.py") as writing:
        writing.write(b"print('changed')\n")
    assert known() == 0
    asked = {"properties": body(codeId=code_id)}
    assert "have changed" in azure.refused(404, "PUT", "jobs/reclaimed2", asked)["message"]
    services.datastores.delete("default", BLOB_STORE, "LocalUpload/xyz")
    assert known() == 0
    azure.ask("DELETE", "codes/r/versions/1")
    azure.refused(404, "GET", "codes/r/versions/1")
