"""SDK v1's services with its client's requests; without a scheduler."""

from __future__ import annotations

import io
import json
import uuid
import zipfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest

from azureml.azure_server import WORKSPACE, Azure
from postgres_server import NewDatabase
from torchyard.jobs import actions
from torchyard.jobs.requests import late_code
from workspaces.served import HERE, served


class Services(Azure):
    def of(self, service: str, method: str, path: str, body: Any = None, **query: str) -> Any:
        """The JSON of a service's response: `/metric/v1.0…/path`."""
        where = f"/{service}/v1.0{WORKSPACE}/{path}"
        answer = self.site.ask(self.user, method, where, body, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refusal(self, service: str, method: str, path: str, body: Any = None, **query: str) -> Any:
        where = f"/{service}/v1.0{WORKSPACE}/{path}"
        answer = self.site.ask(self.user, method, where, body, params=query)
        assert answer.status_code >= 400, answer.text
        return answer.status_code, answer.json()["error"]["message"]


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Services]:
    home = tmp_path_factory.mktemp("home")
    with served(home, new_database(home)) as site:
        yield Services(site, "olga")


ENVIRONMENT = {
    "name": "mine",
    "version": None,
    "python": {
        "userManagedDependencies": False,
        "condaDependencies": {
            "channels": ["conda-forge"],
            "dependencies": [
                "python=3.11",
                {"pip": ["--extra-index-url https://pypi.python.org/simple", "six==1.16.0"]},
            ],
        },
    },
    "docker": {"baseImage": "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04"},
    "environmentVariables": {"EXAMPLE_ENV_VAR": "EXAMPLE_VALUE"},
}


def uploaded(v1: Services, files: dict[str, bytes], parent: str = "") -> str:
    """The id of a snapshot, sent as by the client; files without bytes are the parent's."""
    sent = {path: content for path, content in files.items() if content}
    response = v1.of("content", "POST", "snapshots/getblob", {"FileNames": list(sent)})
    nodes = []
    for upload in response["fileNodes"]:
        blob = "/" + upload["blobUri"].split("://", 1)[1].split("/", 1)[1]
        answer = v1.site.client.put(
            blob, content=sent[upload["fullName"]], headers={"x-ms-blob-type": "BlockBlob"}
        )
        assert answer.status_code == 201, answer.text
        nodes.append({"FullName": upload["fullName"], "BlobUri": upload["blobUri"], "FileSize": 1})
    tree: dict[str, Any] = {"name": "", "type": "Directory", "children": {}}
    for path in files:
        node = tree
        *folders, name = path.split("/")
        for folder in folders:
            node = node["children"].setdefault(
                folder, {"name": folder, "type": "Directory", "children": {}}
            )
        node["children"][name] = {"name": name, "type": "File", "children": {}}
    snapshot = str(uuid.uuid4())
    v1.of(
        "content",
        "POST",
        f"snapshots/{snapshot}",
        {
            "ParentSnapshotId": parent,
            "DirTreeNode": tree,
            "FileRevisionList": {"FileNodes": nodes},
        },
    )
    return snapshot


def submitted(v1: Services, run: str, **overrides: Any) -> Any:
    snapshot = uploaded(v1, {"train.py": b"print(1)\n"})
    configuration = {
        "script": "train.py",
        "arguments": ["--epochs", 3],
        "target": "local-cluster",
        "nodeCount": 1,
        "communicator": "None",
        "environment": ENVIRONMENT,
        **overrides,
    }
    configuration["target"] = overrides.get("target", "cpu-cluster")
    return {"Configuration": configuration, "SnapshotId": snapshot}


@pytest.fixture(scope="module")
def cluster(v1: Services) -> str:
    v1.put(
        "computes/cpu-cluster",
        {
            "computeType": "AmlCompute",
            "properties": {"scaleSettings": {"minNodeCount": 0, "maxNodeCount": 1}},
        },
        location="local",
    )
    return "cpu-cluster"


