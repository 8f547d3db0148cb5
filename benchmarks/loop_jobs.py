"""The training loop of training_loop.py as a job, with a server that can be killed meanwhile.

Owns: submitting the job, finding where it works, killing the server, what each step took, which
points the server has of it.
Leaves: which figures are made of it to relay.py and server_away.py.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml
from figures import YARD, run

LOOP = Path(__file__).with_name("training_loop.py")
REQUIREMENTS = ["mlflow-skinny==3.11.1"]
METRICS = 20
WORK_MS = 2.0
DEVICE_MS = 8.0
_names = itertools.count(1)


@dataclass(frozen=True)
class Step:
    """Times in seconds; `began` since 1970."""

    began: float
    took: float
    calls: tuple[float, ...]


class Torchyard:
    """The benchmark's own; jobs are asked for over its API."""

    def __init__(self, variables: dict[str, str]) -> None:
        self._variables = variables
        self._home = Path(variables["TORCHYARD_HOME"])

    def loop(self, steps: int, *options: str, past_relay: bool = False) -> str:
        """Start a job; returns its name."""
        name = f"loop-{next(_names)}-{os.getpid()}"
        words = ["python", LOOP.name, "--steps", steps, "--metrics", METRICS]
        words += ["--work-ms", WORK_MS, "--device-ms", DEVICE_MS]
        job: dict[str, Any] = {
            "name": name,
            "command": " ".join([*map(str, words), *options]),
            "code": ".",
            "environment": {"pip_requirements": REQUIREMENTS},
        }
        if past_relay:
            uri = f"{self._server()['url']}/mlflow/default"
            job["environment_variables"] = {"MLFLOW_TRACKING_URI": uri}
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / LOOP.name).write_text(LOOP.read_text())
            (Path(folder) / "job.yml").write_text(yaml.safe_dump(job))
            run([YARD, "job", "create", "-f", f"{folder}/job.yml"], self._variables)
        return name

    def steps(self, name: str) -> list[Step]:
        """What each step took, once the job has ended."""
        run([YARD, "job", "stream", "-n", name], self._variables)
        with self._open(f"jobs/{name}/files/outputs/steps.json") as answer:
            return [Step(began, took, tuple(calls)) for began, took, calls in json.load(answer)]

    def wait_for_steps(self, name: str) -> Path:
        """Until the loop runs; returns the folder it works in."""
        while not (work := self._work(name)) or not (work / "outputs/began").exists():
            time.sleep(0.1)
        return work

    def kill_server_while(self, name: str) -> float:
        """Until the loop is over; returns since when, in seconds since 1970."""
        work = self.wait_for_steps(name)
        since = self.kill_server()
        while not (work / "outputs/steps.json").exists():
            time.sleep(0.1)
        self.start_server()
        return since

    def kill_server(self) -> float:
        """Returns when, in seconds since 1970."""
        os.kill(self._server()["pid"], signal.SIGKILL)
        return time.time()

    def start_server(self) -> float:
        """Returns when it answered, in seconds since 1970."""
        run([YARD, "server", "start"], self._variables)
        return time.time()

    def points(self, name: str, key: str) -> list[tuple[int, float]]:
        """Step and value of every point that the server has, in order of arrival."""
        with self._open(f"jobs/{name}/metrics/history?{urlencode({'key': key})}") as answer:
            return [(step, value) for step, _, value in json.load(answer)["points"]]

    def _work(self, name: str) -> Path | None:
        with self._open(f"jobs/{name}") as answer:
            if json.load(answer)["status"] != "Running":
                return None
        for plan in (self._home / "scratch").glob("*/plan.json"):
            if json.loads(plan.read_text())["job"] == name:
                return plan.parent / "node-0" / "work"
        return None

    def _server(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self._home / "server.json").read_text())
        return document

    def _open(self, path: str) -> Any:
        token = (self._home / "token").read_text().strip()
        return urllib.request.urlopen(
            urllib.request.Request(
                f"{self._server()['url']}/v1/workspaces/default/{path}",
                headers={"Authorization": f"Bearer {token}"},
            ),
            timeout=60,
        )


def percentiles_ms(name: str, seconds: list[float]) -> dict[str, float]:
    """p50, p95 and p99 in ms, as `step_p50_ms`."""
    ordered = sorted(seconds)
    return {
        f"{name}_p{share}_ms": ordered[len(ordered) * share // 100] * 1000 for share in (50, 95, 99)
    }
