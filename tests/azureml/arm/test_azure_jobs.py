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
from torchyard.jobs.records import progress, store
from torchyard.jobs.records.types import JobError, Status
from workspaces.served import HERE, Served, served

HISTORY = f"/history/v1.0{WORKSPACE}"
CODE = f"azureml://datastores/{BLOB_STORE}/paths/LocalUpload/abc/src"


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Azure]:
    """One server for all tests; each test has jobs of its own."""
    home = tmp_path_factory.mktemp("home")
    with served(home, new_database(home)) as site:
        upload_code(site, "LocalUpload/abc/src")
        yield Azure(site)


def upload_code(site: Served, folder: str) -> None:
    for path, content in (("train.py", b"print(1)\n"), ("run.sh", b"#!/bin/sh\n")):
        stores = site.parts.services.datastores
        with stores.writing("default", BLOB_STORE, f"{folder}/{path}") as writing:
            writing.write(content)


def body(**overrides: Any) -> dict[str, Any]:
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
        **overrides,
    }


def of_history(azure: Azure, method: str, path: str, sent: Any = None, user: str = "dan") -> Any:
    answer = azure.site.ask(user, method, f"{HISTORY}/{path}", sent)
    assert answer.status_code == 200, answer.text
    return answer.json()


def end(azure: Azure, name: str, status: Status, error: JobError | None = None) -> None:
    services = azure.site.parts.services
    with services.db.write() as connection:
        job = store.job_named(connection, "default", name)
        assert job is not None
        progress.end(connection, job, status, services.clock.now(), error=error)


def test_a_job_is_returned_as_it_was_put(azure: Azure) -> None:
    created = azure.put("jobs/given", body())
    document = created["properties"]
    assert created["id"] == f"{WORKSPACE}/jobs/given"
    assert created["systemData"]["createdBy"] == "dan"
    for key in ("command", "displayName", "description", "experimentName", "tags", "computeId",
                "distribution", "limits", "queueSettings", "properties"):  # fmt: skip
        assert document[key] == body()[key], key
    assert document["environmentId"].startswith(f"{WORKSPACE}/environments/python/versions/")
    assert document["environmentVariables"] == {"A": "1", "API_KEY": "*****"}
    assert document["inputs"] == {"lr": {"jobInputType": "literal", "value": "0.1"}}
    assert document["resources"] == {"instanceCount": 1, "shmSize": "2g", "properties": {}}
    assert document["status"] == "NotStarted"
    assert set(document["services"]) == {"Tracking", "Studio"}
    assert azure.ask("GET", "jobs/given")["properties"] == document
    native = azure.site.ok("dan", "GET", f"{HERE}/jobs/given")
    assert native["spec"]["compute"] == "azureml:local"
    assert native["spec"]["limits"] == {"timeout": 300}
    assert native["priority"] == "high"


def test_an_elastic_job_is_an_ordinary_one(azure: Azure) -> None:
    """Also between two attempts, when its row has the fewest nodes that it needs."""
    properties = {"torchyard.min_nodes": "1", "torchyard.max_nodes": "3"}
    resources = {"instanceCount": 2, "properties": {}}
    sent = body(properties=properties, resources=resources)
    created = azure.put("jobs/elastic", sent)["properties"]
    assert created["resources"] == resources
    assert created["properties"] == properties
    native = azure.site.ok("dan", "GET", f"{HERE}/jobs/elastic")
    assert (native["node_count"], native["attempts"]) == (1, [])
    services = azure.site.parts.services
    with services.db.write() as connection:
        job = store.job_named(connection, "default", "elastic")
        assert job is not None
        store.change_job(connection, job.id, status=Status.QUEUED.value, node_count=1, attempt=1)
    waiting = azure.ask("GET", "jobs/elastic")["properties"]
    assert waiting == {**created, "status": "Queued"}
    assert azure.put("jobs/elastic", waiting)["properties"] == waiting


def test_recipients_of_a_job_are_returned_as_they_were_put(azure: Azure) -> None:
    setting = {"emailOn": ["JobFailed", "JobCancelled"], "emails": ["ann@example.org"]}
    created = azure.put("jobs/messaged", body(notificationSetting=setting))
    assert created["properties"]["notificationSetting"] == setting
    again = azure.put("jobs/messaged", created["properties"])
    assert again["properties"]["notificationSetting"] == setting
    native = azure.site.ok("dan", "GET", f"{HERE}/jobs/messaged")
    assert native["spec"]["notification_settings"] == {
        "email_on": ["JobFailed", "JobCancelled"],
        "emails": ["ann@example.org"],
    }


