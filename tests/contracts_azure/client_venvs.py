"""The pinned clients of Azure ML, each in a virtual environment of its own.

    python tests/contracts_azure/client_venvs.py          # what `make azure-clients` runs
    python tests/contracts_azure/client_venvs.py lock     # resolve clients/*.txt again
    python tests/contracts_azure/client_venvs.py [lock] NAME   # the same for this one alone

Owns: `.azure-clients/`, and the locked files beside their inputs in `clients/`.
Leaves: where packages come from to the machine's own configuration, as builds of ours do.
Always: an environment that is whole is left alone; one is whole when its stamp is its lock's hash.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from torchyard.environments.packages import machine_config

REPOSITORY = Path(__file__).resolve().parents[2]
LOCKS = Path(__file__).resolve().parent / "clients"
FOLDER = REPOSITORY / ".azure-clients"
CLIENTS = tuple(sorted((file.stem for file in LOCKS.glob("azure-ai-ml-*.in")), reverse=True))
SDK_V1 = "azureml-core-1.61"
SERVERS = tuple(sorted(file.stem for file in LOCKS.glob("inference-server-*.in")))
"""Azure's inference server, in the versions that scripts of its environments are served by."""
WIDGETS = "azureml-widgets-1.62"
ANYWIDGET = "jupyter-anywidget"
"""For torchyard's own widget: JupyterLab with ipywidgets 8."""
NOTEBOOKS = "notebooks-"
"""What `make notebooks` runs public notebooks with: Python 3.10, as Azure's compute instances."""
# Those before 1.4 import distutils, which Python 3.12 removed.
_NEWEST_OF_SERVERS = "3.11"
LONGEST_TIMEOUT_S = 60


def python(client: str) -> Path:
    """The client's interpreter, there once `install` has made it."""
    return FOLDER / client / "bin" / "python"


def is_whole(client: str) -> bool:
    stamp = FOLDER / client / ".lock"
    return stamp.is_file() and stamp.read_text() == _hash(client)


def install(client: str) -> None:
    """Make the environment of one client, unless it is there as the lock says."""
    if is_whole(client):
        return
    print(f"installing {client} into {FOLDER.name}", flush=True)
    folder = FOLDER / client
    shutil.rmtree(folder, ignore_errors=True)
    _uv("venv", "--quiet", "--python", _interpreter(client), str(folder))
    _uv(
        *("pip", "install", "--quiet", "--python", str(python(client))),
        *("--requirement", str(LOCKS / f"{client}.txt"), "--compile-bytecode"),
    )
    (folder / ".lock").write_text(_hash(client))


def lock(client: str) -> None:
    """Resolve a client's packages for every Python, without the addresses of this machine."""
    is_for_one = client.startswith(NOTEBOOKS) or client in SERVERS
    universal = () if is_for_one else ("--universal",)
    oldest = _NEWEST_OF_SERVERS if client in SERVERS else "3.10"
    _uv(
        *("pip", "compile", "--quiet", *universal, "--python-version", oldest),
        *("--no-emit-index-url", "--no-emit-find-links", "--no-annotate"),
        *("--custom-compile-command", "python tests/contracts_azure/client_venvs.py lock"),
        *("--output-file", str(LOCKS / f"{client}.txt"), str(LOCKS / f"{client}.in")),
    )


def _hash(client: str) -> str:
    return hashlib.sha256((LOCKS / f"{client}.txt").read_bytes()).hexdigest()


def _interpreter(client: str) -> str:
    if client in SERVERS:
        version = _NEWEST_OF_SERVERS
    elif client.startswith(NOTEBOOKS):
        version = "3.10"
    else:
        return sys.executable
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    import other_pythons

    interpreter: str | None = other_pythons.find(version)
    return interpreter or version


def _uv(*arguments: str) -> None:
    variables = dict(machine_config.read(os.environ).variables)
    timeout_s = min(int(variables.get("UV_HTTP_TIMEOUT", "30")), LONGEST_TIMEOUT_S)
    retry = [sys.executable, str(REPOSITORY / "tools/retry.py")]
    uv = Path(sys.executable).with_name("uv")
    code = subprocess.call(
        [*retry, str(uv), *arguments], env={**variables, "UV_HTTP_TIMEOUT": str(timeout_s)}
    )
    if code:
        raise SystemExit(code)


def main(arguments: list[str]) -> None:
    locks = arguments[:1] == ["lock"]
    for client in arguments[locks:] or (*CLIENTS, SDK_V1, *SERVERS):
        (lock if locks else install)(client)


if __name__ == "__main__":
    main(sys.argv[1:])
