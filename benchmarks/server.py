"""How soon a server answers and how much memory it takes: `yard-server` beside MLflow's.

    python benchmarks/server.py [--rounds 5] [--mlflow-python PYTHON]

Each round starts on an empty folder: what is measured contains the making of the database.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

from figures import YARD, Case, clean_variables, compare, remove

LONGEST_S = 180.0


def memory_mb(pid: int) -> float:
    """Resident memory of a process and all it started."""
    total, waiting = 0.0, [pid]
    while waiting:
        folder = Path(f"/proc/{waiting.pop()}")
        for line in (folder / "status").read_text().splitlines():
            if line.startswith("VmRSS:"):
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


def torchyard() -> dict[str, float]:
    """From `yard server start` to its answer; the command itself is counted."""
    home = Path(tempfile.mkdtemp(prefix="torchyard-benchmark-"))
    variables = clean_variables(TORCHYARD_HOME=str(home))
    started = time.monotonic()
    subprocess.run([YARD, "server", "start"], env=variables, check=True, capture_output=True)
    server = json.loads((home / "server.json").read_text())
    try:
        ready_s = wait_for_answer(server["url"] + "/health", started)
        return {"ready_s": ready_s, "memory_mb": memory_mb(server["pid"])}
    finally:
        subprocess.run([YARD, "server", "stop"], env=variables, check=True, capture_output=True)
        remove(home)


def mlflow(python: str) -> dict[str, float]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        stores = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
        stores += ["--default-artifact-root", folder]
        started = time.monotonic()
        process = subprocess.Popen(
            [python, "-m", "mlflow", "server", "--port", str(port), *stores],
            cwd=folder,
            env=clean_variables(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            ready_s = wait_for_answer(f"http://127.0.0.1:{port}/health", started)
            return {"ready_s": ready_s, "memory_mb": memory_mb(process.pid)}
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


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