def test_a_job_from_a_file_and_from_azures_client_are_the_same(azure: Azure) -> None:
    """The other's client reads it, and puts it again as the same job."""
    document = {
        "name": "mine", "command": "python t.py", "compute": "local",
        "environment": {"pip_requirements": ["tqdm==4.67.1"]}, "inputs": {"n": 3, "ok": True},
        "distribution": {"type": "pytorch", "communication_backend": "gloo"},
        "environment_variables": {"TOKEN": "very-secret-text"},
    }  # fmt: skip
    azure.site.ok("dan", "POST", f"{HERE}/jobs", document)
    resource = azure.ask("GET", "jobs/mine")["properties"]
    assert resource["inputs"]["ok"] == {"jobInputType": "literal", "value": "true"}
    assert "/environments/CliV2AnonymousEnvironment/versions/" in resource["environmentId"]
    # A key that Azure's clients don't know is lost; the job is the same.
    resource["distribution"].pop("communicationBackend")
    changed = azure.put("jobs/mine", {**resource, "tags": {"a": "b"}})
    assert changed["properties"]["tags"] == {"a": "b"}
    assert azure.site.ok("dan", "GET", f"{HERE}/jobs/mine")["tags"] == {"a": "b"}


def test_a_repeated_create_returns_the_existing_job(azure: Azure) -> None:
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


