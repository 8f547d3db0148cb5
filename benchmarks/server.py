"""How soon a server answers and how much memory it takes: `yard-server` beside MLflow's.

    python benchmarks/server.py [--rounds 5] [--mlflow-python PYTHON]

Each round starts on an empty folder: what is measured contains the making of the database.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from figures import YARD, Case, clean_variables, compare, remove

LONGEST_S = 600.0


def memory_mb(pid: int, kind: str = "Rss") -> float:
    """Memory of a process and all it started.

    Args:
        kind: `Rss`, or `Pss`, which counts what processes share once.
    """
    total, waiting = 0.0, [pid]
    while waiting:
        folder = Path(f"/proc/{waiting.pop()}")
        for line in (folder / "smaps_rollup").read_text().splitlines():
            if line.startswith(f"{kind}:"):
                total += int(line.split()[1]) / 1024
        for task in (folder / "task").iterdir():
            waiting += [int(child) for child in (task / "children").read_text().split()]
    return total


def wait_for_answer(url: str, started: float) -> float:
    """Seconds from `started` until the URL answers."""
    while time.monotonic() - started < LONGEST_S:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return time.monotonic() - started
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.02)
    raise SystemExit(f"{url} did not answer within {LONGEST_S:.0f} s")


@contextlib.contextmanager
def torchyard_server(home: Path) -> Iterator[tuple[str, int, float]]:
    """URL, process and seconds from `yard server start` to its answer; the command is counted."""
    variables = clean_variables(TORCHYARD_HOME=str(home))
    started = time.monotonic()
    subprocess.run([YARD, "server", "start"], env=variables, check=True, capture_output=True)
    try:
        server = json.loads((home / "server.json").read_text())
        ready_s = wait_for_answer(server["url"] + "/health", started)
        yield server["url"], server["pid"], ready_s
    finally:
        subprocess.run([YARD, "server", "stop"], env=variables, check=True, capture_output=True)


@contextlib.contextmanager
def mlflow_server(python: str, folder: Path) -> Iterator[tuple[str, int, float]]:
    """MLflow's on SQLite: URL, first process and seconds until its answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    stores = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    stores += ["--artifacts-destination", f"{folder}/artifacts"]
    # MLflow 2 starts the gunicorn that it finds there.
    path = f"{Path(python).parent}:{os.environ['PATH']}"
    started = time.monotonic()
    process = subprocess.Popen(
        [python, "-m", "mlflow", "server", "--port", str(port), *stores],
        cwd=folder,
        env=clean_variables(PATH=path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        yield url, process.pid, wait_for_answer(f"{url}/health", started)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def torchyard() -> dict[str, float]:
    home = Path(tempfile.mkdtemp(prefix="torchyard-benchmark-"))
    try:
        with torchyard_server(home) as (_, pid, ready_s):
            return {"ready_s": ready_s, "memory_mb": memory_mb(pid)}
    finally:
        remove(home)


def mlflow(python: str) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory() as folder,
        mlflow_server(python, Path(folder)) as (_, pid, ready_s),
    ):
        return {"ready_s": ready_s, "memory_mb": memory_mb(pid)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mlflow-python", help="a Python that has mlflow installed")
    arguments = parser.parse_args()
    cases = [Case("yard server start", torchyard)]
    if arguments.mlflow_python:
        cases.append(Case("mlflow server", partial(mlflow, arguments.mlflow_python)))
    else:
        print("mlflow is left out: name a Python that has it with --mlflow-python")
    compare("A server on an empty folder", cases, arguments.rounds)


if __name__ == "__main__":
    main()
