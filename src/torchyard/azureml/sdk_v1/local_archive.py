"""The zip file that SDK v1 unpacks beside a copy of the script's folder, and starts.

Owns: its files: the script that the client starts, the program, the program's task.
Leaves: what the program does to local_program/program.py.
Always: it contains no secret, for the client leaves it where everybody on its machine can read it;
the program needs only Python.

Source: azureml-core 1.61, `azureml/_execution/_commands.py`: `azureml-setup/Invocation.sh` is made
executable, and started with bash in the background, its output thrown away.
"""

from __future__ import annotations

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
    """The worker's modules with our program, as one file that Python runs."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(worker) as source, zipfile.ZipFile(buffer, "w") as archive:
        for name in source.namelist():
            if name.endswith(".py") and name != "__main__.py":
                archive.writestr(name, source.read(name))
        archive.writestr("__main__.py", _MAIN)
        assert local_program.__file__ is not None
        for file in sorted(Path(local_program.__file__).parent.glob("*.py")):
            archive.writestr(f"torchyard/local_program/{file.name}", file.read_bytes())
    return buffer.getvalue()
