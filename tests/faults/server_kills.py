"""`kill -9` of the server at random moments while jobs run: is a job lost, wrong, or run twice?

    python tests/faults/server_kills.py --kills 500 --seed 7

Ranks print numbered lines and log numbered points through their relay, never caring for the
server. Counted afterwards: jobs that did not complete, that ran twice, whose log bytes or points
differ from what the ranks wrote; and how long after its return the server had news of a job again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.fault_site import ENDED, Site, made, percentile

RANKS = 2
SCRIPT = """
import http.client, json, os, sys, time
from urllib.parse import urlsplit
steps, started = int(sys.argv[1]), sys.argv[2]
rank = os.environ["RANK"]
with open(started, "a") as file:
    file.write(f"{rank}\\n")
relay = urlsplit(os.environ["MLFLOW_TRACKING_URI"])
line = http.client.HTTPConnection(relay.hostname, relay.port, timeout=60)
head = {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"],
        "Content-Type": "application/json"}
for step in range(steps):
    print(f"rank {rank} line {step}", flush=True)
    point = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": f"m{rank}", "value": step * 0.5,
             "timestamp": 1000 + step, "step": step}
    line.request("POST", "/api/2.0/mlflow/runs/log-metric", json.dumps(point), head)
    answer = line.getresponse()
    assert answer.status == 200, answer.read()
    answer.read()
    time.sleep(0.02)
os.makedirs("outputs", exist_ok=True)
with open(f"outputs/rank{rank}.txt", "w") as file:
    file.write("x" * (100000 + int(rank)))
"""


@dataclass
class Counts:
    """What the kills showed; times in seconds."""

    kills: int = 0
    jobs: int = 0
    wrong: list[str] = field(default_factory=list)
    ready_s: list[float] = field(default_factory=list)
    takeover_s: list[float] = field(default_factory=list)


@dataclass
class Workload:
    """The jobs that were submitted: the number of steps of each."""

    steps: dict[str, int] = field(default_factory=dict)


def run(
    kills: int, seed: int, at_once: int = 6, options: tuple[str, ...] = (), environ: Any = None
) -> Counts:
    """Do it; the same seed asks for the same jobs and pauses."""
    chance = random.Random(seed)
    counts, workload = Counts(), Workload()
    with made(options, environ) as site:
        prepare(site, at_once)
        for _ in range(kills):
            keep_busy(site, workload, chance, at_once)
            time.sleep(chance.random() * 1.5)
            site.kill()
            time.sleep(chance.random() * chance.choice((0.1, 1.5)))
            _come_back(site, workload, counts)
            counts.kills += 1
        counts.jobs = len(workload.steps)
        counts.wrong = all_wrong(site, workload)
    return counts


def keep_busy(
    site: Site, workload: Workload, chance: random.Random, at_once: int, limit: int | None = None
) -> int:
    """Submit jobs until one waits, `most` in all; returns how many have not ended."""
    listed = site.patiently("GET", "jobs?limit=1000")["value"]
    count = sum(job["status"] not in ENDED for job in listed)
    for _ in range(at_once + 1 - count):
        if len(workload.steps) == limit:
            break
        steps = chance.randrange(20, 200)
        name = f"job-{len(workload.steps)}"
        workload.steps[name] = steps
        started = site.home / f"{name}.started"
        site.submit(
            {
                "name": name,
                "command": f"python {site.home}/script.py {steps} {started}",
                "compute": "faulty",
                "distribution": {"type": "pytorch", "process_count_per_instance": RANKS},
            }
        )
        count += 1
    return count


def prepare(site: Site, at_once: int) -> None:
    """The cluster and the script of the jobs."""
    cluster = {"name": "faulty", "type": "amlcompute", "max_instances": at_once}
    site.ask("PUT", "computes/faulty", cluster)
    (site.home / "script.py").write_text(SCRIPT)


def all_wrong(site: Site, workload: Workload) -> list[str]:
    """What is wrong with any of the jobs, once all have ended."""
    for name in workload.steps:
        site.wait(name, 240)
    return [
        f"{name}: {why}"
        for name, steps in workload.steps.items()
        for why in wrong(site, name, steps)
    ]


def _come_back(site: Site, workload: Workload, counts: Counts) -> None:
    site.start()
    began = time.monotonic()
    counts.ready_s.append(site.ready_s)
    listed = site.patiently("GET", "jobs?limit=1000")["value"]
    running = [job["name"] for job in listed if job["status"] == "Running"]
    before = {name: news(site, name) for name in running}
    while before and time.monotonic() < began + 10.0:
        if any(news(site, name) != seen for name, seen in before.items()):
            counts.takeover_s.append(time.monotonic() - began)
            return
        time.sleep(0.02)


def news(site: Site, name: str) -> tuple[Any, ...]:
    """Whatever changes when a worker is heard: status, and the size of its logs."""
    files = site.patiently("GET", f"jobs/{name}/files")["value"]
    return site.job(name)["status"], *((file["path"], file["size_bytes"]) for file in files)


def wrong(site: Site, name: str, steps: int) -> list[str]:
    job = site.job(name)
    if job["status"] != "Completed":
        return [f"{job['status']}: {job['error']}, {_worker_log(site, name)}"]
    problems = []
    started = (site.home / f"{name}.started").read_text().split()
    if sorted(started) != [str(rank) for rank in range(RANKS)] or job["attempt"] != 1:
        problems.append(f"ranks started: {started}, attempt {job['attempt']}")
    for rank in range(RANKS):
        log = site.ask("GET", f"jobs/{name}/files/user_logs/std_log_process_{rank}.txt")
        if log.decode() != "".join(f"rank {rank} line {step}\n" for step in range(steps)):
            problems.append(f"rank {rank}: {len(log)} bytes of log are not what it printed")
        query = urlencode({"run_id": name, "metric_key": f"m{rank}"})
        metrics = site.ask("GET", f"/api/2.0/mlflow/metrics/get-history?{query}")["metrics"]
        points = sorted((point["step"], point["value"]) for point in metrics)
        if points != [(step, step * 0.5) for step in range(steps)]:
            problems.append(f"rank {rank}: {len(points)} points of {steps}")
        output = site.ask("GET", f"jobs/{name}/files/outputs/rank{rank}.txt")
        if len(output) != 100000 + rank:
            problems.append(f"rank {rank}: {len(output)} bytes of output")
    return problems


def _worker_log(site: Site, name: str) -> str:
    for file in site.ask("GET", f"jobs/{name}/files")["value"]:
        if file["path"].endswith("system_logs/node-0.log"):
            log: bytes = site.ask("GET", f"jobs/{name}/files/{file['path']}")
            return log.decode(errors="replace")[-1000:]
    return "its worker said nothing"


def report(counts: Counts) -> str:
    lines = [f"{counts.kills} kills, {counts.jobs} jobs: {len(counts.wrong)} things wrong"]
    lines += [f"  {line}" for line in counts.wrong]
    for title, times in (("server ready", counts.ready_s), ("news of a job", counts.takeover_s)):
        if times:
            lines.append(
                f"{title} after a start: median {percentile(times, 0.5):.2f} s, "
                f"p99 {percentile(times, 0.99):.2f} s, of {len(times)}"
            )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    counts = run(options.kills, options.seed)
    print(report(counts))
    return 1 if counts.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
