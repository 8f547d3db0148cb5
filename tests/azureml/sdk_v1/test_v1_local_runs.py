"""SDK v1's target `local`: the requests of its client and of the program that it starts."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import time
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from azureml.azure_server import WORKSPACE, Azure
from postgres_server import NewDatabase
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.sdk_v1 import local_configs
from torchyard.jobs import actions
from torchyard.local_program import connection, program
from torchyard.worker.diagnosis import causes
from workspaces.served import served


class Services(Azure):
    def answer(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        return self.site.ask(self.user, method, path, body, params=query)


OWN = {"python": {"userManagedDependencies": True, "interpreterPath": "python3"}}


@pytest.fixture(scope="module")
def azure(
    tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase
) -> Iterator[Services]:
    home = tmp_path_factory.mktemp("home")
    with served(home, new_database(home)) as site:
        yield Services(site, "dan")


def configured(**overrides: Any) -> dict[str, Any]:
    return {
        "script": "train.py",
        "arguments": ["--epochs", 3, "a b"],
        "target": "local",
        "nodeCount": 1,
        "communicator": "None",
        "environment": OWN,
        "environmentVariables": {"MINE": "x", "API_KEY": "a-long-secret-value"},
        **overrides,
    }


def answer(azure: Services, configuration: Mapping[str, Any], run: str, **overrides: Any) -> Any:
    definition = json.dumps({"Configuration": configuration, **overrides})
    files: Any = [
        ("files", ("definition.json", definition)),
        ("files", ("aml_config.zip", b"PK\0\xff")),
    ]
    return azure.site.client.post(
        f"/execution/v1.0{WORKSPACE}/experiments/birds/localrun",
        params={"runId": run},
        files=files,
        headers={"Authorization": f"Bearer {azure.site.tokens[azure.user]}"},
    )


def submitted(azure: Services, **overrides: Any) -> str:
    run = f"birds_{uuid.uuid4().hex[:8]}"
    response = answer(azure, configured(**overrides), run)
    assert response.status_code == 200, response.text
    return run


def below(azure: Services, run: str, path: str, body: Any = None, method: str = "POST") -> Any:
    where = f"/execution/v1.0{WORKSPACE}/experiments/birds/runs/{run}/local{path}"
    return azure.site.ask(azure.user, method, where, body)


def history(azure: Services, run: str, path: str = "") -> Any:
    return azure.ask("GET", f"/history/v1.0{WORKSPACE}/experiments/birds/runs/{run}{path}")


def test_the_client_gets_the_program_that_it_starts(azure: Services) -> None:
    run = f"birds_{uuid.uuid4().hex[:8]}"
    response = answer(azure, configured(), run)
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        names = set(archive.namelist())
        text = "".join(archive.read(name).decode("latin-1") for name in names)
        task = json.loads(archive.read("azureml-setup/task.json"))
    assert names == {
        f"azureml-setup/{item}" for item in ("Invocation.sh", "task.json", "local_run.pyz")
    }
    assert azure.site.tokens["dan"] not in text and "a-long-secret-value" not in text
    assert (task["script"], task["arguments"]) == ("train.py", ["--epochs", "3", "a b"])
    assert task["interpreter"] == "python3" and task["path"].endswith(f"/runs/{run}/local")
    # Sent again, after a lost response, it is the same run.
    assert answer(azure, configured(), run).status_code == 200
    observed = history(azure, run)
    assert (observed["status"], observed["target"], observed["runType"]) == (
        "Preparing", "local", "azureml.scriptrun",
    )  # fmt: skip
    definition = history(azure, run, "/details")["runDefinition"]
    assert (definition["target"], definition["script"]) == ("local", "train.py")
    assert "a-long-secret-value" not in json.dumps(definition)


def test_the_environment_of_the_users_own_python_is_read_back(azure: Services) -> None:
    run = submitted(azure, environment={**OWN, "name": "my-python"})
    environment = history(azure, run, "/details")["runDefinition"]["environment"]
    assert (environment["name"], environment["version"]) == ("my-python", "1")
    where = f"/environment/v1.0{WORKSPACE}/environments/my-python/versions/1"
    assert azure.ask("GET", where)["python"]["userManagedDependencies"] is True


def test_a_run_from_its_beginning_to_its_end(azure: Services) -> None:
    run = submitted(azure)
    variables = below(azure, run, "", {"machine": "laptop"}).json()["variables"]
    assert variables["MINE"] == "x" and variables["AZUREML_RUN_ID"] == run
    token = variables["AZUREML_RUN_TOKEN"]
    azure.site.tokens["script"] = token
    metric: dict[str, Any] = {"values": []}
    path = f"/metric/v2.0{WORKSPACE}/runs/{run}/batch"
    assert azure.site.ask("script", "POST", path, metric).status_code == 200
    assert below(azure, run, "/report", {"status": "Running"}).json() == {"status": "Running"}
    piece = {
        "path": "user_logs/std_log.txt",
        "offset": 0,
        "content": base64.b64encode(b"hello\n").decode(),
    }
    assert below(azure, run, "/logs", piece, "PUT").json() == {"size": 6}
    assert below(azure, run, "/logs", piece, "PUT").json() == {"size": 6}, "a repeat is dropped"
    gap = below(azure, run, "/logs", {**piece, "offset": 9}, "PUT")
    assert (gap.status_code, gap.json()["size"]) == (409, 6)
    urls = below(azure, run, "/places", {"paths": ["outputs/a b%.txt"]}).json()["urls"]
    address = "/" + urls["outputs/a b%.txt"].split("://", 1)[1].split("/", 1)[1]
    sent = azure.site.client.put(address, content=b"x", headers={"x-ms-blob-type": "BlockBlob"})
    assert sent.status_code == 201, sent.text
    done = {"status": "Completed", "exit_code": 0}
    assert below(azure, run, "/report", done).json() == {"status": "Completed"}
    observed = azure.ask("GET", f"/artifact/v2.0{WORKSPACE}/artifacts/ExperimentRun/dcid.{run}")
    assert [item["path"] for item in observed["value"]] == [
        "outputs/a b%.txt",
        "user_logs/std_log.txt",
    ]
    job = actions.get(azure.site.parts.services, "default", run)
    assert job.exit_code == 0 and job.properties["torchyard.machine"] == "laptop"
    late = below(azure, run, "/report", {"status": "Running"})
    assert late.json() == {"status": "Completed"}
    assert azure.site.ask("script", "POST", path, metric).status_code == 401, "its token has ended"


def test_a_script_s_own_complete_does_not_end_its_run(azure: Services) -> None:
    run = submitted(azure)
    below(azure, run, "/report", {"status": "Running"})
    where = f"/history/v1.0{WORKSPACE}/experiments/birds/runs/{run}/events"
    for text in ("Microsoft.MachineLearning.Run.Completed", "Microsoft.MachineLearning.Run.Failed"):
        azure.ask("POST", where, {"name": text})
        assert history(azure, run)["status"] == "Running"
    azure.ask("POST", where, {"name": "Microsoft.MachineLearning.Run.Canceled"})
    assert history(azure, run)["status"] == "Canceled"
    failed = {"status": "Failed", "exit_code": 1, "error": {"code": "x", "message": "late"}}
    assert below(azure, run, "/report", failed).json() == {"status": "Canceled"}


def test_the_reason_of_a_failed_script_is_reported(azure: Services) -> None:
    run = submitted(azure)
    error = {"code": "import_failed", "message": "no module `x`", "hint": "add it", "details": {}}
    below(azure, run, "/report", {"status": "Failed", "exit_code": 3, "error": error})
    response = history(azure, run, "/details")["error"]["error"]
    assert (response["code"], response["message"]) == ("UserError", "no module `x`")
    assert response["innerError"] == {"code": "import_failed"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"docker": {"useDocker": True}}, "Docker"),
        ({"environment": {**OWN, "docker": {"enabled": True}}}, "Docker"),
        ({"communicator": "Nccl"}, "distributed"),
        ({"nodeCount": 2}, "distributed"),
        ({"outputData": {"o": {"mechanism": "upload"}}}, "OutputFileDatasetConfig"),
        ({"framework": "PySpark"}, "Spark"),
        ({"command": "true"}, "a script and a command"),
        ({"environment": {"python": {"userManagedDependencies": False}}}, "another machine"),
    ],
)
def test_unsupported_configurations_are_refused_at_submit(
    azure: Services, overrides: Any, message: str
) -> None:
    run = f"no_{uuid.uuid4().hex[:8]}"
    response = answer(azure, configured(**overrides), run)
    assert response.status_code in (400, 501), response.text
    assert message in response.json()["error"]["message"]
    assert azure.refused(404, "GET", f"/history/v1.0{WORKSPACE}/experiments/birds/runs/{run}")


def test_windows_is_refused_by_name(azure: Services) -> None:
    response = answer(
        azure, configured(), "w_1", TelemetryValues={"amlClientOSVersion": "Windows-10-10.0"}
    )
    assert response.status_code == 501 and "Windows" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "method"),
    [
        ("/report", {"status": "Queued"}, "POST"),
        ("/report", {"status": "Nonsense"}, "POST"),
        ("/logs", {"path": "../x", "offset": 0, "content": ""}, "PUT"),
        ("/logs", {"path": "outputs/x", "offset": 0, "content": ""}, "PUT"),
        ("/logs", {"path": "logs/x", "offset": -1, "content": ""}, "PUT"),
        ("/logs", {"path": "logs/x", "offset": 0, "content": "%"}, "PUT"),
        ("/places", {"paths": "outputs/x"}, "POST"),
        ("/places", {"paths": ["../../x"]}, "POST"),
    ],
)
def test_malformed_reports_of_the_program_are_refused(
    azure: Services, path: str, body: Any, method: str
) -> None:
    run = submitted(azure)
    assert below(azure, run, path, body, method).status_code == 400


def test_only_a_local_run_has_a_program(azure: Services) -> None:
    azure.ask(
        "PUT", f"/history/v1.0{WORKSPACE}/experiments/birds/runs/plain_1", {"runId": "plain_1"}
    )
    assert below(azure, "plain_1", "/report", {"status": "Failed"}).status_code == 400
    response = answer(azure, configured(), "plain_1")
    assert response.status_code == 409, "a name that is another run's"


def test_only_the_owner_reports_on_a_local_run(azure: Services) -> None:
    run = submitted(azure)
    azure.site.add("dora", "data-scientist")
    for method, path, body in (
        ("POST", "", {}),
        ("POST", "/report", {"status": "Failed"}),
        ("PUT", "/logs", {"path": "logs/x", "offset": 0, "content": ""}),
        ("GET", "/inputs", None),
    ):
        assert below(Services(azure.site, "dora"), run, path, body, method).status_code == 403
        assert below(Services(azure.site, "rita"), run, path, body, method).status_code == 403


def test_the_path_of_a_dataset_replaces_its_reference() -> None:
    def dataset(request: Mapping[str, Any]) -> tuple[str, str]:
        return f"azureml:{request['name']}:1", "uri_folder"

    def item(mechanism: str, **overrides: Any) -> dict[str, Any]:
        location = {"dataset": {"name": "birds", "id": "7"}}
        return {"dataLocation": location, "mechanism": mechanism, **overrides}

    data = {
        "birds": item("mount"),
        "raw": item("direct"),
        "to": item("download", pathOnCompute="/d"),
    }
    request = configured(
        arguments=["DatasetConsumptionConfig:birds", "--x=DatasetConsumptionConfig:raw", "$HOME"],
        data=data,
        dataReferences={"ref": {"mode": "download"}},
    )
    request["arguments"].append("$AZUREML_DATAREFERENCE_ref")
    spec = local_configs.spec_of(request, dataset, lambda item: ("azureml://x", "uri_folder"))
    assert spec.arguments == ["${{inputs.birds}}", "--x=7", "$HOME", "${{inputs.ref}}"]
    assert set(spec.inputs) == {"birds", "to", "ref"}
    assert spec.inputs["to"]["path_on_compute"] == "/d"
    assert spec.input_variables["birds"] == "${{inputs.birds}}"
    with pytest.raises(NotServed):
        local_configs.spec_of(configured(nodeCount=2), dataset, dataset)


def test_the_users_token_is_sent_only_to_its_own_server() -> None:
    variables = {"MSI_ENDPOINT": "https://h:1/msi/token", "MSI_SECRET": "s"}
    assert connection.token("https://h:1", variables) == "s"
    assert connection.token("https://h:11", variables) == ""
    assert connection.token("https://other:1", variables) == ""
    assert connection.token("https://h:1", {}) == ""


def test_a_package_that_the_users_python_lacks_is_named() -> None:
    hint = causes.match_text("ModuleNotFoundError: No module named 'sklearn'", has_peers=False)
    assert hint is not None
    response = program.install_hint(hint.hint, "/usr/bin/python3")
    assert response == "install it: `/usr/bin/python3 -m pip install scikit-learn`"


def test_python_runs_the_program_without_other_files(azure: Services, tmp_path: Any) -> None:
    """Outside torchyard's own package it finds all its modules, and reports what is missing."""
    response = answer(azure, configured(), submitted(azure))
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        archive.extractall(tmp_path)
    stored = {name: text for name, text in os.environ.items() if not name.startswith("MSI_")}
    subprocess.run(
        ["/bin/bash", tmp_path / "azureml-setup" / "Invocation.sh"],
        env={
            **stored,
            "IDENTITY_ENDPOINT": "",
            "PATH": f"{os.path.dirname(sys.executable)}:/bin:/usr/bin",
        },
        check=True,
        timeout=60,
    )
    log = tmp_path / "azureml-setup" / program.LOG
    for _ in range(600):
        if log.exists() and log.read_text():
            break
        time.sleep(0.1)
    assert "holds no token" in log.read_text()
