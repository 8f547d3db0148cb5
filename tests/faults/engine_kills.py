"""Random kills on a real engine: is a job lost, wrongly failed or stuck, is a process left?

    python tests/faults/engine_kills.py ray --kills 200 --seed 7

In each round two jobs of two nodes are submitted, and two things are killed: at random moments of
the jobs' lives, half of them in the first second, or at a moment of a launch that the kind waits
for. Jobs may be tried again, unless everything that the round kills takes nothing from a job that
runs: then the first attempt must complete.

Counted: jobs that failed though they must complete, that did not end, that the server does not
know; processes of jobs that are left on any node 30 s after the jobs' ends; what the engine still
holds of them.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults import engine_sites
from faults.engine_sites import EngineSite
from faults.fault_site import ENDED, percentile

SITES: dict[str, Callable[[], AbstractContextManager[EngineSite]]] = {
    "ray": engine_sites.ray_site,
    "slurm": engine_sites.slurm_site,
    "joined": engine_sites.joined_site,
}
_JOBS = _KILLS = 2
_TRIES = 12
_FIRST_S, _JOB_S = 1.0, 5.0
STUCK_S, _GIVEN_UP_S = 120.0, 240.0
_LEFT_S = 30.0
# Ray's nodes on a busy machine, some of which give up while they start.
_WARM_S = 400.0
_SCRIPT = """\
import time
print("begun", flush=True)
for number in range(45):
    time.sleep(0.1)
