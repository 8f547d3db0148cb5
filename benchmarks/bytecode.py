"""How long the modules of an environment take to compile: by uv, and by torchyard with its store.

    python benchmarks/bytecode.py [REQUIREMENT …]

Builds one environment of the requirements (`scikit-learn` and `pandas` without any) and prints the
CPU seconds and the seconds of each way.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from torchyard.environments.build import bytecode
from torchyard.environments.build.bytecode import Modules
from torchyard.environments.packages.uv import find_uv


def main() -> None:
    requirements = sys.argv[1:] or ["scikit-learn", "pandas"]
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        python = folder / "venv" / "bin" / "python"
        uv = [find_uv(), "--quiet"]
        subprocess.run([*uv, "venv", "--python", sys.executable, folder / "venv"], check=True)
        install = [*uv, "pip", "install", "--python", str(python)]
        subprocess.run([*install, *requirements], check=True)
        modules = bytecode.find(folder / "venv", folder.resolve() / "store", is_strangers=False)
        assert modules is not None
        for name in ("into an empty store", "from a full store"):
            for compiled in modules.packages.rglob("__pycache__"):
                shutil.rmtree(compiled)
            _measure(name, partial(_compile, modules, folder / "request.json"))
        for compiled in modules.packages.rglob("__pycache__"):
            shutil.rmtree(compiled)
        # Any change makes uv compile the whole environment.
        words = [*install, "--reinstall-package", "pip", "--compile-bytecode", "pip"]
        _measure("by uv", partial(subprocess.run, words, check=True))


def _compile(modules: Modules, file: Path) -> None:
    """As build/compiling.py does, at the usual priority."""
    request = {**modules.request(may_link=True, first=()), "is_idle": False}
    bytecode.write(file, request)
    listed = subprocess.run(bytecode.links_command("list", file), check=True, capture_output=True)
    bytecode.write(file, {**request, "sources": json.loads(listed.stdout)})
    with subprocess.Popen(
        bytecode.compile_command(modules, file), stdout=subprocess.PIPE
    ) as program:
        words = bytecode.links_command("take", file)
        subprocess.run(words, check=True, stdin=program.stdout)


def _measure(name: str, act: Callable[[], object]) -> None:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    act()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{name:20} {cpu_s:6.1f} CPU seconds, {time.monotonic() - start:6.1f} s")


if __name__ == "__main__":
    main()