def test_two_clients_with_one_name_create_one_job(azure: Azure) -> None:
    codes: list[int] = []

    def put(command: str) -> None:
        request = body(command=command, inputs={})
        codes.append(azure.answer("PUT", "jobs/raced", {"properties": request}).status_code)

    threads = [threading.Thread(target=put, args=(f"echo {n % 2}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [200, 200, 201, 409, 409, 409]
    assert azure.names("jobs").count("raced") == 1


def test_putting_a_job_again_changes_only_description_and_tags(azure: Azure) -> None:
    created = azure.put("jobs/fetched", body())["properties"]
    request = {**created, "tags": {"new": "1"}, "displayName": "other", "description": "more"}
    document = azure.put(
        "jobs/fetched", {**request, "properties": {**created["properties"], "x": "y"}}
    )
    assert document["properties"]["tags"] == {"new": "1"}
    assert document["properties"]["displayName"] == "other"
    assert document["properties"]["description"] == "more"
    assert document["properties"]["properties"] == {"git": "main", "x": "y"}
    error = azure.refused(
        409, "PUT", "jobs/fetched", {"properties": {**created, "properties": {"git": "dev"}}}
    )
    assert "property `git`" in error["message"]


def test_archive_and_restore_by_put(azure: Azure) -> None:
    created = azure.put("jobs/archived", body())["properties"]
    running = azure.refused(
        409, "PUT", "jobs/archived", {"properties": {**created, "isArchived": True}}
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
    result: list[str] = []
    request = {"tag": "paged=yes", "maxpagesize": "2"}
    while request:
        page = azure.ask("GET", "jobs", **request)
        result += [item["name"] for item in page["value"]]
        assert len(page["value"]) <= 2
        request = dict(parse_qsl(urlsplit(page.get("nextLink", "")).query))
    assert result == ["p4", "p3", "p2", "p1", "p0"]
    assert azure.names("jobs", tag="odd=yes") == ["p3", "p1"]
    assert azure.names("jobs", **{"$top": "2", "tag": "paged"}) == ["p4", "p3"]
    assert azure.names("jobs", jobType="Pipeline") == []
    azure.refused(400, "GET", "jobs", **{"$skipToken": "x"})


def test_errors_have_azures_envelope(azure: Azure) -> None:
    def refused(status: int, **change: Any) -> str:
        error = azure.refused(status, "PUT", "jobs/wrong", {"properties": body(**change)})
        return str(error["message"])

    assert "Spark jobs" in refused(501, jobType="Spark")
    assert "gpu-8" in refused(400, computeId=f"{WORKSPACE}/computes/gpu-8")
    assert "nope" in refused(400, environmentId="azureml:nope:1")
    assert "ray" in refused(400, distribution={"distributionType": "Ray", "port": 1})
    assert "inputs.lr" in refused(400, inputs={})
    assert "does not exist" in refused(404, codeId=f"{WORKSPACE}/codes/u/versions/1")
    assert "is not a code of workspace" in refused(400, codeId="src")
    other = WORKSPACE.replace("workspaces/default", "workspaces/else")
    assert "is in workspace `else`" in refused(404, computeId=f"{other}/computes/c")
    assert "wrong" not in azure.names("jobs")
    assert "job `none` does not exist" in azure.refused(404, "GET", "jobs/none")["message"]
    wrong = body(computeId=f"{WORKSPACE}/computes/gpu-8", environmentId="azureml:nope:1")
    error = azure.refused(400, "PUT", "jobs/wrong", {"properties": wrong})
    messages = [each["message"] for each in (error, *error["details"])]
    assert "nope" in " ".join(messages) and "gpu-8" in " ".join(messages) and len(messages) == 2
    azure.refused(400, "PUT", "jobs/wrong", {"name": "k", "properties": body()})
    azure.refused(400, "PUT", "jobs/wrong", {"properties": []})


def test_permissions_of_each_role(azure: Azure) -> None:
    reader = Azure(azure.site, "rita")
    assert reader.answer("PUT", "jobs/owned", {"properties": body()}).status_code == 403
    azure.put("jobs/owned", body())
    created = azure.ask("GET", "jobs/owned")["properties"]
    azure.site.add("dora", "data-scientist")
    dora = Azure(azure.site, "dora")
    error = dora.refused(
        403, "PUT", "jobs/owned", {"properties": {**created, "tags": {"mine": "1"}}}
    )
    assert "belongs to `dan`" in error["message"]
    assert dora.answer("POST", "jobs/owned/cancel").status_code == 403
    carl = Azure(azure.site, "carl")
    assert carl.put("jobs/owned", {**created, "tags": {"seen": "1"}})["properties"]["tags"] == {
        "seen": "1"
    }


def test_code_is_a_snapshot_and_found_by_its_hash(azure: Azure) -> None:
    fields = {"hash_sha256": "h" * 64, "hash_version": "202208"}
    request = {"codeUri": CODE, "isAnonymous": True, "properties": fields}
    assert azure.answer("PUT", "codes/u/versions/1", {"properties": request}).status_code == 201
    assert azure.answer("PUT", "codes/u/versions/1", {"properties": request}).status_code == 200
    result = azure.ask("GET", "codes/other/versions", hash="h" * 64, hashVersion="202208")
    assert [item["id"] for item in result["value"]] == [f"{WORKSPACE}/codes/u/versions/1"]
    assert azure.ask("GET", "codes/other/versions", hash="g" * 64)["value"] == []
    azure.put("jobs/coded", body(codeId=f"{WORKSPACE}/codes/u/versions/1"))
    code = azure.site.ok("dan", "GET", f"{HERE}/jobs/coded")["spec"]["code"]
    snapshot = code.removeprefix("snapshot:")
    files = azure.site.ok("dan", "GET", f"{HERE}/snapshots/{snapshot}")["files"]
    assert {item["path"]: item["mode"] for item in files} == {"train.py": "0644", "run.sh": "0755"}
    got = azure.ask("GET", "jobs/coded")["properties"]
    assert got["codeId"] == f"{WORKSPACE}/codes/{snapshot}/versions/1"
    azure.put("jobs/coded", {**got, "tags": {}})
    error = azure.refused(
        409, "PUT", "codes/u/versions/1", {"properties": {"codeUri": f"{CODE}/other"}}
    )
    assert error["code"] == "Conflict"
    nothing = {"properties": {"codeUri": CODE.replace("abc", "zzz")}}
    assert "upload" in azure.refused(404, "PUT", "codes/v/versions/1", nothing)["message"]


def test_equal_code_uploaded_twice_at_once_is_stored_once(azure: Azure) -> None:
    """Otherwise a component with one code seems changed to a client that got the other."""
    upload_code(azure.site, "LocalUpload/again/src")
    again_uri = CODE.replace("/abc/", "/again/")
    fields = {"hash_sha256": "e" * 64, "hash_version": "202208"}
    for _ in range(2):
        first = azure.put("codes/first/versions/1", {"codeUri": CODE, "properties": fields})
        again = azure.put("codes/again/versions/1", {"codeUri": again_uri, "properties": fields})
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
        response = of_history(azure, "GET", f"{top}/details")
        assert response["status"] == "Failed"
        assert list(response["logFiles"]) == ["user_logs/std_log.txt"]
        result = response["error"]["error"]
        assert (result["code"], result["details"][0]["code"]) == ("UserError", "Hint")
        assert result["innerError"] == {"code": "rank_failed"}
        info = result["additionalInfo"][0]["info"]
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


def test_the_run_history_changes_description_and_tags(azure: Azure) -> None:
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
    document = azure.ask("GET", "jobs/worded")["properties"]
    assert (document["isArchived"], document["status"]) == (True, "Canceled")
    assert document["tags"] == {"team": "vision"}


def test_runs_that_are_not_jobs(azure: Azure) -> None:
    """SDK v1 creates them by a PATCH with a name of its own."""
    created = of_history(
        azure, "PATCH", "experiments/new/runs/r1", {"name": "mine", "tags": {"a": "b"}}
    )
    assert (created["status"], created["displayName"], created["tags"]) == (
        "Running",
        "mine",
        {"a": "b"},
    )
    assert of_history(azure, "GET", "experiments/new")["name"] == "new"
    of_history(azure, "PATCH", "experiments/new/runs/r1", {"status": "Completed"})
    assert of_history(azure, "GET", "runs/r1")["status"] == "Completed"
    assert "r1" not in azure.names("jobs")
    # Clients read a run from the history if its resource has no properties.
    assert azure.ask("GET", "jobs/r1")["properties"] is None
    assert azure.site.ask("dan", "PATCH", f"{HISTORY}/runs/none", {}).status_code == 404
    answer = azure.site.ask("dan", "PATCH", f"{HISTORY}/experiments/e/runs/a.b", {})
    assert "is not a valid name for a run" in answer.json()["error"]["message"]


def test_queries_over_runs(azure: Azure) -> None:
    for number in range(3):
        azure.put(f"jobs/j{number}", body(tags={"n": str(number)}, experimentName="asked"))
    azure.put("jobs/child", body(parentJobName="j0", experimentName="asked"))

    def names(**sent: Any) -> list[str]:
        answer = of_history(azure, "POST", "experiments/asked/runs:query", sent)
        return [item["runId"] for item in answer["value"]]

    assert names() == ["child", "j2", "j1", "j0"]
    assert names(filter="RunId eq j1 or RunId eq j2", orderby="RunId asc") == ["j1", "j2"]
    assert names(filter="(Tags/n eq 1) and (Status eq NotStarted)") == ["j1"]
    assert names(filter="(Tags/n ne null or Tags/n eq null)") == ["j2", "j1", "j0"]
    assert names(filter="RootRunId eq j0 and RunId ne j0") == ["child"]
    assert names(filter="ParentRunId eq null", top=2) == ["j2", "j1"]
    children = of_history(azure, "GET", "runs/j0/children")["value"]
    assert [item["runId"] for item in children] == ["child"]
    for wrong in ("RunId", "RunId is j1", "(RunId eq j1", "RunId eq j1 j2", "((((("):
        path = f"{HISTORY}/experiments/asked/runs:query"
        answer = azure.site.ask("dan", "POST", path, {"filter": wrong})
        assert answer.status_code == 400, wrong
        assert "can't be read" in answer.json()["error"]["message"]


def test_outputs_are_found_for_a_download(azure: Azure) -> None:
    azure.put("jobs/outputs", body())
    request = {"runId": "outputs", "selectRunMetadata": True}
    outputs = of_history(azure, "POST", "rundata", request)["runMetadata"]["outputs"]
    assert outputs["model"]["type"] == "UriFolder"
    asset_id = outputs["model"]["assetId"]
    path = f"/data/v1.0{WORKSPACE}/dataversion/batchGetResolvedUris"
    result = azure.site.ok("dan", "POST", path, {"values": [asset_id]})["values"][asset_id]
    assert result["uri"].endswith(
        f"/workspaces/default/datastores/{BLOB_STORE}/paths/azureml/outputs/model/"
    )
    missing = azure.site.ask(
        "dan", "POST", path, {"values": ["azureml://jobs/outputs/outputs/none"]}
    )
    assert missing.status_code == 404
    assert azure.site.ask("dan", "POST", path, {"values": "x"}).status_code == 400


def test_logs_are_in_the_artifact_store(azure: Azure) -> None:
    from torchyard.jobs.files.run_files import RunFiles

    azure.put("jobs/logged", body())
    services = azure.site.parts.services
    services.logs.append("default", "logged", 0, "user_logs/std_log.txt", 0, b"hello\nworld\n")
    with services.datastores.writing(
        "default", ARTIFACT_STORE, "ExperimentRun/dcid.logged/outputs/a"
    ) as item:
        item.write(b"a")
    files = RunFiles(services, "default")
    assert [item.path for item in files.walk("ExperimentRun/dcid.logged")] == [
        "outputs/a", "user_logs/std_log.txt",
    ]  # fmt: skip
    top = "ExperimentRun/dcid.logged/"
    assert list(files.ordered(top, fold=True)) == [f"{top}outputs/", f"{top}user_logs/"]
    assert [item.path for item in files.ordered("Exp", after=f"{top}p")] == [  # type: ignore[union-attr]
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
    """`stream` prints logs only while the job is running."""
    now = [0.0]
    followers = Followers(lambda: now[0])
    user = ("default", "j", "dan")
    assert followers.starts(*user) and not followers.starts(*user)
    followers.ends(*user)
    assert followers.starts(*user)
    now[0] = 100.0
    assert not followers.starts(*user)
    now[0] = 1000.0
    assert followers.starts(*user) and followers.starts("default", "j", "olga")


def test_stream_of_an_ended_job_has_its_logs(azure: Azure) -> None:
    azure.put("jobs/quick", body())
    end(azure, "quick", Status.FAILED)
    path = f"{HISTORY}/runs/quick/details"
    agent = {"user-agent": "azure-ai-ml/1.35.2 azsdk-python"}
    response = [
        azure.site.client.get(
            path, headers={"authorization": f"Bearer {azure.site.tokens['dan']}", **sent}
        ).json()["status"]
        for sent in ({}, agent, agent, agent, {})
    ]
    assert response == ["Failed", "Finalizing", "Failed", "Finalizing", "Failed"]


def test_types_of_outputs_have_each_clients_names(azure: Azure) -> None:
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
    page = azure.site.client.get(f"/runs/j-1?wsid={WORKSPACE}", follow_redirects=False)
    assert page.status_code in (302, 303, 307)
    assert page.headers["location"] == "/ui/workspaces/default/jobs/j-1"
    assert azure.site.client.get("/runs/<b>?wsid=x").status_code == 404


def test_code_whose_snapshot_was_deleted_is_refused(azure: Azure) -> None:
    """It is created again from the files; without them, clients upload again."""
    services = azure.site.parts.services
    folder = "LocalUpload/xyz/src"
    with services.datastores.writing("default", BLOB_STORE, f"{folder}/a.py") as writing:
        writing.write(b"print('a')\n")
    fields = {"hash_sha256": "a" * 64}
    uri = f"azureml://datastores/{BLOB_STORE}/paths/{folder}"
    azure.put("codes/r/versions/1", {"codeUri": uri, "properties": fields})

    def known() -> int:
        return len(azure.ask("GET", "codes/x/versions", hash="a" * 64)["value"])

    code_id = f"{WORKSPACE}/codes/r/versions/1"
    azure.put("jobs/reclaimed", body(codeId=code_id))
    code = azure.site.ok("dan", "GET", f"{HERE}/jobs/reclaimed")["spec"]["code"]
    manifest = services.blobs.of("default").path(code.removeprefix("snapshot:"))
    manifest.unlink()
    assert known() == 1 and manifest.exists()
    manifest.unlink()
    with services.datastores.writing("default", BLOB_STORE, f"{folder}/a.py") as writing:
        writing.write(b"print('changed')\n")
    assert known() == 0
    request = {"properties": body(codeId=code_id)}
    assert "have changed" in azure.refused(404, "PUT", "jobs/reclaimed2", request)["message"]
    services.datastores.delete("default", BLOB_STORE, "LocalUpload/xyz")
    assert known() == 0
    azure.ask("DELETE", "codes/r/versions/1")
    azure.refused(404, "GET", "codes/r/versions/1")
