"""SDK v1's `Dataset.File.upload_directory`: 1 GB in 8 files, and 5,000 files of 2 KB.

    python benchmarks/azure_upload.py CLIENT [--rounds 3] [--megabytes 1024] [--files 5000]

CLIENT is the Python of an environment with azureml-core and azureml-dataset-runtime, such as
`.azure-clients/azureml-core-1.61/bin/python` of `make azure-clients`. Beside it `cp -r` of the same
files and `yard data create`, and the CPU time that the server spent.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from figures import YARD, processor_s, run, temporary_yard

LARGE_FILES = 8
SMALL_BYTES = 2_000
UPLOAD = """
import sys, time, warnings
warnings.filterwarnings("ignore")
from azureml.core import Dataset, Workspace
ws = Workspace.from_config(path=sys.argv[1])
store = ws.get_default_datastore()
started = time.monotonic()
Dataset.File.upload_directory(sys.argv[2], target=(store, sys.argv[3]), show_progress=False)
print("took", time.monotonic() - started)
"""


def make_large(folder: Path, megabytes: int) -> None:
    folder.mkdir()
    for number in range(LARGE_FILES):
        with open(folder / f"{number}.bin", "wb") as file:
            for _ in range(megabytes // LARGE_FILES):
                file.write(os.urandom(1 << 20))


def make_small(folder: Path, files: int) -> None:
    for number in range(files):
        file = folder / f"{number // 100:03}" / f"{number % 100:02}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(SMALL_BYTES))


def cpu_s(home: Path) -> float:
    """CPU time of a server's processes so far."""
    seconds = 0.0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
            if b"torchyard.server" in words and str(home).encode() in words:
                seconds += processor_s(int(process.name))
        except OSError:
            continue
    return seconds


def by_sdk(
    client: Path, upload_target: Path, folder: Path, target: str, variables: Mapping[str, str]
) -> float:
    out = subprocess.run(
        [client, "-c", UPLOAD, upload_target, folder, target],
        env={**os.environ, **variables},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return next(float(line.split()[1]) for line in out.splitlines() if line.startswith("took "))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--files", type=int, default=5000)
    options = parser.parse_args()
    figures: dict[str, list[float]] = {}
    with temporary_yard() as variables, tempfile.TemporaryDirectory() as made:
        top, home = Path(made), Path(variables["TORCHYARD_HOME"])
        make_large(top / "large", options.megabytes)
        make_small(top / "small", options.files)
        config = top / "config"
        config.mkdir()
        run([YARD, "workspace", "config", "--path", config], variables)
        client_variables = json.loads(run([YARD, "client-env", "--shell", "json"], variables))
        for number in range(options.rounds):
            for name in ("large", "small"):
                folder = top / name
                started = time.monotonic()
                shutil.copytree(folder, top / "copy")
                figures.setdefault(f"{name}: cp -r", []).append(time.monotonic() - started)
                shutil.rmtree(top / "copy")
                before = cpu_s(home)
                took = by_sdk(
                    options.client, config, folder, f"bench/{name}-{number}", client_variables
                )
                figures.setdefault(f"{name}: upload_directory", []).append(took)
                spent = cpu_s(home) - before
                figures.setdefault(f"{name}: upload_directory, CPU of the server", []).append(spent)
                # What the server has seen is not sent again.
                for file in folder.rglob("*.bin"):
                    with open(file, "r+b") as opened:
                        opened.write(os.urandom(16))
                started = time.monotonic()
                asset = ["-n", f"bench-{name}-{number}", "--path", str(folder), "-o", "none"]
                run([YARD, "data", "create", *asset], variables)
                figures.setdefault(f"{name}: yard data create", []).append(
                    time.monotonic() - started
                )
    for case, seconds in figures.items():
        spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
        print(f"{case:45} {statistics.median(seconds):8.2f} s   ({spread})")


if __name__ == "__main__":
    main()
