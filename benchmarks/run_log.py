"""What a training loop pays for `run.log` of SDK v1, with the server there and away.

    python benchmarks/run_log.py [--steps 2000] [--rounds 3] [--home FOLDER]

The loop waits 10 ms a step, as for a device, then logs one value by the real azureml-core and one
by the real mlflow. `run.log` is given the value and returns: the client sends it later, in threads
that share the interpreter with the loop. The median of `mlflow.log_metric` beside it is what the
relay takes for an answer. In the second case the server is killed in the middle and started again
when the loop is over: the figures are of the steps after it was killed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import tempfile
import time
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from figures import YARD, Case, compare, run, temporary_yard

LOOP = Path(__file__).with_name("run_log_loop.py")
REQUIREMENTS = ["azureml-core==1.61.0.post4", "mlflow-skinny==2.22.0"]
DEVICE_MS = 10.0
_names = itertools.count(1)


class Torchyard:
    """The benchmark's own; jobs are asked for over its API."""

    def __init__(self, variables: dict[str, str]) -> None:
        self._variables = variables
        self._home = Path(variables["TORCHYARD_HOME"])

    def loop(self, steps: int) -> str:
        """Start a job; returns its name."""
        name = f"run-log-{next(_names)}-{os.getpid()}"
        job = {
            "name": name,
            "command": f"python {LOOP.name} --steps {steps} --device-ms {DEVICE_MS}",
            "code": ".",
            "environment": {"pip_requirements": REQUIREMENTS},
        }
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / LOOP.name).write_text(LOOP.read_text())
            (Path(folder) / "job.yml").write_text(yaml.safe_dump(job))
            run([YARD, "job", "create", "-f", f"{folder}/job.yml"], self._variables)
        return name

    def ended(self, name: str) -> dict[str, Any]:
        """What the loop wrote, once the job has ended."""
        run([YARD, "job", "stream", "-n", name], self._variables)
        document: dict[str, Any] = self.read(f"jobs/{name}/files/outputs/calls.json")
        return document

    def kill_server_while(self, name: str) -> float:
        """Until the loop is over; returns since when, in seconds since 1970."""
        while not (work := self._work(name)) or "warm" not in self.read(f"jobs/{name}")["metrics"]:
            time.sleep(0.1)
        os.kill(self._server()["pid"], signal.SIGKILL)
        since = time.time()
        while not (work / "outputs/calls.json").exists():
            time.sleep(0.1)
        run([YARD, "server", "start"], self._variables)
        return since

    def read(self, path: str) -> Any:
        token = (self._home / "token").read_text().strip()
        url = f"{self._server()['url']}/v1/workspaces/default/{path}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def _work(self, name: str) -> Path | None:
        for plan in (self._home / "scratch").glob("*/plan.json"):
            if json.loads(plan.read_text())["job"] == name:
                return plan.parent / "node-0" / "work"
        return None

    def _server(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self._home / "server.json").read_text())
        return document


def figures_of(document: dict[str, Any], since: float = 0.0) -> dict[str, float]:
    calls = [call for call in document["calls"] if call[0] >= since]
    return {
        **_spread("run_log", [call[1] for call in calls]),
        **_spread("mlflow_log_metric", [call[2] for call in calls]),
        "tag_ms": document["tag_s"] * 1000,
        "flush_ms": document["flush_s"] * 1000,
    }


def _spread(name: str, taken: list[float]) -> dict[str, float]:
    taken = sorted(taken)
    return {
        f"{name}_median_us": taken[len(taken) // 2] * 1e6,
        f"{name}_p99_us": taken[int(len(taken) * 0.99)] * 1e6,
        f"{name}_worst_us": taken[-1] * 1e6,
    }


def server_there(yard: Torchyard, steps: int) -> dict[str, float]:
    return figures_of(yard.ended(yard.loop(steps)))


def server_away(yard: Torchyard, steps: int) -> dict[str, float]:
    name = yard.loop(steps)
    since = yard.kill_server_while(name)
    return figures_of(yard.ended(name), since)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--home", type=Path, help="kept, with its environment")
    arguments = parser.parse_args()
    with temporary_yard(arguments.home) as variables:
        yard = Torchyard(variables)
        cases = [
            Case("the server there", partial(server_there, yard, arguments.steps)),
            Case("the server killed meanwhile", partial(server_away, yard, arguments.steps)),
        ]
        compare(f"A step of {DEVICE_MS:g} ms that logs one value", cases, arguments.rounds)


if __name__ == "__main__":
    main()
