"""Random kills, cancels and crashes of ranks, workers and supervisors: what is left afterwards?

    python tests/faults/kills.py --rounds 1000 --seed 7

Each round is a job of 2 nodes and 8 ranks that hide children in every known way; at a random
moment one random fault comes. Counted: processes of the job that live on, decoys that died, and
how long it took until the last process of the job was gone.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.fault_site import ENDED, Site, having, made, percentile, until
from torchyard.shared.processes import Process, send

GRACE_S = 10.0
AFTER_GRACE_S = 5.0
# Children in sessions of their own, with no environment, with a parent that is gone, renamed.
HIDE = """
setsid sleep {mark}1 & env -i setsid sleep {mark}2 & (setsid env -i sh -c 'sleep {mark}3; :' &)
(exec -a innocent sleep {mark}4) & sh -c 'sleep {mark}5 & sleep {mark}6 & wait' &
"""
DEAF = "trap '' TERM; (trap '' TERM; sleep {mark}7; sleep {mark}8) &\n"
READY = "touch {ready}/$RANK\n"
ENDS = {
    "sleep": "sleep {mark}9; wait",
    "exit": "sleep 0.{delay}; if [ $RANK = {victim} ]; then exit 3; fi; sleep {mark}9",
    "signal": "sleep 0.{delay}; if [ $RANK = {victim} ]; then kill -{signal} $$; fi; sleep {mark}9",
}
FAULTS = (
    "exit",
    "signal",
    "kill_rank",
    "kill_worker",
    "kill_supervisor",
    "kill_both",
    "stop_then_kill_worker",
    "cancel",
    "cancel_at_start",
    "timeout",
)


@dataclass
class Counts:
    """What the rounds showed; times in seconds from the fault to the last process's end."""

    faults: collections.Counter[str] = field(default_factory=collections.Counter)
    left: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    obedient_s: list[float] = field(default_factory=list)
    deaf_s: list[float] = field(default_factory=list)
    decoys_killed: int = 0
    cgroups_left: int = 0


class Decoys:
    """Bystanders: processes that look like a job's, of nobody's job."""

    def __init__(self, count: int = 12) -> None:
        self._processes = [
            subprocess.Popen(
                ["sleep", "86400"] if number % 2 else ["sh", "-c", "sleep 86399; :"],
                env={**os.environ, "TORCHYARD_ATTEMPT": _decoy(number), "RANK": str(number)},
                start_new_session=bool(number % 3),
            )
            for number in range(count)
        ]

    def dead(self) -> int:
        return sum(process.poll() is not None for process in self._processes)

    def end(self) -> None:
        for number, process in enumerate(self._processes):
            for child in having(_decoy(number)):
                send(child.pid, child.start_time, signal.SIGKILL)
            process.wait()


def _decoy(number: int) -> str:
    # Of this run: another beside it has its own.
    return f"decoy{os.getpid()}-{number}:0"


def run(rounds: int, seed: int, at_once: int = 4, faults: Sequence[str] = FAULTS) -> Counts:
    """Do it; the same seed asks for the same faults."""
    counts = Counts()
    chance = random.Random(seed)
    plans = [(number, chance.choice(faults), chance.getrandbits(32)) for number in range(rounds)]
    lock = threading.Lock()
    decoys = Decoys()
    try:
        with made() as site:
            cluster = {"name": "faulty", "type": "amlcompute", "max_instances": 2 * at_once}
            site.ask("PUT", "computes/faulty", cluster)
            with ThreadPoolExecutor(at_once) as pool:
                rounds_done = [pool.submit(_round, site, *plan, counts, lock) for plan in plans]
            for done in rounds_done:
                done.result()
            counts.cgroups_left = _cgroups_left(site)
        counts.decoys_killed = decoys.dead()
    finally:
        decoys.end()
    return counts