def test_environments_are_registered_once_by_content(v1: Services) -> None:
    first = v1.of("environment", "PUT", "environments/mine", ENVIRONMENT)
    assert (first["name"], first["version"]) == ("mine", "1")
    again = v1.of("environment", "PUT", "environments/mine", ENVIRONMENT)
    assert again["version"] == "1"
    other = {**ENVIRONMENT, "docker": {"baseImage": "python:3.11"}}
    assert v1.of("environment", "PUT", "environments/mine", other)["version"] == "2"
    result = v1.of("environment", "GET", "environments/mine/versions/1")
    conda = result["python"]["condaDependencies"]
    assert conda["dependencies"] == ["python=3.11", {"pip": ["six==1.16.0"]}]
    listed = v1.of("environment", "GET", "environments/")["value"]
    assert {"mine", "acpt-pytorch-2.13-cpu"} <= {item["name"] for item in listed}


def test_a_published_environment_by_its_old_name(v1: Services) -> None:
    result = v1.of("environment", "GET", "environments/AzureML-PyTorch-1.6-GPU")
    assert result["name"] == "AzureML-PyTorch-1.6-GPU"
    pip = result["python"]["condaDependencies"]["dependencies"][-1]["pip"]
    assert any(item.startswith("torch==") for item in pip)


def test_reserved_names_are_refused(v1: Services) -> None:
    request = {**ENVIRONMENT, "name": "AzureML-mine"}
    status, message = v1.refusal("environment", "PUT", "environments/AzureML-mine", request)
    assert status == 400 and "reserved" in message


def test_a_snapshot_takes_unchanged_files_from_its_parent(v1: Services) -> None:
    first = uploaded(v1, {"train.py": b"print(1)", "lib/a.py": b"a = 1"})
    second = uploaded(v1, {"train.py": b"print(2)", "lib/a.py": b""}, first)
    response = v1.of("content", "POST", f"snapshots/{second}/zip")
    blob = "/" + response["zipSasUri"].split("://", 1)[1].split("/", 1)[1]
    with zipfile.ZipFile(io.BytesIO(v1.site.client.get(blob).content)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            "train.py": b"print(2)",
            "lib/a.py": b"a = 1",
        }


def test_a_snapshot_needs_all_its_files(v1: Services) -> None:
    tree = {"name": "", "children": {"a": {"name": "a", "type": "File"}}}
    status, message = v1.refusal(
        "content", "POST", f"snapshots/{uuid.uuid4()}", {"DirTreeNode": tree}
    )
    assert (status, message) == (400, "file `a` of the snapshot was not uploaded")


@pytest.mark.parametrize(
    "uri", ["https://h/c/azureml-models/x", "https://h/c/azureml-snapshots/../x", "", "file:///etc"]
)
def test_a_snapshot_takes_files_only_from_their_upload_urls(v1: Services, uri: str) -> None:
    node = {"FullName": "a", "BlobUri": uri}
    tree = {"name": "", "children": {"a": {"name": "a", "type": "File"}}}
    body = {"DirTreeNode": tree, "FileRevisionList": {"FileNodes": [node]}}
    status, message = v1.refusal("content", "POST", f"snapshots/{uuid.uuid4()}", body)
    assert status == 400 and "is not at the URL" in message


def test_a_run_is_a_job_with_the_name_from_the_client(v1: Services, cluster: str) -> None:
    request = submitted(v1, "birds_1")
    response = v1.of("execution", "POST", "experiments/birds/snapshotrun", request, runId="birds_1")
    assert response == {"runId": "birds_1"}
    again = v1.of("execution", "POST", "experiments/birds/snapshotrun", request, runId="birds_1")
    assert again == response
    job = actions.get(v1.site.parts.services, "default", "birds_1")
    assert job.experiment_name == "birds" and job.compute == cluster
    assert job.document["command"] == "python train.py --epochs 3"
    assert job.properties["ContentSnapshotId"] == request["SnapshotId"]
    details = v1.of("history", "GET", "experiments/birds/runs/birds_1/details")
    definition = details["runDefinition"]
    assert (definition["script"], definition["arguments"]) == ("train.py", ["--epochs", "3"])
    assert definition["environment"]["name"] == "mine" and definition["target"] == cluster
    document = v1.of("history", "GET", "experiments/birds/runs/birds_1")
    assert document["runId"] == "birds_1" and document["cancelUri"].endswith("/runs/birds_1/cancel")


