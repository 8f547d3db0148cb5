"""`kill -9` of the server at random moments while jobs run: is a job lost, wrong, or run twice?

    python tests/faults/server_kills.py --kills 500 --seed 7
    python tests/faults/server_kills.py --kills 100 --kind study --kind "study and server"
    python tests/faults/server_kills.py --kills 100 --with-runner

Ranks print numbered lines and log numbered points through their relay, never caring for the
server. Counted afterwards: jobs that did not complete, that ran twice, whose log bytes or points
differ from what the ranks wrote; and how long after its return the server had news of a job again.

`study` is the process in which Optuna runs for a sweep; where it is killed, a sweep runs beside the
jobs: each of its trials must run once, with parameters of its own. With a runner, which needs root,
the jobs are those of two people, each a Unix user, and the runner is killed, too: see
runner_faults.py. Processes that are left over are wrong.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults import runner_faults
from faults.fault_site import ENDED, Site, having, made, percentile, until
from torchyard.shared.processes import Process, send

KINDS = ("server", "study", "study and server")
_STUDY = "torchyard.sweeps.search.process"
_STUDY_S = 5.0
_TRIALS = 8
RANKS = 2
SCRIPT = """
import http.client, json, os, sys, time
from urllib.parse import urlsplit
steps, started = int(sys.argv[1]), sys.argv[2]
rank = os.environ.get("RANK", "0")
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

    kinds: collections.Counter[str] = field(default_factory=collections.Counter)
    missed: int = 0
    jobs: int = 0
    sweeps: int = 0
    wrong: list[str] = field(default_factory=list)
    ready_s: list[float] = field(default_factory=list)
    takeover_s: list[float] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return self.kinds.total()


@dataclass
class Workload:
    """The jobs that were submitted: the number of steps of each. `sweeps` are by their names."""

    steps: dict[str, int] = field(default_factory=dict)
    sweeps: list[str] = field(default_factory=list)


def run(
    kills: int,
    seed: int,
    at_once: int = 6,
    options: tuple[str, ...] = (),
    environ: Any = None,
    kinds: Sequence[str] = ("server",),
    site_of: Callable[..., AbstractContextManager[Site]] = made,
) -> Counts:
    """Do it; the same seed asks for the same jobs and pauses."""
    chance = random.Random(seed)
    counts, workload = Counts(), Workload()
    with site_of(options, environ) as site:
        prepare(site, at_once)
        for number in range(kills):
            kind = kinds[number % len(kinds)]
            keep_busy(site, workload, chance, at_once)
            if "study" in kind:
                keep_sweeping(site, workload)
            time.sleep(chance.random() * 1.5)
            if "study" in kind and not _kill_study(site):
                counts.missed += 1
            if "runner" in kind:
                site.kill_runner()
            if "server" in kind:
                site.kill()
            time.sleep(chance.random() * chance.choice((0.1, 1.5)))
            if "runner" in kind:
                site.start_runner()
            if "server" in kind:
                _come_back(site, workload, counts)
            counts.kinds[kind] += 1
        counts.jobs, counts.sweeps = len(workload.steps), len(workload.sweeps)
        counts.wrong = all_wrong(site, workload)
        counts.wrong += [why for name in workload.sweeps for why in wrong_sweep(site, name)]
        counts.wrong += left_over(site)
    return counts


def keep_sweeping(site: Site, workload: Workload) -> None:
    """Submit a sweep unless the last one goes on."""
    if workload.sweeps and site.job(workload.sweeps[-1])["status"] not in ENDED:
        return
    name = f"sweep-{len(workload.sweeps)}"
    workload.sweeps.append(name)
    command = f"python {site.files}/script.py 5 {site.files}/{name}.started ${{{{search_space.x}}}}"
    document = {
        "type": "sweep",
        "name": name,
        "trial": {"command": command, "environment": "python"},
        "compute": "faulty",
        "search_space": {"x": {"type": "uniform", "min_value": 0, "max_value": 1}},
        "sampling_algorithm": "bayesian",
        "objective": {"goal": "minimize", "primary_metric": "m0"},
        "limits": {"max_total_trials": _TRIALS, "max_concurrent_trials": 2},
    }
    site.patiently("POST", "jobs", document)


def wrong_sweep(site: Site, name: str) -> list[str]:
    job = site.wait(name, 300)
    if job["status"] != "Completed":
        return [f"{name}: {job['status']}: {job['error']}"]
    trials = site.ask("GET", f"sweeps/{name}/trials")["trials"]
    problems = []
    if sorted(trial["number"] for trial in trials) != list(range(_TRIALS)):
        problems.append(f"{name}: trials {sorted(trial['number'] for trial in trials)}")
    if len({json.dumps(trial["parameters"]) for trial in trials}) != len(trials):
        problems.append(f"{name}: two trials have the same parameters")
    starts = len((site.files / f"{name}.started").read_text().split())
    if starts != _TRIALS:
        problems.append(f"{name}: {starts} starts of {_TRIALS} trials")
    return problems


def _studies(site: Site) -> list[Process]:
    assert site.server is not None
    return [each for each in having(_STUDY) if each.parent == site.server.pid]


def _kill_study(site: Site) -> bool:
    """Whether there was one."""
    with contextlib.suppress(AssertionError):
        until(lambda: bool(_studies(site)), _STUDY_S, "Optuna runs")
    studies = _studies(site)
    for study in studies:
        send(study.pid, study.start_time, signal.SIGKILL)
    return bool(studies)


def left_over(site: Site) -> list[str]:
    """What of jobs and studies is left when all have ended."""

    def remaining() -> list[str]:
        scratches = [path.name for path in site.scratch.iterdir()]
        studies = [f"process {each.pid} of Optuna" for each in _studies(site)]
        of_jobs = [f"process {each.pid} of a job" for each in having(f"{site.files}/script.py")]
        return scratches + studies + of_jobs

    with contextlib.suppress(AssertionError):
        until(lambda: not remaining(), 60.0, "nothing is left", 0.2)
    return [f"left over: {what}" for what in remaining()]


def keep_busy(
    site: Site, workload: Workload, chance: random.Random, at_once: int, limit: int | None = None
) -> int:
    """Submit jobs until one waits, `most` in all; returns how many have not ended."""
    listed = site.patiently("GET", "jobs?limit=1000")["value"]
    count = sum(job["status"] not in ENDED and job["name"] in workload.steps for job in listed)
    for _ in range(at_once + 1 - count):
        if len(workload.steps) == limit:
            break
        steps = chance.randrange(20, 200)
        name = f"job-{len(workload.steps)}"
        workload.steps[name] = steps
        started = site.files / f"{name}.started"
        site.submit(
            {
                "name": name,
                "command": f"python {site.files}/script.py {steps} {started}",
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
    (site.files / "script.py").write_text(SCRIPT)


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
    started = (site.files / f"{name}.started").read_text().split()
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
    lines = [
        f"{counts.kills} kills: {dict(counts.kinds)}, in {counts.missed} no Optuna to kill; "
        f"{counts.jobs} jobs, {counts.sweeps} sweeps: {len(counts.wrong)} things wrong"
    ]
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
    parser.add_argument("--kind", action="append", choices=(*KINDS, *runner_faults.KINDS))
    parser.add_argument("--with-runner", action="store_true", help="as root")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    site_of, kinds = made, KINDS
    if options.with_runner:
        site_of, kinds = runner_faults.made_with_runner, runner_faults.KINDS
    counts = run(options.kills, options.seed, kinds=options.kind or kinds, site_of=site_of)
    print(report(counts))
    return 1 if counts.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
