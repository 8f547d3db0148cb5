"""Kill what runs of a job on a node without the server's disk, in its first two seconds.

`python tests/faults/node_kills.py --kills 30 --seed 1`

Owns: choosing the moment and the process, what must be true afterwards.
Leaves: the site to executors/remote_site.py.
Always: afterwards no process of the attempt is alive, its scratch folder is gone, and the job has
ended for a cause that fits what was killed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from executors import remote_site
from executors.remote_site import RemoteSite
from torchyard.jobs.records.types import Status
from torchyard.worker.system import processes

STARTER, SUPERVISOR, WORKER = "starter", "supervisor", "worker"
_TARGETS = (STARTER, SUPERVISOR, WORKER)
# The job's own end, or the end of what was killed as the server tells it.
_CAUSES = {
    STARTER: {"worker_lost", "stopped", "node_lost", "node_unusable"},
    SUPERVISOR: {"worker_lost", "stopped", "node_unusable"},
    WORKER: {"worker_lost", "node_unusable"},
}


@dataclass(frozen=True)
class Outcome:
    target: str
    after_s: float
    status: str
    code: str
    message: str
    trouble: str


def kill_one(site: RemoteSite, target: str, after_s: float) -> Outcome:
    job = site.submit(command="sleep 3")
    plan = site.plan(job)
    attempt = plan["attempt_id"]
    deadline = time.monotonic() + 60
    while attempt not in site.engine.nodes and time.monotonic() < deadline:
        time.sleep(0.002)
    starter = site.engine.nodes[attempt][0].pid
    time.sleep(after_s)
    pid = _pid(starter, target)
    if pid:
        os.kill(pid, signal.SIGKILL)
    ended = site.ended(job, 90)
    error = ended.error
    code = error.code if error else ""
    trouble = _trouble(site, attempt, starter)
    if pid and ended.status is not Status.COMPLETED and code not in _CAUSES[target]:
        trouble += f" wrong cause {code}"
    return Outcome(
        target if pid else f"{target} (not there)",
        after_s,
        ended.status.value,
        code,
        error.message if error else "",
        trouble,
    )


def _pid(starter: int, target: str) -> int:
    pid = starter
    for _ in range(_TARGETS.index(target)):
        children = [process.pid for process in processes.below(pid) if process.parent == pid]
        if not children:
            return 0
        pid = children[0]
    return pid


def _trouble(site: RemoteSite, attempt: str, starter: int) -> str:
    mark = processes.mark(attempt, 0)
    deadline = time.monotonic() + 60
    while True:
        living = [process.pid for process in processes.family(starter, mark)]
        scratch = list((site.node_folder / "scratch").glob("*"))
        if not (living or scratch) or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    text = f" processes left {living}" if living else ""
    return text + (f" scratch left {scratch}" if scratch else "")


def kill_many(site: RemoteSite, kills: int, seed: int) -> list[Outcome]:
    chance = random.Random(seed)
    return [kill_one(site, chance.choice(_TARGETS), chance.uniform(0.0, 2.0)) for _ in range(kills)]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, remote_site.serving(Path(folder)) as site:
        site.run(command="true")  # the environment is built and fetched once
        for _ in range(options.kills):
            outcome = kill_one(site, chance.choice(_TARGETS), chance.uniform(0.0, 2.0))
            wrong += bool(outcome.trouble)
            print(outcome, flush=True)
    print(f"{wrong} of {options.kills} left something or had a wrong cause")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