def _round(
    site: Site, number: int, fault: str, seed: int, counts: Counts, lock: threading.Lock
) -> None:
    chance = random.Random(seed)
    # `sleep` takes it for a very long time; nobody else has it among its arguments.
    mark = f"98{os.getpid() % 100000:05d}{number:05d}"
    deaf = chance.random() < 0.1
    ready = site.home / f"ready-{number}"
    ready.mkdir()
    script = (DEAF if deaf else "") + HIDE + READY + ENDS.get(fault, ENDS["sleep"])
    command = script.format(
        mark=mark,
        ready=ready,
        delay=chance.randrange(10),
        victim=chance.randrange(8),
        signal=chance.choice(("SEGV", "ABRT", "KILL", "BUS", "KILL" if deaf else "TERM")),
    )
    job = {
        "name": f"round-{number}",
        "command": command,
        "compute": "faulty",
        "distribution": {"type": "pytorch", "process_count_per_instance": 4},
        "resources": {"instance_count": 2},
        **({"limits": {"timeout": 1}} if fault == "timeout" else {}),
    }
    name = site.submit(job)
    # A fault that the ranks cause themselves happens within this time.
    fault_delay_s = {"exit": 1.0, "signal": 1.0, "timeout": 1.5}.get(fault, 0.0)

    def under_way() -> bool:
        # On a busy machine a rank's own fault happens before the last rank has started.
        return len(list(ready.iterdir())) == 8 or (
            fault_delay_s > 0 and site.job(name)["status"] in ENDED
        )

    if fault != "cancel_at_start":
        until(under_way, 120, f"{name}: all ranks run", every_s=0.1 if fault_delay_s else 0.02)
    time.sleep(chance.random() * 0.5)
    began = time.monotonic()
    _do(site, name, fault, mark, chance)
    limit_s = fault_delay_s + AFTER_GRACE_S + (GRACE_S if deaf else AFTER_GRACE_S)
    deadline = began + limit_s
    ended = site.wait(name, 60, f"after {fault}{' deaf' if deaf else ''}")
    # The process that was killed last may still be dying, however late it is.
    deadline = max(deadline, time.monotonic() + 1.0)
    while (alive := having(mark)) and time.monotonic() < deadline:
        time.sleep(0.02)
    took_s = time.monotonic() - began
    expected = ("Canceled",) if fault.startswith("cancel") else ("Failed",)
    with lock:
        counts.faults[fault] += 1
        (counts.deaf_s if deaf else counts.obedient_s).append(max(0.0, took_s - fault_delay_s))
        if alive:
            counts.left.append(f"{name} {fault}{' deaf' if deaf else ''}: {len(alive)} left")
            for process in alive:
                send(process.pid, process.start_time, signal.SIGKILL)
        if ended["status"] not in expected:
            counts.wrong.append(f"{name} {fault}: {ended['status']}, {ended['error']}")


def _do(site: Site, name: str, fault: str, mark: str, chance: random.Random) -> None:
    if fault.startswith("cancel"):
        site.patiently("POST", f"jobs/{name}/cancel", {})
        return
    if fault == "kill_rank":
        victims = having(mark)
        victim = chance.choice(_ranks(victims))
        send(victim.pid, victim.start_time, signal.SIGKILL)
        return
    if fault in ("exit", "signal", "timeout"):
        return
    node = chance.choice(site.nodes(name))
    who = json.loads((node / "worker.json").read_text())
    worker, supervisor = who["pid"], who["supervisor"]["pid"]
    with contextlib.suppress(ProcessLookupError):
        if fault == "kill_supervisor":
            os.kill(supervisor, signal.SIGKILL)
        elif fault == "kill_worker":
            os.kill(worker, signal.SIGKILL)
        elif fault == "stop_then_kill_worker":
            os.kill(worker, signal.SIGSTOP)
            time.sleep(0.1)
            os.kill(worker, signal.SIGKILL)
        else:
            os.kill(supervisor, signal.SIGSTOP)
            os.kill(worker, signal.SIGKILL)
            os.kill(supervisor, signal.SIGKILL)


def _ranks(members: list[Process]) -> list[Process]:
    """Those whose death is a rank's: the shells that the worker started itself."""
    parents = {process.pid: process.parent for process in members}
    return [
        process for process in members if parents.get(process.parent) is None and _is_shell(process)
    ]


def _is_shell(process: Process) -> bool:
    with contextlib.suppress(OSError):
        environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        return arguments[1:2] == [b"-c"] and any(v.startswith(b"RANK=") for v in environment)
    return False


def _cgroups_left(site: Site) -> int:
    """How many of the site's nodes still have a cgroup; supervisors remove the last ones now."""
    with contextlib.closing(sqlite3.connect(site.home / "torchyard.db")) as records:
        attempts = [attempt for (attempt,) in records.execute("SELECT id FROM attempts")]
    expected = {f"torchyard-node-{attempt}-{node}" for attempt in attempts for node in (0, 1)}
    deadline = time.monotonic() + 30.0
    while left := expected & _cgroups():
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return len(left)


def _cgroups() -> set[str]:
    # Unlike `rglob` it takes a folder that goes meanwhile for an empty one.
    return {name for _, below, _ in os.walk("/sys/fs/cgroup") for name in below}


def report(counts: Counts) -> str:
    lines = [f"rounds {sum(counts.faults.values())}: {dict(sorted(counts.faults.items()))}"]
    lines.append(f"jobs with processes left: {len(counts.left)}")
    lines += [f"  {line}" for line in counts.left]
    lines.append(f"jobs that ended otherwise than they should: {len(counts.wrong)}")
    lines += [f"  {line}" for line in counts.wrong]
    lines.append(f"bystanders killed: {counts.decoys_killed}")
    lines.append(f"cgroups left: {counts.cgroups_left}")
    for title, times in (("obey SIGTERM", counts.obedient_s), ("ignore it", counts.deaf_s)):
        if times:
            lines.append(
                f"8 ranks on 2 nodes down, ranks that {title}: p50 {percentile(times, 0.5):.2f} s, "
                f"p99 {percentile(times, 0.99):.2f} s, longest {max(times):.2f} s"
            )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--fault", action="append", choices=FAULTS, help="these only")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    counts = run(options.rounds, options.seed, options.at_once, options.fault or FAULTS)
    print(report(counts))
    return 1 if any((counts.left, counts.wrong, counts.decoys_killed, counts.cgroups_left)) else 0


if __name__ == "__main__":
    sys.exit(main())