def test_a_run_on_the_target_local_is_a_job_that_waits_for_its_snapshot(v1: Services) -> None:
    configuration = submitted(v1, "", target="local", docker={"useDocker": True})["Configuration"]
    definition = json.dumps({"Configuration": configuration})
    for _ in range(2):
        response = v1.site.client.post(
            f"/execution/v1.0{WORKSPACE}/experiments/birds/localrun",
            params={"runId": "local_1"},
            files=[("files", ("definition.json", definition))],
            headers={"Authorization": f"Bearer {v1.site.tokens['dan']}"},
        )
        with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
            assert archive.namelist() == ["azureml-setup/Invocation.sh"]
    services = v1.site.parts.services
    job = actions.get(services, "default", "local_1")
    assert (job.compute, job.document["command"]) == ("local", "python train.py --epochs 3")
    assert late_code.is_awaited(job)
    run = "experiments/birds/runs/local_1"
    properties = {"ContentSnapshotId": uploaded(v1, {"train.py": b"print(1)\n"})}
    # The workspace's owner may change the run, but not what runs as another person.
    v1.of("history", "PATCH", run, {"properties": properties})
    assert late_code.is_awaited(actions.get(services, "default", "local_1"))
    for _ in range(2):
        Services(v1.site, "dan").of("history", "PATCH", run, {"properties": properties})
        job = actions.get(services, "default", "local_1")
        assert not late_code.is_awaited(job)
        assert job.document["code"].startswith("snapshot:")
    definition = v1.of("history", "GET", f"{run}/details")["runDefinition"]
    assert (definition["target"], definition["script"]) == ("local-cluster", "train.py")


def test_a_run_on_the_target_local_needs_a_snapshot(v1: Services) -> None:
    configuration = submitted(v1, "", target="local", history={"snapshotProject": False})
    response = v1.site.client.post(
        f"/execution/v1.0{WORKSPACE}/experiments/birds/localrun",
        params={"runId": "local_2"},
        files=[("files", ("definition.json", json.dumps(configuration)))],
        headers={"Authorization": f"Bearer {v1.site.tokens[v1.user]}"},
    )
    assert response.status_code == 501 and "snapshot" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "overrides", "status", "expected_message"),
    [
        ("snapshotrun", {"target": "local"}, 501, "the client, not the server, starts"),
        ("snapshotrun", {"target": "nowhere"}, 404, "compute `nowhere` does not exist"),
        ("snapshotrun", {"command": "true"}, 400, "a script and a command"),
        ("localrun", {}, 400, "contains no `definition.json`"),
        ("localprepare", {}, 501, "only prepares"),
        ("snapshotprepare", {}, 501, "only prepares"),
    ],
)
def test_unsupported_runs_are_refused(
    v1: Services, cluster: str, path: str, overrides: Any, status: int, expected_message: str
) -> None:
    request = submitted(v1, "x", **overrides)
    result, message = v1.refusal(
        "execution", "POST", f"experiments/e/{path}", request, runId=f"no_{uuid.uuid4().hex}"
    )
    assert result in (status, 400) and expected_message in message


def metric(
    name: str, value: Any, at: str, kind: str = "Double", **overrides: Any
) -> dict[str, Any]:
    return {
        "name": name,
        "columns": {name: kind},
        "value": [
            {"metricId": str(uuid.uuid4()), "createdUtc": at, "data": {name: value}, **overrides}
        ],
        "properties": {"uxMetricType": "azureml.v1.scalar"},
    }


