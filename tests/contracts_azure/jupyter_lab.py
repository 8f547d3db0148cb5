"""A JupyterLab for tests, over a folder of its own, and a program that looks at it.

Owns: its settings, their starts and ends.
Leaves: the notebooks to the tests.
Always: it asks nothing of the Internet by itself, and ends with the block.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from yard_under_test import Yard

TOKEN = "looked-at-by-a-test"
# What JupyterLab would ask the Internet for by itself.
_SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {
        "checkForUpdates": False,
        "doNotDisturbMode": True,
        "fetchNews": "false",
    },
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
}
_START_LIMIT_S = 240


@contextlib.contextmanager
def running_lab(
    command: Sequence[str | Path], folder: Path, variables: Mapping[str, str]
) -> Iterator[str]:
    """Its address, with a slash at the end.

    Args:
        command: what starts JupyterLab; its options are added.
        folder: where the notebooks lie.
    """
    top = folder / ".jupyter"
    for name, chosen in _SETTINGS.items():
        file = top / "lab" / "user-settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(chosen))
    port = _free_port()
    options = ["--no-browser", "--allow-root", "--expose-app-in-browser"]
    options += ["--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"]
    options += [
        f"--IdentityProvider.token={TOKEN}",
        "--MappingKernelManager.kernel_info_timeout=300",
    ]
    folders = {"JUPYTER_CONFIG_DIR": top, "JUPYTER_DATA_DIR": top / "data", "IPYTHONDIR": top}
    names = {"JUPYTER_RUNTIME_DIR": top / "run", **folders}
    log = folder / "lab.log"
    with log.open("wb") as opened:
        process = subprocess.Popen(
            [*command, *options],
            cwd=folder,
            env={**variables, **{name: str(path) for name, path in names.items()}},
            stdout=opened,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait(port)
            yield f"http://127.0.0.1:{port}/"
        finally:
            # Kernels end with it; the second asks no question.
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()
            print(log.read_text(errors="replace")[-4000:])


def watch(
    command: Sequence[str | Path],
    folder: Path,
    limit_s: float,
    variables: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """What a program that looks at a notebook writes into seen.json of `folder`."""
    log = folder / "watch.log"
    with log.open("wb") as opened:
        # A group of its own: the browser's processes are in it.
        watching = subprocess.Popen(
            command, stdout=opened, stderr=subprocess.STDOUT, env=variables, start_new_session=True
        )
        try:
            watching.wait(limit_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(watching.pid, signal.SIGKILL)
            watching.wait()
    kept_folder = os.environ.get("TORCHYARD_KEEP_SCREENSHOTS")
    for file in folder.glob("*.png") if kept_folder else ():
        shutil.copy(file, str(kept_folder))
    file = folder / "seen.json"
    contents: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    told_short = {name: content for name, content in contents.items() if name != "requests"}
    assert watching.returncode == 0, f"{log.read_text()}\n{json.dumps(told_short, indent=1)}"
    return contents


def plain_variables(yard: Yard) -> dict[str, str]:
    """The environment of somebody who has set nothing of Azure's or Jupyter's."""
    foreign = ("AZURE", "MLFLOW", "PYTEST", "JUPYTER", "PYTHONPATH")
    return {name: text for name, text in yard.variables.items() if not name.startswith(foreign)}


def _wait(port: int) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while not _answers(port):
        assert time.monotonic() < deadline, "JupyterLab does not answer"
        time.sleep(0.2)


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
