"""What a training loop pays for its run history, with the server there and away.

    python benchmarks/relay.py [--seconds 20] [--rounds 3] [--home FOLDER]

A loop of fixed work and a wait, as for a device, logs 20 metrics a step with the real mlflow:
through the job's relay; through the relay while the server is killed; past the relay, to the
server; not at all. Once by one `log_metrics` a step, once by a `log_metric` for each. Then the
relay alone, called by bare HTTP from one rank and from eight: what is left is mlflow's own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from figures import Case, clean_variables, compare, processor_s, temporary_yard
from loop_jobs import DEVICE_MS, METRICS, WORK_MS, Step, Torchyard, percentiles_ms

RELAY = """
import sys
from pathlib import Path
from torchyard.shared.plan import LaunchPlan
from torchyard.shared.connection import Connection
from torchyard.shared.server_address import ServerAddress
from torchyard.worker.relay.relay import Relay
plan = LaunchPlan(
    attempt_id="a", attempt=1, job="job", workspace="w", experiment="e", command="", scratch="",
    server_url="http://127.0.0.1:9", report_token="none", run_token="token",
)
relay = Relay(Connection.of_plan(plan), plan, 0, Path(sys.argv[1]))
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


def figures_of(steps: list[Step]) -> dict[str, float]:
    calls = [call for step in steps for call in step.calls]
    return {
        **percentiles_ms("step", [step.took for step in steps]),
        **(percentiles_ms("call", calls) if calls else {}),
    }


def through_relay(yard: Torchyard, steps: int, *how: str) -> dict[str, float]:
    return figures_of(yard.steps(yard.loop(steps, *how)))


def server_away(yard: Torchyard, steps: int, *how: str) -> dict[str, float]:
    name = yard.loop(steps, *how)
    since = yard.kill_server_while(name)
    return figures_of([step for step in yard.steps(name) if step.began > since])


def past_relay(yard: Torchyard, steps: int, *how: str) -> dict[str, float]:
    return figures_of(yard.steps(yard.loop(steps, *how, past_relay=True)))


def no_logging(yard: Torchyard, steps: int) -> dict[str, float]:
    return figures_of(yard.steps(yard.loop(steps, "--no-logging")))


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
        taken = [seconds for each in processes for seconds in json.loads(each.communicate()[0])]
        used_s = processor_s(relay.pid) - before_s
        relay.kill()
        relay.wait()
    return {
        **percentiles_ms("call", taken),
        "relay_processor_a_call_ms": used_s / len(taken) * 1000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="of steps in each loop, logging left out"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--home", type=Path, help="kept, with its environment")
    arguments = parser.parse_args()
    steps = int(arguments.seconds * 1000 / (WORK_MS + DEVICE_MS))
    load = f"{WORK_MS:g} ms of work and {DEVICE_MS:g} ms of waiting"
    with temporary_yard(arguments.home) as variables:
        yard = Torchyard(variables)
        for how, words in ((), "log_metrics"), (("--singly",), "a log_metric each"):
            cases = [
                Case("through the relay", partial(through_relay, yard, steps, *how)),
                Case("the server killed meanwhile", partial(server_away, yard, steps, *how)),
                Case("past the relay, to the server", partial(past_relay, yard, steps, *how)),
                Case("logging nothing", partial(no_logging, yard, steps)),
            ]
            title = f"A step of {load}, {METRICS} metrics by {words} of mlflow"
            compare(title, cases, arguments.rounds)
    cases = [Case("8 ranks", partial(relay_alone, 8)), Case("1 rank", partial(relay_alone, 1))]
    compare("The relay called by bare HTTP, one metric a call", cases, arguments.rounds)


if __name__ == "__main__":
    main()