def test_numbers_of_one_millisecond_keep_their_order(v1: Services, cluster: str) -> None:
    request = submitted(v1, "quick_1")
    v1.of("execution", "POST", "experiments/m/snapshotrun", request, runId="quick_1")
    logged = [5.0, 1.0, 1.0, 3.0]
    batch = [
        metric("down", value, f"2026-11-21T16:00:01.12300{index}0Z")
        for index, value in enumerate(logged)
    ]
    for values in (batch, batch, list(reversed(batch))):
        v1.of("metric", "POST", "runs/quick_1/batch", {"values": values})
    response = v1.of("metric", "POST", "runs/quick_1/full", {"metricName": "down"})
    assert [item["data"]["down"] for item in response["value"]] == logged
    bad = metric("down", 1.0, "2026-11-21T16:00:02Z", step=["one"])
    status, _ = v1.refusal("metric", "POST", "runs/quick_1/batch", {"values": [bad]})
    assert status == 400


def test_metrics_of_a_run(v1: Services, cluster: str) -> None:
    v1.of(
        "execution",
        "POST",
        "experiments/m/snapshotrun",
        submitted(v1, "metrics_1"),
        runId="metrics_1",
    )
    late = metric("loss", 0.5, "2026-11-21T16:00:02.0000000Z")
    early = metric("loss", 1.0, "2026-11-21T16:00:01.1234567Z")
    text = metric("word", "hello", "2026-11-21T16:00:03Z", "String")
    table = {
        "name": "row",
        "columns": {"x": "Integer", "y": "Double"},
        "value": [
            {"metricId": "r1", "createdUtc": "2026-11-21T16:00:04Z", "data": {"x": 1, "y": 2.5}}
        ],
        "properties": {"uxMetricType": "azureml.v1.table"},
    }
    for batch in ([late], [early, text, table], [early, text, table]):
        assert v1.of("metric", "POST", "runs/metrics_1/batch", {"values": batch})["errors"] == []
    keys = v1.of("metric", "POST", "runs/metrics_1/list", {})["value"]
    assert sorted(item["metricKey"]["name"] for item in keys) == ["loss", "row", "word"]

    def values(name: str) -> list[Any]:
        response = v1.of("metric", "POST", "runs/metrics_1/full", {"metricName": name})
        return [item["data"] for item in response["value"]]

    assert values("loss") == [{"loss": 1.0}, {"loss": 0.5}]
    assert values("word") == [{"word": "hello"}]
    assert values("row") == [{"x": 1, "y": 2.5}]
    services = v1.site.parts.services
    job = actions.get(services, "default", "metrics_1")
    assert sorted(item.value for item in services.history.series(job.id, "loss")) == [0.5, 1.0]
    status, message = v1.refusal("metric", "POST", "runs/metrics_1/full", {"metricName": "no"})
    assert status == 404 and "has no metric `no`" in message


def dataflow(path: str) -> str:
    table = json.dumps({"type": "mltable", "paths": [path]})
    return json.dumps({"blocks": [], "meta": {"RsDataflow": table}})


def saved(v1: Services, path: Any) -> Any:
    body = {"datasetType": "file", "properties": {}, "dataflowJson": dataflow(path)}
    return v1.of("dataset", "POST", "saveddatasets", body)


def test_datasets_have_an_id_by_content(v1: Services) -> None:
    first = saved(v1, {"pattern": "azureml://datastores/workspaceblobstore/paths/d"})
    assert saved(v1, {"pattern": "azureml://datastores/workspaceblobstore/paths/d"}) == first
    read = v1.of("data", "GET", f"dataversion/unregistered-{first['id']}/versions/1")
    assert "workspaceblobstore/paths/d" in read["legacyDataflow"] and read["isV2"] is False


@pytest.mark.parametrize(
    ("type", "path", "word"),
    [("mltable", "tables/", "MLTable"), ("uri_file", "tables/MLTable", "UriFile")],
)
def test_a_data_asset_is_read_in_the_words_of_the_data_plane(
    v1: Services, type: str, path: str, word: str
) -> None:
    stores = v1.site.parts.services.datastores
    with stores.writing("default", "workspaceblobstore", "tables/MLTable") as writing:
        writing.write(b"paths: [{file: a.csv}]")
    uri = f"azureml://datastores/workspaceblobstore/paths/{path}"
    document = {"name": f"of-{word}", "version": "1", "type": type, "path": uri}
    v1.site.ok("dan", "POST", f"{HERE}/data", document)
    read = v1.of("data", "GET", f"dataversion/of-{word}/versions/1")
    assert read["isV2"] is True and read["dataVersion"]["dataType"] == word
    assert read["dataVersion"]["dataUri"].endswith(f"/datastores/workspaceblobstore/paths/{path}")
    assert read["dataVersion"]["dataUri"].startswith("azureml://subscriptions/")


