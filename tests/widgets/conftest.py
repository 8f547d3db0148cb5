"""JupyterLab with azureml-widgets beside one torchyard, and what Chromium saw there: once.

Owns: the lives of the server, of JupyterLab and of the browser's process.
Leaves: what the browser does to watch_notebook.py, what is made of it to the tests.
Always: at the end no process that knows the home folder is alive.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "contracts_azure"))
sys.path.append(str(Path(__file__).parents[1] / "end_to_end"))

import client_venvs
from yard_under_test import Yard, remove, running_yard, wait_until

HERE = Path(__file__).resolve().parent
# What watch_notebook.py gives itself, and some time to write down how far it came.
_LIMIT_S = 660
_TOKEN = "looked-at-by-a-test"
# What JupyterLab would ask the Internet for by itself.
_SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {
        "checkForUpdates": False,
        "doNotDisturbMode": True,
        "fetchNews": "false",
    },
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
}


@pytest.fixture(scope="session", autouse=True)
def client() -> str:
    """The environment and the browser of `make widgets`; without them there is nothing to test."""
    name = client_venvs.WIDGETS
    absent = [] if client_venvs.is_whole(name) else [name]
    absent += [] if shutil.which("chromium") else ["chromium"]
    if absent and os.environ.get("TORCHYARD_TEST_SERVICES") != "required":
        pytest.skip(f"`make widgets` installs {' and '.join(absent)}")
    assert not absent, absent
    return name


@pytest.fixture(scope="session")
def yard() -> Iterator[Yard]:
    with running_yard("widgets") as yard:
        yield yard


@pytest.fixture(scope="session")
def folder(yard: Yard) -> Iterator[Path]:
    """Where the notebook and its script lie."""
    notebook_folder = Path(tempfile.mkdtemp(prefix="torchyard-notebook-"))
    shutil.copytree(HERE / "notebook", notebook_folder, dirs_exist_ok=True)
    yard("workspace", "config", "--path", str(notebook_folder))
    yield notebook_folder
    remove(notebook_folder)


@pytest.fixture(scope="session")
def environment(yard: Yard, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the notebook's environment comes to, built: no test watches that."""
    file = tmp_path_factory.mktemp("environment") / "requirements.txt"
    file.write_text("azureml-core==1.61.0.post4\nsetuptools<81\n")
    yard("environment", "create", "-n", "learning-built", "--pip-requirements", str(file))
    yard("environment", "build", "learning-built", timeout_s=600)


@pytest.fixture(scope="session")
def address(yard: Yard, client: str, folder: Path) -> Iterator[str]:
    """The notebook, in a JupyterLab that was started as the guide says."""
    yard("jupyterlab", "--python", str(client_venvs.python(client)))
    top = folder / ".jupyter"
    for name, chosen in _SETTINGS.items():
        file = top / "lab" / "user-settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(chosen))
    port = _free_port()
    lab: list[str | Path] = [client_venvs.python(client), "-m", "jupyterlab"]
    lab += ["--no-browser", "--allow-root"]
    lab += ["--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"]
    lab += [f"--IdentityProvider.token={_TOKEN}", "--MappingKernelManager.kernel_info_timeout=300"]
    places = {"JUPYTER_CONFIG_DIR": top, "JUPYTER_DATA_DIR": top / "data", "IPYTHONDIR": top}
    names = {"JUPYTER_RUNTIME_DIR": top / "run", **places}
    log = (folder / "lab.log").open("wb")
    with log:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("yard"), "client-env", "--run", "--", *lab],
            cwd=folder,
            env={**_plain(yard), **{name: str(place) for name, place in names.items()}},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until(lambda: _answers(port), 120, "JupyterLab answers")
            yield f"http://127.0.0.1:{port}/lab/tree/learning.ipynb?token={_TOKEN}"
        finally:
            # Kernels end with it; the second asks no question.
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()
            print((folder / "lab.log").read_text(errors="replace")[-4000:])


@pytest.fixture(scope="session")
def seen(environment: None, address: str, client: str, folder: Path) -> dict[str, Any]:
    """What was on the screen; see watch_notebook.py."""
    command: list[str | Path] = [client_venvs.python(client), HERE / "watch_notebook.py"]
    command += [address, folder]
    log = folder / "watch.log"
    with log.open("wb") as opened:
        # A group of its own: the browser's processes are in it.
        watching = subprocess.Popen(
            command, stdout=opened, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            watching.wait(_LIMIT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(watching.pid, signal.SIGKILL)
            watching.wait()
    kept = os.environ.get("TORCHYARD_KEEP_SCREENSHOTS")
    for file in folder.glob("*.png") if kept else ():
        shutil.copy(file, str(kept))
    file = folder / "seen.json"
    contents: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    told_short = {name: what for name, what in contents.items() if name != "requests"}
    assert watching.returncode == 0, f"{log.read_text()}\n{json.dumps(told_short, indent=1)}"
    return contents


def _plain(yard: Yard) -> dict[str, str]:
    """The environment of somebody who has set nothing of Azure's or Jupyter's."""
    foreign = ("AZURE", "MLFLOW", "PYTEST", "JUPYTER", "PYTHONPATH")
    return {name: text for name, text in yard.variables.items() if not name.startswith(foreign)}


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as server_socket:
        server_socket.bind(("127.0.0.1", 0))
        port: int = server_socket.getsockname()[1]
        return port