print("counted", flush=True)
"""


@dataclass
class Counts:
    """What the rounds showed; each entry names round, kills and job."""

    kinds: collections.Counter[str] = field(default_factory=collections.Counter)
    missed: collections.Counter[str] = field(default_factory=collections.Counter)
    jobs: int = 0
    retried: int = 0
    attempts: int = 0
    failed: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    ended_s: list[float] = field(default_factory=list)

    @property
    def harm(self) -> list[str]:
        return [*self.failed, *self.stuck, *self.lost, *self.incomplete, *self.left]


@dataclass(frozen=True)
class Round:
    """`moments`: in seconds from the submission, less where the kind waits for a launch."""

    number: int
    kinds: tuple[str, ...]
    moments: tuple[float, ...]

    def __str__(self) -> str:
        kills = zip(self.kinds, self.moments, strict=True)
        return f"round {self.number} ({', '.join(f'{kind} at {at:.2f} s' for kind, at in kills)})"


def run(engine: str, kills: int, seed: int, kinds: Sequence[str] = ()) -> Counts:
    """Do it; the same seed asks for the same kills."""
    counts = Counts()
    chance = random.Random(seed)
    with SITES[engine]() as made:
        (made.site.home / "code").mkdir()
        _warm_up(made)
        for number in range((kills + _KILLS - 1) // _KILLS):
            planned = _plan(number, made, chance, kinds)
            began = time.monotonic()
            _round(planned, made, chance, counts)
            took_s = time.monotonic() - began
            print(f"{planned}: {took_s:.0f} s; harm so far: {len(counts.harm)}", flush=True)
        _look_at_engine(made, counts)
    return counts


def _plan(
    number: int, made: EngineSite, chance: random.Random, chosen_kinds: Sequence[str]
) -> Round:
    every = list(chosen_kinds or made.kills)
    first = every[number % len(every)]
    # In every other round all kinds are harmless if the first one is.
    others = [kind for kind in every if kind in made.harmless] if first in made.harmless else every
    kinds = (first, *(chance.choice(others) for _ in range(_KILLS - 1)))
    moments = [
        0.0
        if kind in made.at_launch
        else chance.random() * (_FIRST_S if chance.random() < 0.5 else _JOB_S)
        for kind in kinds
    ]
    ordered = sorted(zip(moments, kinds, strict=True))
    return Round(number, tuple(kind for _, kind in ordered), tuple(at for at, _ in ordered))


def _job(made: EngineSite, name: str, tries: int) -> dict[str, Any]:
    return {
        "name": name,
        "command": f"python {made.site.home}/main.py",
        "compute": "lab",
        "resources": {"instance_count": 2},
        "properties": {
            "torchyard.retry.max_attempts": str(tries),
            **({"torchyard.retry.backoff_s": "0"} if tries > 1 else {}),
        },
    }


def _warm_up(made: EngineSite) -> None:
    """The environment is built and carried to the nodes."""
    (made.site.home / "main.py").write_text(_SCRIPT)
    name = made.site.submit(_job(made, "warm", 1))
    deadline = time.monotonic() + _WARM_S
    while (job := made.site.job(name))["status"] not in ENDED and time.monotonic() < deadline:
        made.repair()
        time.sleep(0.3)
    assert job["status"] == "Completed", job


def _round(planned: Round, made: EngineSite, chance: random.Random, counts: Counts) -> None:
    made.repair()
    is_harmless = made.harmless.issuperset(planned.kinds)
    names = [f"round-{planned.number}-{job}" for job in range(_JOBS)]
    made.launches.begin()
    submitted = threading.Thread(target=_submit, args=(made, names, 1 if is_harmless else _TRIES))
    submitted.start()
    began = time.monotonic()
    for kind, at in zip(planned.kinds, planned.moments, strict=True):
        time.sleep(max(0.0, began + at - time.monotonic()))
        counts.kinds[kind] += 1
        counts.missed[kind] += not made.kills[kind](chance)
    submitted.join()
    for name in names:
        _judge(f"{planned}, {name}", name, made, counts)
    _look_at_nodes(str(planned), made, counts)


def _submit(made: EngineSite, names: Sequence[str], tries: int) -> None:
    for name in names:
        made.site.submit(_job(made, name, tries))


def _judge(where: str, name: str, made: EngineSite, counts: Counts) -> None:
    """What became of a job."""
    counts.jobs += 1
    began = time.monotonic()
    try:
        job = made.site.job(name)
        while job["status"] not in ENDED and time.monotonic() - began < _GIVEN_UP_S:
            made.repair()
            time.sleep(0.3)
            job = made.site.job(name)
    except AssertionError as error:
        counts.lost.append(f"{where}: {error}")
        return
    took_s = time.monotonic() - began
    counts.ended_s.append(took_s)
    counts.attempts += job["attempt"]
    counts.retried += job["attempt"] > 1
    state = f"{job['status']}, attempt {job['attempt']}, {job['error']}, {job['notices'][-3:]}"
    if took_s > STUCK_S:
        counts.stuck.append(f"{where}: {took_s:.0f} s after the kills: {state}")
        _tell("STUCK", counts.stuck[-1])
    if job["status"] not in ENDED:
        made.site.ask("POST", f"jobs/{name}/cancel", {})
    elif job["status"] != "Completed":
        counts.failed.append(f"{where}: {state}")
        _tell("FAILED", counts.failed[-1])
    elif missing := _missing(made, name):
        counts.incomplete.append(f"{where}: {missing}")
        _tell("INCOMPLETE", counts.incomplete[-1])


def _missing(made: EngineSite, name: str) -> str:
    """What the logs of a job that completed lack."""
    files = [file["path"] for file in made.site.ask("GET", f"jobs/{name}/files")["value"]]
    logs = [path for path in files if path.startswith("user_logs/")]
    texts = [made.site.ask("GET", f"jobs/{name}/files/{path}") for path in logs]
    complete = [text for text in texts if text == b"begun\ncounted\n"]
    return "" if len(complete) == 2 else f"logs of its two ranks: {texts}"


def _look_at_nodes(where: str, made: EngineSite, counts: Counts) -> None:
    deadline = time.monotonic() + _LEFT_S
    while (left := made.job_processes()) and time.monotonic() < deadline:
        time.sleep(0.2)
    for pid in left:
        counts.left.append(f"{where}: process {pid}: {_command(pid)[:300]}")
        _tell("LEFT", counts.left[-1])
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _look_at_engine(made: EngineSite, counts: Counts) -> None:
    deadline = time.monotonic() + _LEFT_S
    while (remaining := made.list_remaining()) and time.monotonic() < deadline:
        time.sleep(1)
    counts.left += [f"the engine holds {name}" for name in remaining]


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    return "it has ended since"


def _tell(title: str, where: str) -> None:
    print(f"{title}: {where}", flush=True)


def report(counts: Counts) -> str:
    kinds = sorted(counts.kinds.items())
    kills = ", ".join(f"{number} {kind}" for kind, number in kinds)
    missed = ", ".join(
        f"{number} {kind}" for kind, number in sorted(counts.missed.items()) if number
    )
    return "\n".join(
        [
            f"{sum(counts.kinds.values())} kills: {kills}; nothing to kill: {missed or 'never'}",
            f"{counts.jobs} jobs in {counts.attempts} attempts; {counts.retried} were tried again",
            f"wrongly failed {len(counts.failed)}, lost {len(counts.lost)}, stuck over "
            f"{STUCK_S:.0f} s {len(counts.stuck)}, logs incomplete {len(counts.incomplete)}, "
            f"left on nodes or in the engine {len(counts.left)}",
            *(f"  {line}" for line in counts.harm),
            f"from the last kill to a job's end: median {percentile(counts.ended_s, 0.5):.1f} s, "
            f"p99 {percentile(counts.ended_s, 0.99):.1f} s, longest {max(counts.ended_s):.1f} s",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=sorted(SITES))
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--kind", action="append", default=[], help="these only")
    options = parser.parse_args()
    # What runs is ended then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"seed {options.seed}", flush=True)
    counts = run(options.engine, options.kills, options.seed, options.kind)
    print(report(counts))
    return 1 if counts.harm else 0


if __name__ == "__main__":
    sys.exit(main())