def test_a_registered_dataset_is_a_data_asset(v1: Services) -> None:
    stores = v1.site.parts.services.datastores
    with stores.writing("default", "workspaceblobstore", "births/a.csv") as writing:
        writing.write(b"a")
    long = f"azureml:/{WORKSPACE}/datastores/workspaceblobstore/paths/births".replace(
        "/providers/Microsoft.MachineLearningServices", ""
    )
    body = {
        "name": "births",
        "datasetType": "file",
        "latest": {"dataflow": dataflow({"folder": long})},  # type: ignore[arg-type]
    }
    created = v1.of("dataset", "POST", "datasets/register", body)
    assert created["latest"]["versionId"] == "1"
    status, _ = v1.refusal("dataset", "POST", "datasets/register", body)
    assert status == 409
    newer = v1.of(
        "dataset",
        "POST",
        "datasets/register",
        body,
        ifExistsOk="true",
        updateDefinitionIfExists="true",
    )
    assert newer["latest"]["versionId"] == "2"
    document = v1.ask("GET", "data/births/versions/2")["properties"]
    assert document["dataType"] == "uri_folder" and document["dataUri"].endswith("paths/births")
    got = v1.of("dataset", "GET", "datasets/query/name=births")
    assert got["latest"]["savedDatasetId"] == created["latest"]["savedDatasetId"]


def test_a_datasets_name_may_have_spaces_and_a_run_lists_it(v1: Services, cluster: str) -> None:
    stores = v1.site.parts.services.datastores
    with stores.writing("default", "workspaceblobstore", "diabetes/a.csv") as writing:
        writing.write(b"a")
    path = "azureml://datastores/workspaceblobstore/paths/diabetes"
    flow = dataflow({"folder": path})  # type: ignore[arg-type]
    body = {"name": "diabetes dataset", "datasetType": "file", "latest": {"dataflow": flow}}
    id = v1.of("dataset", "POST", "datasets/register", body)["latest"]["savedDatasetId"]
    read = v1.of("dataset", "GET", "datasets/query/name=diabetes dataset")
    assert read["name"] == "diabetes dataset"
    inputs = {
        "by_id": ({"id": id}, "download"),
        "by_name": ({"name": "diabetes dataset"}, "mount"),
    }
    data = {
        name: {"dataLocation": {"dataset": dataset}, "mechanism": mode}
        for name, (dataset, mode) in inputs.items()
    }
    request = submitted(v1, "diabetes_1", data=data)
    v1.of("execution", "POST", "experiments/d/snapshotrun", request, runId="diabetes_1")
    run = v1.of("history", "GET", "experiments/d/runs/diabetes_1/details")
    assert [
        (item["identifier"]["savedId"], *item["inputDetails"].values())
        for item in run["inputDatasets"]
    ] == [(id, "by_id", "Download", None), (id, "by_name", "Mount", None)]


@pytest.mark.parametrize("name", [" lead", "trail ", "a/b", "a:b", "bad name!", ""])
def test_other_names_of_datasets_are_refused(v1: Services, name: str) -> None:
    flow = dataflow({"folder": "azureml://datastores/workspaceblobstore/paths/other"})  # type: ignore[arg-type]
    body = {"name": name, "datasetType": "file", "latest": {"dataflow": flow}}
    status, message = v1.refusal("dataset", "POST", "datasets/register", body)
    assert status == 400 and (f"`{name}`" if name else "name") in message


