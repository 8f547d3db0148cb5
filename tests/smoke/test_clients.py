"""Azure ML's real clients, the newest of each kind: the core of what people do with them."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts_azure import client_venvs
from end_to_end.yard_under_test import Yard, remove

pytestmark = [pytest.mark.smoke, pytest.mark.timeout(600)]
_PROGRAM = Path(client_venvs.__file__).with_name("run_operations.py")
_LIMIT_S = 500
_FOREIGN = ("TORCHYARD", "AZURE", "MLFLOW", "PYTEST", "PYTHONPATH")

# Keys in tests/contracts_azure/*_operations.py; their modules decide on the order.
_SDK_V2 = (
    "Workspaces: `workspaces.get`",
    "Compute: `compute.begin_create_or_update`: AmlCompute",
    "Jobs: `jobs.create_or_update`: command with code, inputs and outputs",
    "Jobs: `jobs.stream`",
    "Jobs: `jobs.cancel`",
    "Jobs: `jobs.get`",
    "Environments: `environments.create_or_update`: image and conda file",
    "Data: `data.create_or_update`: local folder, file and MLTable",
    "Models: `models.create_or_update`: local folder, file and MLflow model",
    "Models: `models.download`: folder and file",
    "Jobs: a canceled job is Canceled",
    "Jobs: `jobs.download` of logs and default outputs",
    "Jobs: `jobs.download` of one output",
)
_SDK_V1 = (
    "Workspaces: `Workspace.from_config` without arguments",
    "Compute: `AmlCompute.provisioning_configuration`, `ComputeTarget.create`, wait",
    "Jobs: `submit`: a script, integers and `$NAME` in its arguments",
    "Jobs: `submit`: target `local`, `user_managed_dependencies`; `run.log`",
    "Jobs: `submit`: target `local`, a conda environment; `run.log`",
    "Jobs: `get_metrics`, `register_model` of a run on the target `local`",
    "Environments: `Environment.get` by a published name, `save_to_directory`, `load`",
    "Environments: `clone`, `register`, `Environment.get` of a version",
    "Data: `Dataset.File.upload_directory`, `to_path`",
    "Data: `download`",
    "Models: `Model.register` from a folder and from a file, `download`",
    "Jobs: arguments as the script saw them",
    "Jobs: `get_file_names`, `download_file`, `download_files`",
)
_OPERATIONS = {client_venvs.CLIENTS[0]: _SDK_V2, client_venvs.SDK_V1: _SDK_V1}


@pytest.fixture
def folder(yard: Yard) -> Iterator[Path]:
    """Where a client works, with the workspace's `config.json`."""
    folder = Path(tempfile.mkdtemp(prefix="torchyard-smoke-"))
    yard("workspace", "config", "--path", str(folder))
    yield folder
    remove(folder)


@pytest.mark.parametrize("client", _OPERATIONS)
def test_azure_client(yard: Yard, folder: Path, client: str) -> None:
    keys = _OPERATIONS[client]
    if not client_venvs.is_whole(client):
        message = f"`make azure-clients` installs {client}"
        if os.environ.get("TORCHYARD_TEST_SERVICES") == "required":
            pytest.fail(message)
        pytest.skip(message)
    variables = {name: text for name, text in os.environ.items() if not name.startswith(_FOREIGN)}
    variables |= json.loads(yard("client-env", "--shell", "json"))
    log = folder / "client.log"
    with log.open("wb") as opened:
        subprocess.run(
            [client_venvs.python(client), _PROGRAM, client, folder, *keys],
            cwd=folder,
            # SDK v1 leaves the folders of its runs on the target `local` there.
            env={**variables, "TMPDIR": str(folder)},
            stdout=opened,
            stderr=subprocess.STDOUT,
            timeout=_LIMIT_S,
        )
    print(log.read_text(errors="replace"))
    results = json.loads((folder / "results.json").read_text())
    assert set(keys) <= set(results), "an operation has another key now, or the client ended early"
    failures = {key: results[key]["trace"] for key in keys if not results[key]["ok"]}
    assert not failures, "\n".join(failures.values())
