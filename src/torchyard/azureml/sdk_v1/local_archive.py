"""The zip file that SDK v1 unpacks beside a copy of the script's folder, and starts.

Owns: its files: the script that the client starts, the program, the program's task.
Leaves: what the program does to local_program/program.py.
Always: it contains no secret, for the client leaves it where everybody on its machine can read it;
the program needs only Python.

Source: azureml-core 1.61, `azureml/_execution/_commands.py`: `azureml-setup/Invocation.sh` is made
executable, and started with bash in the background, its output thrown away.
"""

from __future__ import annotations

import ast
import functools
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchyard import local_program
from torchyard.executors.bundle import worker_zip
from torchyard.local_program.program import LOG

FOLDER = "azureml-setup"
TASK = "task.json"
_PROGRAM = "local_run.pyz"
_IN_RANK = "torchyard/worker/in_rank/"
_MAIN = """\
import sys

from torchyard.local_program.program import main

sys.exit(main(sys.argv[1]))
"""
# The third is the Python that runs the client.
_START = f"""\
#!/bin/bash
here="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"
for python in python3 python "$(readlink "/proc/$PPID/exe")"; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
        exec "$python" -I "$here/{_PROGRAM}" "$here"
    fi
done
echo "no Python 3.9 or later was found on PATH" >"$here/{LOG}"
exit 1
"""


def content(home: Path, task: Mapping[str, Any]) -> bytes:
    """The zip file as bytes, about half a megabyte."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{FOLDER}/Invocation.sh", _START)
        archive.writestr(f"{FOLDER}/{TASK}", json.dumps(task, indent=1))
        archive.writestr(f"{FOLDER}/{_PROGRAM}", _program(worker_zip(home)))
    return buffer.getvalue()


@functools.lru_cache(maxsize=1)
def _program(worker: Path) -> bytes:
    """The program with the modules of the worker that it needs, as one file that Python runs."""
    assert local_program.__file__ is not None
    with zipfile.ZipFile(worker) as source:
        modules = {name: source.read(name) for name in source.namelist() if name.endswith(".py")}
    for file in Path(local_program.__file__).parent.glob("*.py"):
        modules[f"torchyard/local_program/{file.name}"] = file.read_bytes()
    names = _needed(modules, local_program.__name__ + ".program")
    # Not imported but copied into the script's environment.
    names |= {name for name in modules if name.startswith(_IN_RANK)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("__main__.py", _MAIN)
        for name in sorted(names):
            archive.writestr(name, modules[name])
    return buffer.getvalue()


def _needed(modules: Mapping[str, bytes], start: str) -> set[str]:
    """The files of a module and of all that it imports, whenever it imports it."""
    needed: set[str] = set()
    waiting = [start]
    while waiting:
        dotted = waiting.pop()
        path = dotted.replace(".", "/")
        name = next((n for n in (f"{path}.py", f"{path}/__init__.py") if n in modules), None)
        if name is None or name in needed:
            continue
        needed.add(name)
        waiting.append(dotted.rpartition(".")[0])
        for node in ast.walk(ast.parse(modules[name])):
            if isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                waiting += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return needed
