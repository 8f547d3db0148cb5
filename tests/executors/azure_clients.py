"""Azure's real clients submit to an engine's cluster by its name; a module of each engine's tests
inherits these.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from contracts_azure import client_venvs
from end_to_end.yard_under_test import Yard
from executors.listening_yard import CLUSTER

_CLIENTS = Path(client_venvs.__file__).parent
_LIMIT_S = 500
_FOREIGN = ("TORCHYARD", "AZURE", "MLFLOW", "PYTEST")


def submitted(yard: Yard, client: str, code: str, folder: Path) -> dict[str, Any]:
    """What a client saw of the job that it submitted.

    Args:
        client: which SDK and version; the job's script runs with it, too.
        code: a folder beside the clients.
        folder: an empty one, that the client works in.
    """
    absent = not client_venvs.is_whole(client)
    if absent and os.environ.get("TORCHYARD_TEST_SERVICES") != "required":
        pytest.skip(f"`make azure-clients` makes {client}")
    assert not absent, client
    yard("workspace", "config", "--path", str(folder))
    redirection: dict[str, str] = json.loads(yard("client-env", "--shell", "json"))
    environ = {key: text for key, text in os.environ.items() if not key.startswith(_FOREIGN)}
    python = str(client_venvs.python(client))
    sdk = "v1" if client == client_venvs.SDK_V1 else "v2"
    done = subprocess.run(
        [
            *(python, "-W", "ignore", str(_CLIENTS / "engine_submission.py")),
            *(sdk, CLUSTER, python, str(_CLIENTS / code)),
        ],
        cwd=folder,
        env={**environ, **redirection, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
    )
    lines = done.stdout.splitlines()
    jobs = [line.split()[1] for line in lines if line.startswith("submitted ")]
    logs = {name: yard.logs(name) for name in jobs}
    assert done.returncode == 0, (done.stdout, done.stderr, logs)
    outcome: dict[str, Any] = json.loads(lines[-1])
    assert outcome["status"] == "Completed", (yard.job(jobs[0])["error"], logs)
    return outcome


class AzureClientsContract:
    """Inherit, and give a fixture `yard` of `listening_yard`."""

    def test_sdk_v1_submits_and_its_script_logs_to_its_run(
        self, yard: Yard, tmp_path: Path
    ) -> None:
        outcome = submitted(yard, client_venvs.SDK_V1, "in_job_v1_engine", tmp_path)
        losses = {f"loss-{rank}": [1.0, 0.5, pytest.approx(1 / 3)] for rank in (0, 1)}
        assert outcome["metrics"] == {**losses, "read": 4.5}
        assert outcome["children"] == [{"inner": 7}]
        assert outcome["tags"]["from"] == "a node"
        assert {"notes/note.txt", "outputs/rank-0.txt", "outputs/rank-1.txt"} <= {*outcome["files"]}
        logs = yard.logs(outcome["name"])
        assert len(logs) == 2
        for log in logs.values():
            assert b"all is well" in log
            # By the worker's gate, and with nothing to read of the token.
            assert b"address https://127.0.0.1:" in log
            (token,) = [line.split()[1] for line in log.splitlines() if line.startswith(b"token ")]
            assert set(token) == {ord("*")} and len(token) > 300
        assert yard.read(f"jobs/{outcome['name']}/files/notes/note.txt") == b"by upload_file"

    def test_sdk_v2_submits_and_its_script_uses_mlflow_and_the_sdk(
        self, yard: Yard, tmp_path: Path
    ) -> None:
        outcome = submitted(yard, client_venvs.CLIENTS[0], "in_job", tmp_path)
        name = outcome["name"]
        assert b"all is well" in b"".join(yard.logs(name).values())
        assert yard.read(f"jobs/{name}/files/notes/seen.txt") == b"by the plug-in"
        assert yard.job(name)["metrics"] == {"plain": 1.5, "plugin": 1.0}
