"""SDK v1's target `local` with the user's own Python: the client's requests, and the real program.

With an environment it is a job: see test_v1_services.py.
"""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import threading
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from azureml.azure_server import WORKSPACE, Azure
from postgres_server import NewDatabase
from torchyard.jobs import actions
from torchyard.jobs.records.types import Job, Status
from torchyard.local_program import program
from workspaces.served import Served, served

SECRET = "a-long-secret-value"
OWN = {"python": {"userManagedDependencies": True, "interpreterPath": sys.executable}}
TRAIN = """
import json, os, sys, urllib.request
print("arguments", json.dumps(sys.argv[1:]), os.environ["API_KEY"])
body = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": "loss", "value": 0.5, "timestamp": 1}
for path, fields in (("log-metric", body), ("update", {**body, "status": "FINISHED"})):
    urllib.request.urlopen(urllib.request.Request(
        os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/" + path,
        json.dumps(fields).encode(),
        {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]},
    ))
os.makedirs("outputs/parts")
open("outputs/parts/a b%.txt", "w").write("weights")
open("logs/epochs.txt", "w").write("1")
print("no end of a line", end="")
"""
SLOW = """
import os, subprocess, time
child = subprocess.Popen(["sleep", "600"])
open("pids", "w").write(f"{os.getpid()} {child.pid}")
while True:
    print("works", flush=True)
    time.sleep(0.05)
"""