def test_models_are_created_from_artifacts(v1: Services, cluster: str) -> None:
    stores = v1.site.parts.services.datastores
    with stores.writing("default", "workspaceartifactstore", "LocalUpload/1/m/w.bin") as writing:
        writing.write(b"weights")
    asset = v1.of(
        "modelmanagement",
        "POST",
        "assets",
        {"name": "m", "artifacts": [{"prefix": "LocalUpload/1/m"}]},
    )
    created = v1.of(
        "modelmanagement",
        "POST",
        "models",
        {"name": "m", "url": f"aml://asset/{asset['id']}", "kvTags": {"a": "b"}},
    )
    assert (created["id"], created["kvTags"], created["framework"]) == ("m:1", {"a": "b"}, "Custom")
    locations = v1.of("modelmanagement", "GET", f"assets/{created['url'].rpartition('/')[2]}")
    prefix = locations["artifacts"][0]["prefix"]
    origin, container, path = prefix.split("/", 2)
    files = v1.of("artifact", "GET", f"artifacts/prefix/contentinfo/{origin}/{container}/{path}")
    assert [item["path"] for item in files["value"]] == [f"{path}/w.bin"]
    patch = [{"op": "add", "path": "/kvTags/x", "value": "y"}]
    changed = v1.of("modelmanagement", "PATCH", "models/m:1", patch)
    assert changed["kvTags"] == {"a": "b", "x": "y"}
    listed = v1.of("modelmanagement", "GET", "models", name="m", tags="x=y")["value"]
    assert [item["id"] for item in listed] == ["m:1"]
    assert v1.of("modelmanagement", "GET", "models", name="m", tags="x=z")["value"] == []
    status, message = v1.refusal("modelmanagement", "POST", "packages", {})
    assert status == 501 and "makes no images, packages" in message


def test_computes_have_the_keys_that_the_client_reads(v1: Services, cluster: str) -> None:
    result = v1.of("rp", "GET", f"computes/{cluster}")
    assert result["properties"]["properties"]["userAccountCredentials"] == {}
    assert "identity" not in result
    old = v1.answer("PUT", f"computes/{cluster}", {"properties": result["properties"]})
    assert old.status_code in (200, 201)


def test_the_default_datastore_and_its_signature(v1: Services) -> None:
    result = v1.of("datastore", "GET", "default")
    section = result["azureStorageSection"]
    assert result["name"] == "workspaceblobstore" and "sig=" in section["sasToken"]
    listed = v1.of("datastore", "GET", "datastores")["value"]
    assert [item["name"] for item in listed][:2] == ["workspaceblobstore", "workspaceartifactstore"]
    status, message = v1.refusal("datastore", "POST", "datastores", {"name": "x"})
    assert status == 501 and "yard datastore create" in message


@pytest.mark.parametrize("service", ["pipelines", "studioservice"])
def test_pipelines_are_refused_as_their_client_reads_it(v1: Services, service: str) -> None:
    where = f"/{service}/v1.0{WORKSPACE}/Pipelines/Create"
    answer = v1.site.ask(v1.user, "POST", where, {})
    assert answer.status_code == 501
    body = answer.json()
    assert body["Error"]["Message"] == body["error"]["message"]
    assert "does not serve pipelines" in body["Error"]["Message"]


def test_a_datasets_description_changes_and_it_can_be_unregistered(v1: Services) -> None:
    location: Any = {"file": "azureml://datastores/workspaceblobstore/paths/short.csv"}
    body = {"name": "short", "datasetType": "file", "latest": {"dataflow": dataflow(location)}}
    created = v1.of("dataset", "POST", "datasets/register", body)
    fields = {**body, "description": "changed", "tags": {"a": "b"}}
    response = v1.of("dataset", "PUT", f"datasets/{created['datasetId']}", fields)
    assert (response["description"], response["tags"]) == ("changed", {"a": "b"})
    v1.of("dataset", "DELETE", "datasets/short")
    assert v1.refusal("dataset", "GET", "datasets/query/name=short")[0] == 404
    again = v1.of("dataset", "POST", "datasets/register", body)
    assert again["latest"]["versionId"] == "2"


