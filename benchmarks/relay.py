"""What a training loop pays for its run history, with the server there and away.

    python benchmarks/relay.py [--seconds 20] [--rounds 3] [--home FOLDER]

A loop of fixed work and a wait, as for a device, logs 20 metrics a step with the real mlflow:
through the job's relay; through the relay while the server is killed; past the relay, to the
server; not at all. Then the relay alone, called by bare HTTP from one rank and from eight: what is
left is mlflow's own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from figures import YARD, Case, clean_variables, compare, run, temporary_yard

LOOP = Path(__file__).with_name("training_loop.py")
REQUIREMENTS = ["mlflow-skinny==3.11.1"]
METRICS = 20
WORK_MS = 2.0
DEVICE_MS = 8.0
_names = itertools.count(1)

RELAY = """
import sys
from pathlib import Path
from torchyard.plan import LaunchPlan
from torchyard.worker.link import Link
from torchyard.worker.relay import Relay
plan = LaunchPlan(
    attempt_id="a", attempt=1, job="job", workspace="w", experiment="e", command="", scratch="",
    server_url="http://127.0.0.1:9", report_token="none", run_token="token",
)
relay = Relay(Link(plan.server_url, plan.report_token, plan.attempt_id), plan, 0, Path(sys.argv[1]))
print(relay.start(), flush=True)
sys.stdin.read()
"""
RANK = """
import http.client, json, sys, time
from urllib.parse import urlsplit
relay = http.client.HTTPConnection(urlsplit(sys.argv[1]).netloc)
headers = {"Authorization": "Bearer token", "Content-Type": "application/json"}
taken = []
for step in range(int(sys.argv[2])):
    point = {"run_id": "job", "key": "loss", "value": step / 7, "timestamp": step, "step": step}
    body = json.dumps(point)
    started = time.perf_counter()
    relay.request("POST", "/api/2.0/mlflow/runs/log-metric", body, headers)
    relay.getresponse().read()
    taken.append(time.perf_counter() - started)
print(json.dumps(taken))
"""


class Torchyard:
    """The benchmark's own; jobs are asked for over its API."""

    def __init__(self, variables: dict[str, str]) -> None:
        self._variables = variables
        self._home = Path(variables["TORCHYARD_HOME"])

    def loop(self, seconds: float, *options: str, past_relay: bool = False) -> str:
        """Start a job; returns its name."""
        name = f"loop-{next(_names)}-{os.getpid()}"
        steps = int(seconds * 1000 / (WORK_MS + DEVICE_MS))
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

    def steps(self, name: str) -> list[list[float]]:
        """What each step took, once the job has ended."""
        run([YARD, "job", "stream", "-n", name], self._variables)
        with self._open(f"jobs/{name}/files/outputs/steps.json") as answer:
            found: list[list[float]] = json.load(answer)
        return found

    def kill_server_while(self, name: str) -> float:
        """Until the loop is over; returns since when, in seconds since 1970."""
        while not (work := self._work(name)):
            time.sleep(0.1)
        # The loop first finds out how fast this machine is and imports mlflow.
        time.sleep(4.0)
        pid = self._server()["pid"]
        os.kill(pid, signal.SIGKILL)
        since = time.time()
        while not (work / "outputs/steps.json").exists():
            time.sleep(0.1)
        run([YARD, "server", "start"], self._variables)
        return since

    def _work(self, name: str) -> Path | None:
        with self._open(f"jobs/{name}") as answer:
            if json.load(answer)["status"] != "Running":
                return None
        for plan in (self._home / "scratch").glob("*/plan.json"):
            if json.loads(plan.read_text())["job"] == name:
                return plan.parent / "node-0" / "work"
        return None

    def _server(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self._home / "server.json").read_text())
        return found

    def _open(self, path: str) -> Any:
        token = (self._home / "token").read_text().strip()
        return urllib.request.urlopen(
            urllib.request.Request(
                f"{self._server()['url']}/v1/workspaces/default/{path}",
                headers={"Authorization": f"Bearer {token}"},
            ),
            timeout=60,
        )


def figures_of(steps: list[list[float]], logs: bool = True) -> dict[str, float]:
    found = {
        "step_median_ms": at(0.5, [one[1] for one in steps]) * 1000,
        "step_p99_ms": at(0.99, [one[1] for one in steps]) * 1000,
    }
    if logs:
        found["log_metrics_median_ms"] = at(0.5, [one[2] for one in steps]) * 1000
        found["log_metrics_p99_ms"] = at(0.99, [one[2] for one in steps]) * 1000
    return found


def at(share: float, values: list[float]) -> float:
    return sorted(values)[int(len(values) * share)]


def through_relay(yard: Torchyard, seconds: float) -> dict[str, float]:
    return figures_of(yard.steps(yard.loop(seconds)))


def server_away(yard: Torchyard, seconds: float) -> dict[str, float]:
    name = yard.loop(seconds)
    since = yard.kill_server_while(name)
    return figures_of([one for one in yard.steps(name) if one[0] > since])


def past_relay(yard: Torchyard, seconds: float) -> dict[str, float]:
    return figures_of(yard.steps(yard.loop(seconds, past_relay=True)))


def no_logging(yard: Torchyard, seconds: float) -> dict[str, float]:
    return figures_of(yard.steps(yard.loop(seconds, "--no-logging")), logs=False)


def relay_alone(ranks: int) -> dict[str, float]:
    """Calls of bare HTTP from so many ranks at once."""
    calls = 4_000 // ranks
    with tempfile.TemporaryDirectory() as folder:
        relay = subprocess.Popen(
            [sys.executable, "-c", RELAY, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=clean_variables(),
        )
        assert relay.stdin is not None and relay.stdout is not None
        url = relay.stdout.readline().strip()
        before_s = processor_s(relay.pid)
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", RANK, url, str(calls)], stdout=subprocess.PIPE, text=True
            )
            for _ in range(ranks)
        ]
        taken = [one for each in processes for one in json.loads(each.communicate()[0])]
        used_s = processor_s(relay.pid) - before_s
        relay.kill()
        relay.wait()
    return {
        "call_median_us": at(0.5, taken) * 1e6,
        "call_p99_us": at(0.99, taken) * 1e6,
        "relay_processor_a_call_us": used_s / len(taken) * 1e6,
    }


def processor_s(pid: int) -> float:
    """What a process has used of the processor so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="of steps in each loop, logging left out"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--home", type=Path, help="kept, with its environment")
    arguments = parser.parse_args()
    seconds = arguments.seconds
    with temporary_yard(arguments.home) as variables:
        yard = Torchyard(variables)
        cases = [
            Case("through the relay", partial(through_relay, yard, seconds)),
            Case("the server killed meanwhile", partial(server_away, yard, seconds)),
            Case("past the relay, to the server", partial(past_relay, yard, seconds)),
            Case("logging nothing", partial(no_logging, yard, seconds)),
        ]
        what = f"{WORK_MS:g} ms of work and {DEVICE_MS:g} ms of waiting"
        title = f"A step of {what} that logs {METRICS} metrics with mlflow"
        compare(title, cases, arguments.rounds)
    cases = [Case("8 ranks", partial(relay_alone, 8)), Case("1 rank", partial(relay_alone, 1))]
    compare("The relay called by bare HTTP, one metric a call", cases, arguments.rounds)


if __name__ == "__main__":
    main()
