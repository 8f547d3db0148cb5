"""How long the modules of an environment take to compile: by uv, and by torchyard with its cache.

    python benchmarks/bytecode.py [REQUIREMENT …]

Builds one environment of the requirements (`scikit-learn` and `pandas` without any) and prints the
CPU seconds and the seconds of each way.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from torchyard.environments.build import bytecode_program
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
        packages = next(folder.glob("venv/lib/python3*/site-packages"))
        program = [python, "-I", "-S", "-B", bytecode_program.__file__, packages, folder / "cache"]
        _measure("into an empty cache", program)
        _measure("from a full cache", program)
        for compiled in packages.rglob("__pycache__"):
            shutil.rmtree(compiled)
        # Any change makes uv compile the whole environment.
        _measure("by uv", [*install, "--reinstall-package", "pip", "--compile-bytecode", "pip"])


def _measure(name: str, words: Sequence[object]) -> None:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([str(word) for word in words], check=True, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{name:20} {cpu_s:6.1f} CPU seconds, {time.monotonic() - start:6.1f} s")


if __name__ == "__main__":
    main()