def explanation(v1: Services, run: str, number: int, **properties: str | None) -> dict[str, Any]:
    body = {
        "name": "azureml.explanation",
        "artifacts": [{"prefix": f"ExperimentRun/dcid.{run}/explanation/{number}"}],
        "runid": run,
        "type": "azureml.v1.model.explanation",
        "properties": properties,
    }
    created: dict[str, Any] = v1.of("modelmanagement", "POST", "assets", body)
    return created


def test_assets_of_a_run_are_listed_by_name_type_and_properties(v1: Services) -> None:
    run = v1.site.ask(
        "olga", "PATCH", f"/history/v1.0{WORKSPACE}/experiments/explained/runs/e1", {}
    )
    assert run.status_code == 200, run.text
    # The client sends keys without a value, and looks for them later.
    first = explanation(v1, "e1", 1, comment="all features", explanation_id="a", model_class=None)
    assert first["properties"]["model_class"] is None
    explanation(v1, "e1", 2, comment="top 2", explanation_id="b")
    listed = v1.of("modelmanagement", "GET", "assets", runId="e1")["value"]
    assert [asset["properties"]["explanation_id"] for asset in listed] == ["a", "b"]
    assert listed[0] == first and listed[0]["createdTime"].endswith("Z")
    for query, ids in (
        ({"properties": "comment=all features"}, ["a"]),
        ({"properties": "comment=all features,explanation_id=b"}, []),
        ({"type": "azureml.v1.model.explanation", "name": "azureml.explanation"}, ["a", "b"]),
        ({"type": "other"}, []),
        ({"name": "other"}, []),
    ):
        shown = v1.of("modelmanagement", "GET", "assets", runId="e1", **query)["value"]
        assert [asset["properties"]["explanation_id"] for asset in shown] == ids, query


def test_an_asset_with_the_same_artifacts_replaces_the_one_before(v1: Services) -> None:
    v1.site.ask("olga", "PATCH", f"/history/v1.0{WORKSPACE}/experiments/explained/runs/e2", {})
    explanation(v1, "e2", 1, comment="before")
    explanation(v1, "e2", 1, comment="after")
    listed = v1.of("modelmanagement", "GET", "assets", runId="e2")["value"]
    assert [asset["properties"] for asset in listed] == [{"comment": "after"}]


def test_a_long_list_of_assets_has_pages(v1: Services) -> None:
    v1.site.ask("olga", "PATCH", f"/history/v1.0{WORKSPACE}/experiments/explained/runs/e3", {})
    for number in range(3):
        explanation(v1, "e3", number, n=str(number))
    page = v1.of("modelmanagement", "GET", "assets", runId="e3", count="2")
    assert [asset["properties"]["n"] for asset in page["value"]] == ["0", "1"]
    assert "$skipToken=2" in unquote(page["nextLink"])
    rest = v1.of("modelmanagement", "GET", "assets", **{"runId": "e3", "$skipToken": "2"})
    assert [asset["properties"]["n"] for asset in rest["value"]] == ["2"]
    assert rest["nextLink"] is None


def test_assets_of_no_run_are_refused(v1: Services) -> None:
    status, message = v1.refusal("modelmanagement", "GET", "assets", runId="no-such")
    assert status == 404 and "no-such" in message
    status, message = v1.refusal("modelmanagement", "GET", "assets")
    assert status == 501 and "the assets of one run" in message


def test_a_runs_files_are_the_datastore_that_its_client_registers_for_them(v1: Services) -> None:
    """As `run._get_outputs_datapath()` does."""
    account = v1.of("datastore", "GET", "default")["azureStorageSection"]["accountName"]
    body = {
        "name": "blobstorage_datastore",
        "dataStoreType": "AzureBlob",
        "azureStorageSection": {
            "accountName": account,
            "containerName": "azureml",
            "credentialType": "None",
        },
    }
    assert v1.of("datastore", "POST", "datastores", body)["name"] == "workspaceartifactstore"
    registered = v1.of("datastore", "GET", "datastores/blobstorage_datastore")
    assert registered["name"] == "workspaceartifactstore"
