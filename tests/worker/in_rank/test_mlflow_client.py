"""What MLflow's client does otherwise inside a job; a client like it, as quick tests have none."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import other_pythons
from torchyard.worker.in_rank import mlflow_client, rank_hook, rank_record

RELAY, SERVER = "http://127.0.0.1:1", "https://yard.example.org:8443"
MODULES = {
    "mlflow/store/artifact/artifact_repo.py": """
import posixpath
def verify_artifact_path(path):
    if path and (posixpath.normpath(path) != path or path.startswith(("/", ".."))):
        raise ValueError(path)
""",
    "mlflow/store/artifact/http_artifact_repo.py": """
from mlflow.store.artifact.artifact_repo import verify_artifact_path
""",
    "mlflow/tracking/_tracking_service/client.py": """
class Some:
    def __init__(self, **fields):
        vars(self).update(fields)
class TrackingServiceClient:
    def __init__(self, host):
        self.store = Some(get_host_creds=lambda: Some(host=host),
                          get_run=lambda run: Some(info=Some(run_name="quick")))
    def _log_url(self, run_id):
        print("at", self.store.get_host_creds().host)
""",
    "azureml/mlflow/_store/azureml_reststore.py": """
class Credentials:
    def __init__(self, host, token):
        self.host, self.token = host, token
class AzureMLAbstractRestStore:
    def __init__(self, host, token):
        self.given = host, token
    def get_host_credentials(self):
        return Credentials(*self.given)
""",
}


@pytest.fixture(params=[other_pythons.IN_RANK, other_pythons.CURRENT])
def python(request: pytest.FixtureRequest) -> str:
    return other_pythons.python(request.param)


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with the hooks, and with packages whose modules are MLflow's and the plug-in's."""
    folder = tmp_path / "packages"
    for path, source in MODULES.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
        for parent in file.relative_to(folder).parents[:-1]:
            (folder / parent / "__init__.py").touch()
    for name, module in (
        ("_torchyard_rank_hook.py", rank_hook),
        ("_torchyard_rank_record.py", rank_record),
        ("_torchyard_mlflow.py", mlflow_client),
    ):
        shutil.copy(str(module.__file__), folder / name)
    return folder


def printed(python: str, packages: Path, script: str, **variables: str) -> list[str]:
    errors = packages.parent / "errors"
    errors.mkdir()
    environ = {
        "PYTHONPATH": str(packages),
        "TORCHYARD_ERRORS": str(errors),
        "TORCHYARD_RELAY": RELAY,
        "AZUREML_SERVICE_ENDPOINT": SERVER,
        "AZUREML_WORKSPACE_SCOPE": "/scope/workspaces/vision",
        "AZUREML_RUN_TOKEN": "run-token",
        "PYTHONIOENCODING": "utf-8",
        **variables,
    }
    words = [python, "-c", "import _torchyard_rank_hook as hook; hook.install()\n" + script]
    done = subprocess.run(words, env=environ, timeout=60, capture_output=True, check=True)
    return done.stdout.decode().splitlines()


def test_a_path_that_means_a_folder_is_accepted(python: str, packages: Path) -> None:
    script = """
from mlflow.store.artifact.http_artifact_repo import verify_artifact_path
for path in (None, "model", "./model", "model/", "a//b", ".", "../up", "a/../b", "/root"):
    try:
        verify_artifact_path(path)
        print("accepted", path)
    except ValueError:
        print("refused", path)
"""
    lines = printed(python, packages, script)
    assert [line for line in lines if line.startswith("refused")] == [
        "refused ../up",
        "refused a/../b",
        "refused /root",
    ]
    assert len(lines) == 9


LINK = f"""
from mlflow.tracking._tracking_service.client import TrackingServiceClient
for host in ("{RELAY}", "https://elsewhere.example.org"):
    TrackingServiceClient(host)._log_url("job-1")
"""


def test_no_link_names_the_relay(python: str, packages: Path) -> None:
    lines = printed(python, packages, LINK, MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT="true")
    assert lines == ["at https://elsewhere.example.org"]


def test_a_wanted_link_names_the_server(packages: Path) -> None:
    lines = printed(other_pythons.python(other_pythons.CURRENT), packages, LINK)
    assert lines[0].endswith(
        f"View run quick at: {SERVER}/runs/job-1?wsid=/scope/workspaces/vision"
    )


def test_the_jobs_own_requests_take_the_relay(python: str, packages: Path) -> None:
    script = f"""
import json
import mlflow
from azureml.mlflow._store.azureml_reststore import AzureMLAbstractRestStore
ways = [("{SERVER}/mlflow/v2.0/scope", "run-token"), ("{SERVER}/mlflow/v2.0/scope", "a-persons"),
        ("https://elsewhere.example.org/mlflow/v2.0/scope", "run-token")]
print(json.dumps([AzureMLAbstractRestStore(*way).get_host_credentials().host for way in ways]))
"""
    assert json.loads(printed(python, packages, script)[0]) == [
        f"{RELAY}/mlflow/v2.0/scope",
        f"{SERVER}/mlflow/v2.0/scope",
        "https://elsewhere.example.org/mlflow/v2.0/scope",
    ]