class Program(Azure):
    """A client and the programs that it starts, by run; `url` is the server's for both."""

    url: str
    folders: dict[str, Path]

    def answer(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        return self.site.ask(self.user, method, path, body, params=query)

    def answer_of(self, run: str, configuration: dict[str, Any], **definition: Any) -> Any:
        document = json.dumps({"Configuration": configuration, **definition})
        parts: Any = [
            ("files", ("definition.json", document)),
            ("files", ("aml_config.zip", b"PK\0\xff")),
        ]
        return self.site.client.post(
            f"{self.url}/execution/v1.0{WORKSPACE}/experiments/birds/localrun",
            params={"runId": run},
            files=parts,
            headers={"Authorization": f"Bearer {self.site.tokens[self.user]}"},
        )

    def below(self, run: str, path: str, body: Any = None, method: str = "PUT") -> Any:
        where = f"/execution/v1.0{WORKSPACE}/experiments/birds/runs/{run}/local{path}"
        return self.site.ask(self.user, method, where, body)

    def history(self, run: str, path: str = "") -> Any:
        return self.ask("GET", f"/history/v1.0{WORKSPACE}/experiments/birds/runs/{run}{path}")

    def job(self, run: str) -> Job:
        return actions.get(self.site.parts.services, "default", run)

    def started(self, folder: Path, text: str, **configuration: Any) -> str:
        """As azureml-core starts it: in a copy of the script's folder."""
        run = submitted(self, folder, **configuration)
        self.folders[run] = folder
        (folder / "train.py").write_text(text)
        kept = {name: text for name, text in os.environ.items() if "IDENTITY" not in name}
        secrets = {"MSI_ENDPOINT": f"{self.url}/msi/token", "MSI_SECRET": self.site.tokens["dan"]}
        subprocess.run(
            ["/bin/bash", folder / "azureml-setup" / "Invocation.sh"],
            cwd=folder,
            env={**kept, **secrets, "PATH": f"{Path(sys.executable).parent}:/bin:/usr/bin"},
            check=True,
            timeout=60,
        )
        return run


def configured(**overrides: Any) -> dict[str, Any]:
    return {
        "script": "train.py",
        "arguments": ["--epochs", 3, "a b'c", "$MINE"],
        "target": "local",
        "nodeCount": 1,
        "communicator": "None",
        "environment": OWN,
        "environmentVariables": {"MINE": "x", "API_KEY": SECRET},
        **overrides,
    }


def submitted(azure: Program, folder: Path, **overrides: Any) -> str:
    run = f"birds_{uuid.uuid4().hex[:8]}"
    response = azure.answer_of(run, configured(**overrides))
    assert response.status_code == 200, response.text
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        archive.extractall(folder)
    return run


def wait_for(condition: Callable[[], Any], folder: Path | None = None) -> None:
    until = time.monotonic() + 60
    while not condition():
        log = (folder / "azureml-setup" / program.LOG).read_text() if folder else ""
        assert time.monotonic() < until, log
        time.sleep(0.05)


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def _bridge(site: Served) -> type[BaseHTTPRequestHandler]:
    """Requests over a socket, as the program makes them, for the application in this process."""

    class Bridge(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            response = site.client.request(
                self.command, self.path, content=content, headers=dict(self.headers)
            )
            self.send_response(response.status_code)
            self.send_header("Content-Length", str(len(response.content)))
            self.end_headers()
            self.wfile.write(response.content)

        do_GET = do_POST = do_PUT = _answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Bridge


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Program]:
    home = tmp_path_factory.mktemp("home")
    with served(home, new_database(home)) as site:
        bridge = ThreadingHTTPServer(("127.0.0.1", 0), _bridge(site))
        threading.Thread(target=bridge.serve_forever, args=(0.02,), daemon=True).start()
        azure = Program(site, "dan")
        azure.url = f"http://127.0.0.1:{bridge.server_address[1]}"
        azure.folders = {}
        yield azure
        for run, folder in azure.folders.items():
            (folder / "azureml-setup" / "killfile").touch()
            wait_for(lambda: azure.job(run).status.ended)  # noqa: B023
        bridge.shutdown()
        bridge.server_close()


def test_the_client_gets_the_program_that_it_starts(azure: Program, tmp_path: Path) -> None:
    run = submitted(azure, tmp_path)
    setup = tmp_path / "azureml-setup"
    texts = {file.name: file.read_text() for file in setup.iterdir()}
    assert set(texts) == {"Invocation.sh", "task.json", "program.py"}
    assert azure.site.tokens["dan"] not in str(texts) and SECRET not in str(texts)
    # Sent again, after a lost response, it is the same run.
    assert azure.answer_of(run, configured()).status_code == 200
    observed = azure.history(run)
    assert (observed["status"], observed["target"], observed["runType"]) == (
        "Starting", "local", "azureml.scriptrun",
    )  # fmt: skip
    definition = azure.history(run, "/details")["runDefinition"]
    assert (definition["target"], definition["script"]) == ("local", "train.py")
    assert definition["environmentVariables"]["MINE"] == "x"
    assert SECRET not in json.dumps(definition)


def test_a_script_runs_in_the_users_python(azure: Program, tmp_path: Path) -> None:
    run = azure.started(tmp_path, TRAIN)
    wait_for(lambda: azure.job(run).status.ended, tmp_path)
    job = azure.job(run)
    assert (job.status, job.exit_code, job.error) == (Status.COMPLETED, 0, None)
    assert job.started_at is not None
    top, container = f"/artifact/v2.0{WORKSPACE}/artifacts", f"ExperimentRun/dcid.{run}"
    files = azure.ask("GET", f"{top}/{container}")
    assert [item["path"] for item in files["value"]] == [
        "logs/epochs.txt", "outputs/parts/a b%.txt", "user_logs/std_log.txt",
    ]  # fmt: skip
    log = azure.answer("GET", f"{top}/content/{container}/user_logs/std_log.txt").text
    stars = "*" * len(SECRET)
    assert f"""arguments ["--epochs", "3", "a b'c", "x"] {stars}\nno end of a line""" in log
    assert SECRET not in log
    metrics = azure.site.ok("dan", "GET", f"/v1/workspaces/default/jobs/{run}/metrics")
    assert "loss" in json.dumps(metrics)


def test_a_failing_script_fails_with_its_exit_code(azure: Program, tmp_path: Path) -> None:
    run = azure.started(tmp_path, "import os, sys\nsys.exit(print(os.environ['API_KEY']) or 3)\n")
    wait_for(lambda: azure.job(run).status.ended, tmp_path)
    job = azure.job(run)
    assert (job.status, job.exit_code) == (Status.FAILED, 3)
    error = azure.history(run, "/details")["error"]["error"]
    assert error["innerError"]["code"] == "script_failed" and "3" in error["message"]
    assert "*" * len(SECRET) in error["message"] and SECRET not in error["message"]


def test_a_command_runs_in_bash(azure: Program, tmp_path: Path) -> None:
    run = azure.started(tmp_path, "", script=None, command=["exit", "$((3 + 4))"], arguments=[])
    wait_for(lambda: azure.job(run).status.ended, tmp_path)
    assert azure.job(run).exit_code == 7


@pytest.mark.parametrize("how", ["the client", "the server", "the limit"])
def test_a_stopped_script_leaves_no_process(azure: Program, tmp_path: Path, how: str) -> None:
    limit = {"maxRunDurationSeconds": 1} if how == "the limit" else {}
    run = azure.started(tmp_path, SLOW, **limit)
    wait_for(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text())
    if how == "the client":
        (tmp_path / "azureml-setup" / "killfile").write_text(run)
    elif how == "the server":
        where = f"/history/v1.0{WORKSPACE}/experiments/birds/runs/{run}/events"
        azure.ask("POST", where, {"name": "Microsoft.MachineLearning.Run.Canceled"})
    wait_for(lambda: azure.job(run).status.ended, tmp_path)
    for pid in (tmp_path / "pids").read_text().split():
        wait_for(lambda: is_gone(int(pid)))  # noqa: B023
    assert azure.job(run).status is (Status.FAILED if limit else Status.CANCELED)


def test_only_its_program_and_a_cancel_end_a_run(azure: Program, tmp_path: Path) -> None:
    run = submitted(azure, tmp_path)
    variables = azure.below(run, "", {}, "POST").json()["variables"]
    azure.site.tokens["script"] = variables["AZUREML_RUN_TOKEN"]
    assert variables["AZUREML_RUN_ID"] == run and variables["MINE"] == "x"
    where = f"/history/v1.0{WORKSPACE}/experiments/birds/runs/{run}"
    for name in ("Completed", "Failed"):
        azure.ask("POST", f"{where}/events", {"name": f"Microsoft.MachineLearning.Run.{name}"})
        azure.ask("PATCH", where, {"status": name})
        assert azure.history(run)["status"] == "Running"
    done = {"status": "Completed", "exit_code": 0}
    assert azure.below(run, "/end", done).json() == {"status": "Completed"}
    failed = {"status": "Failed", "exit_code": 1, "message": "late"}
    assert azure.below(run, "/end", failed).json() == {"status": "Completed"}
    path = f"/metric/v2.0{WORKSPACE}/runs/{run}/batch"
    assert azure.site.ask("script", "POST", path, {"values": []}).status_code == 401
    assert azure.below(run, "", {}, "POST").status_code == 409


def test_the_environment_of_the_users_own_python_is_read_back(
    azure: Program, tmp_path: Path
) -> None:
    run = submitted(azure, tmp_path, environment={**OWN, "name": "my-python"})
    environment = azure.history(run, "/details")["runDefinition"]["environment"]
    assert (environment["name"], environment["version"]) == ("my-python", "1")
    where = f"/environment/v1.0{WORKSPACE}/environments/my-python/versions/1"
    assert azure.ask("GET", where)["python"]["userManagedDependencies"] is True


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"communicator": "Nccl"}, "distributed"),
        ({"nodeCount": 2}, "distributed"),
        ({"outputData": {"o": {"mechanism": "upload"}}}, "OutputFileDatasetConfig"),
        ({"framework": "PySpark"}, "Spark"),
        ({"command": "true"}, "a script and a command"),
        ({"dataReferences": {"r": {"dataStoreName": "workspaceblobstore"}}}, "data set"),
    ],
)
def test_what_only_a_job_has_is_refused_at_submit(
    azure: Program, overrides: Any, message: str
) -> None:
    run = f"no_{uuid.uuid4().hex[:8]}"
    response = azure.answer_of(run, configured(**overrides))
    assert response.status_code in (400, 501), response.text
    assert message in response.json()["error"]["message"]
    assert azure.refused(404, "GET", f"/history/v1.0{WORKSPACE}/experiments/birds/runs/{run}")


