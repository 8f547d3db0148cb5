"""What it takes to install torchyard's command and SDK, and to import the SDK.

    python benchmarks/install.py [--rounds 3] [--limit-s 600] [--peers azure-ai-ml skypilot …]

Each is installed by uv, from a warm cache, into a new virtual environment. torchyard's own wheel is
built first. A peer that can't be installed here is left out, with the reason; one that isn't
installed within the limit, the filling of the cache included, stands below the table as `> N s`.
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from figures import Case, compare, remove

ROOT = Path(__file__).parents[1]
IMPORTS = {
    "torchyard": "from torchyard import Client, command",
    "azure-ai-ml": "from azure.ai.ml import MLClient, command",
    "skypilot": "import sky",
    "dstack": "from dstack.api import Client",
    "clearml": "from clearml import Task",
    "mlflow": "import mlflow",
}
_IMPORTS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--peers", nargs="*", default=[name for name in IMPORTS if name != "torchyard"]
    )
    parser.add_argument("--limit-s", type=float, default=600, help="of each peer by itself")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="torchyard-benchmark-"))
    try:
        _uv("build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT))
        [wheel] = folder.glob("*.whl")
        cases, unfinished = [], []
        for name in ("torchyard", *options.peers):
            source = str(wheel) if name == "torchyard" else name
            case = Case(name, functools.partial(_install, folder, name, source, options.limit_s))
            try:
                case.measure()  # fills uv's cache
            except subprocess.CalledProcessError as error:
                print(f"{name} is left out: {error.stderr.strip().splitlines()[-1]}")
            except subprocess.TimeoutExpired as error:
                unfinished.append(f"    {name:32}{f'> {error.timeout:.0f} s':>20}")
            else:
                cases.append(case)
        compare("install and import", cases, options.rounds)
        print("\n".join(unfinished))
    finally:
        remove(folder)


def _install(folder: Path, name: str, source: str, limit_s: float) -> Mapping[str, float]:
    venv = folder / "venv"
    _uv("venv", "--quiet", "--clear", "--python", sys.executable, str(venv))
    python = venv / "bin" / "python"
    began = time.monotonic()
    _uv("pip", "install", "--quiet", "--python", str(python), source, limit_s=limit_s)
    install_s = time.monotonic() - began
    files = [path for path in venv.rglob("*") if path.is_file() and not path.is_symlink()]
    size_mb = sum(path.stat().st_size for path in files) / 1e6
    # The first import of all compiles modules.
    seconds = [_import(python, name) for _ in range(_IMPORTS)]
    return {"install_s": install_s, "size_mb": size_mb, "import_s": min(seconds)}


def _import(python: Path, name: str) -> float:
    began = time.monotonic()
    command = [str(python), "-c", IMPORTS[name]]
    subprocess.run(command, check=True, capture_output=True, text=True, cwd="/")
    return time.monotonic() - began


def _uv(*words: str, limit_s: float | None = None) -> None:
    command = [sys.executable, str(ROOT / "tools" / "run_uv.py"), *words]
    environ = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            _, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # uv, and what it builds with
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, stderr=errors)


if __name__ == "__main__":
    main()
