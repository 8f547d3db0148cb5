"""One torchyard, and what each pinned client did on it: once for the whole session.

Owns: the server's life, the clients' processes, side by side.
Leaves: what a client does to the modules `*_operations.py`, what is made of it to the tests.
Always: at the end no process that knows the home folder is alive.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import client_venvs
import pytest
from operations import EXPIRED

from torchyard.workspaces.jwts import Signer

sys.path.append(str(Path(__file__).parents[1] / "end_to_end"))

from yard_under_test import Yard, running_yard

HERE = Path(__file__).resolve().parent
# Three at once on a small machine take five minutes, and on one that is busy fifteen and more.
_LIMIT_S = 1500


@pytest.fixture(scope="session", autouse=True)
def clients() -> None:
    """The environments of `make azure-clients`; without them there is nothing to test."""
    every = (*client_venvs.CLIENTS, client_venvs.SDK_V1)
    absent = [client for client in every if not client_venvs.is_whole(client)]
    if absent and os.environ.get("TORCHYARD_TEST_SERVICES") != "required":
        pytest.skip(f"`make azure-clients` makes {', '.join(absent)}")
    assert not absent, absent


@pytest.fixture(scope="session")
def yard() -> Iterator[Yard]:
    with running_yard("azure") as yard:
        yield yard


@pytest.fixture(scope="session")
def variables(yard: Yard) -> dict[str, str]:
    """What redirects a client to the server; nothing of ours besides."""
    redirection: dict[str, str] = json.loads(yard("client-env", "--shell", "json"))
    environ = {name: text for name, text in os.environ.items() if not _is_foreign(name)}
    return {**environ, **redirection, EXPIRED: _expired(yard)}


def _expired(yard: Yard) -> str:
    """A token of this server's that was good an hour ago."""
    signer = Signer(yard.home, (yard.home / "server.id").read_text().strip())
    now = datetime.now(timezone.utc)
    token = (yard.home / "token").read_text().strip()
    began, ended = now - timedelta(hours=2), now - timedelta(hours=1)
    return signer.sign(token, "root", "https://management.azure.com", began, ended)


def _is_foreign(name: str) -> bool:
    return name.startswith(("TORCHYARD", "AZURE", "MLFLOW", "PYTEST")) or name == "PYTHONPATH"


@pytest.fixture(scope="session")
def more_than_a_page(yard: Yard) -> None:
    """Jobs that ended before they began, so that a list of all has pages."""
    for number in range(55):
        job = {"name": f"page-{number}", "command": "true", "environment": "python"}
        yard.post("jobs", job)
        yard.post(f"jobs/page-{number}/cancel", {})


@pytest.fixture(scope="session")
def results(
    yard: Yard, variables: dict[str, str], more_than_a_page: None
) -> Iterator[dict[str, dict[str, Any]]]:
    """By client and operation."""
    top = Path(tempfile.mkdtemp(prefix="torchyard-azure-clients-"))
    try:
        with ThreadPoolExecutor(2) as pool:
            made = [
                pool.submit(_operated, yard, variables, client, top / client)
                for client in client_venvs.CLIENTS
            ]
            yield {
                client: future.result()
                for client, future in zip(client_venvs.CLIENTS, made, strict=True)
            }
    finally:
        shutil.rmtree(top, ignore_errors=True)


@pytest.fixture(scope="session")
def v1_results(yard: Yard, variables: dict[str, str]) -> Iterator[dict[str, Any]]:
    """What SDK v1 did, by operation."""
    top = Path(tempfile.mkdtemp(prefix="torchyard-azure-v1-"))
    try:
        yield _operated(yard, variables, client_venvs.SDK_V1, top / "v1")
    finally:
        shutil.rmtree(top, ignore_errors=True)


def _operated(yard: Yard, variables: dict[str, str], client: str, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    yard("workspace", "config", "--path", str(folder))
    command: list[str | Path] = [client_venvs.python(client), HERE / "run_operations.py"]
    command += [client, folder]
    log = folder / "client.log"
    with log.open("wb") as opened:
        process = subprocess.Popen(
            command,
            cwd=folder,
            # SDK v1 leaves the folders of its runs on the target `local` there.
            env={**variables, "TMPDIR": str(folder)},
            stdout=opened,
            stderr=subprocess.STDOUT,
        )
        try:
            process.wait(_LIMIT_S)
        finally:
            process.kill()
            process.wait()
    print(log.read_text(errors="replace"))
    file = folder / "results.json"
    assert file.exists(), log.read_text(errors="replace")
    operation_results: dict[str, Any] = json.loads(file.read_text())
    return operation_results