def test_windows_is_refused_by_name(azure: Program) -> None:
    telemetry = {"amlClientOSVersion": "Windows-10-10.0"}
    response = azure.answer_of("w_1", configured(), TelemetryValues=telemetry)
    assert response.status_code == 501 and "Windows" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/end", {"status": "Running"}),
        ("/end", {"status": "Nonsense"}),
        ("/end", {"status": "Failed", "exit_code": "three"}),
        ("/logs", {"path": "../x", "offset": 0, "content": ""}),
        ("/logs", {"path": "outputs/x", "offset": 0, "content": ""}),
        ("/logs", {"path": "user_logs/x", "offset": -1, "content": ""}),
        ("/logs", {"path": "user_logs/x", "offset": 0, "content": "%"}),
    ],
)
def test_malformed_reports_of_the_program_are_refused(
    azure: Program, tmp_path: Path, path: str, body: Any
) -> None:
    run = submitted(azure, tmp_path)
    assert azure.below(run, path, body).status_code == 400


def test_pieces_of_a_log_are_dropped_when_they_are_repeated(azure: Program, tmp_path: Path) -> None:
    run = submitted(azure, tmp_path)
    content = base64.b64encode(b"hello\n").decode()
    piece = {"path": "user_logs/std_log.txt", "offset": 0, "content": content}
    for _ in range(2):
        assert azure.below(run, "/logs", piece).json() == {"size": 6, "status": "Starting"}
    gap = azure.below(run, "/logs", {**piece, "offset": 9})
    assert (gap.status_code, gap.json()["size"]) == (409, 6)


def test_only_a_local_run_has_a_program(azure: Program) -> None:
    azure.ask(
        "PUT", f"/history/v1.0{WORKSPACE}/experiments/birds/runs/plain_1", {"runId": "plain_1"}
    )
    assert azure.below("plain_1", "/end", {"status": "Failed"}).status_code == 400
    response = azure.answer_of("plain_1", configured())
    assert response.status_code == 409, "a name that is another run's"


def test_only_the_owner_reports_on_a_local_run(azure: Program, tmp_path: Path) -> None:
    run = submitted(azure, tmp_path)
    azure.site.add("dora", "data-scientist")
    log = {"path": "user_logs/x", "offset": 0, "content": ""}
    for method, path, body in (
        ("POST", "", {}),
        ("PUT", "/end", {"status": "Failed"}),
        ("PUT", "/logs", log),
    ):
        for who in ("dora", "rita"):
            assert Program(azure.site, who).below(run, path, body, method).status_code == 403


def test_the_users_token_is_sent_only_to_its_own_server() -> None:
    variables = {"MSI_ENDPOINT": "https://h:1/msi/token", "MSI_SECRET": "s"}
    assert program.token_for("https://h:1", variables) == "s"
    assert program.token_for("https://h:11", variables) == ""
    assert program.token_for("https://other:1", variables) == ""
    assert program.token_for("https://h:1", {}) == ""


def test_a_program_without_a_token_says_so(azure: Program, tmp_path: Path) -> None:
    submitted(azure, tmp_path)
    subprocess.run(
        ["/bin/bash", tmp_path / "azureml-setup" / "Invocation.sh"],
        env={"PATH": f"{Path(sys.executable).parent}:/bin:/usr/bin"},
        check=True,
        timeout=60,
    )
    log = tmp_path / "azureml-setup" / program.LOG
    wait_for(lambda: log.exists() and log.read_text())
    assert "holds no token" in log.read_text()
