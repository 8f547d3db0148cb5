"""Random kills in the first two seconds of a launch: is a job stuck, or its cause wrong?

    python tests/faults/launch_kills.py --kills 300 --seed 7

Each round is a job of 2 nodes and 4 ranks that hold connections to each other. Within two seconds
of its launch one process of it is killed or asked to end: a supervisor, a worker, both, a rank, a
recovery worker; in half of the rounds the server is killed at that moment too, and started again
up to three seconds later. Counted: jobs that have not ended 30 s after that, and causes that name
another node, another rank or another reason than the kill; a job that may be tried again must
complete.
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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.fault_site import ENDED, Site, made, percentile
from torchyard.shared.processes import Process, read, send
from worker.worker_programs import worker_programs

LIMIT_S = 120.0
FIRST_S = 2.0
_LONGEST_AWAY_S = 3.0
# Longer than the job takes by itself, so that none is called stuck that only was late.
_ROUND_S = 240.0
# Each rank holds a connection to rank 0, and one that is gone breaks it for the others, as in gloo.
SCRIPT = """
import os, socket, time
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDRESS = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
peers = []

def join():
    if RANK == 0:
        listener = socket.create_server(ADDRESS, backlog=64)
        while len(peers) < SIZE - 1:
            peers.append(listener.accept()[0])
        for peer in peers:
            peer.sendall(b"g")
        return
    while True:
        try:
            peers.append(socket.create_connection(ADDRESS))
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    if not peers[0].recv(1):
        raise ConnectionResetError("Connection closed by peer")

join()
print("joined", flush=True)
for step in range(30):
    if RANK == 0:
        for peer in peers:
            peer.sendall(b"s")
        time.sleep(0.05)
        continue
    received = peers[0].recv(1)
    if not received:
        raise ConnectionResetError("Connection closed by peer [127.0.0.1]:6105")
if RANK == 0:
    for peer in peers:
        peer.shutdown(socket.SHUT_WR)
"""
# What is hit by which signal.
KINDS = (
    "kill supervisor",
    "end supervisor",
    "kill worker",
    "end worker",
    "kill both",
    "kill rank",
    "end rank",
    "kill recovery worker",
    "server",
)
_CODES = {"kill rank": "killed", "end rank": "terminated"}


@dataclass(frozen=True)
class Victim:
    """The process that was hit; `rank` is -1 where it is none."""

    process: Process
    node: int
    rank: int = -1


@dataclass
class Counts:
    """What the rounds showed; times in seconds from the kill or the server's return."""

    kinds: collections.Counter[str] = field(default_factory=collections.Counter)
    stuck: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    missed: int = 0
    servers_killed: int = 0
    ended_s: list[float] = field(default_factory=list)


class Server:
    """The site's server, which some rounds kill while others use it.

    Nobody asks it anything while it does not run: its port may be another server's for that moment.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._lock = threading.Lock()

    def submit(self, job: dict[str, Any]) -> str:
        with self._lock:
            return self._site.submit(job)

    def job(self, name: str) -> dict[str, Any]:
        with self._lock:
            return self._site.job(name)

    def kill(self, away_s: float) -> None:
        with self._lock:
            self._site.kill()
            time.sleep(away_s)
            self._site.start()


def run(kills: int, seed: int, at_once: int = 3, kinds: Sequence[str] = KINDS) -> Counts:
    """Do it; the same seed asks for the same kills."""
    counts = Counts()
    chance = random.Random(seed)
    plans = [
        (number, kinds[number % len(kinds)], chance.getrandbits(32)) for number in range(kills)
    ]
    lock = threading.Lock()
    with made() as site:
        cluster = {"name": "faulty", "type": "amlcompute", "max_instances": 2 * at_once}
        site.ask("PUT", "computes/faulty", cluster)
        (site.home / "script.py").write_text(SCRIPT)
        server = Server(site)
        with ThreadPoolExecutor(at_once) as pool:
            rounds = [pool.submit(_round, site, server, *plan, counts, lock) for plan in plans]
        for done in rounds:
            done.result()
    return counts


def _round(
    site: Site,
    server: Server,
    number: int,
    kind: str,
    seed: int,
    counts: Counts,
    lock: threading.Lock,
) -> None:
    chance = random.Random(seed)
    tries = chance.choice((1, 1, 2))
    with_server = kind == "server" or chance.random() < 0.5
    delay_s, away_s = chance.random() * FIRST_S, chance.random() * _LONGEST_AWAY_S
    name = server.submit(
        {
            "name": f"round-{number}",
            "command": f"python {site.home}/script.py",
            "compute": "faulty",
            "distribution": {"type": "pytorch", "process_count_per_instance": 2},
            "resources": {"instance_count": 2},
            "properties": {
                "torchyard.retry.max_attempts": str(tries),
                **({"torchyard.retry.backoff_s": "0"} if tries > 1 else {}),
            },
        }
    )
    scratch = _scratch(site, name)
    time.sleep(delay_s)
    victim = None if kind == "server" else _hit(scratch, kind, chance)
    if with_server:
        server.kill(away_s)
    job, ended_s = _wait(server, name)
    fault = f"{name} {kind} after {delay_s:.2f} s{f', server away {away_s:.1f} s' * with_server}"
    with lock:
        counts.kinds[kind] += 1
        counts.servers_killed += with_server
        counts.missed += victim is None and kind != "server"
        counts.ended_s.append(ended_s)
        if ended_s > LIMIT_S or job["status"] not in ENDED:
            counts.stuck.append(
                f"{fault}: {job['status']} {ended_s:.0f} s after that; {_living(scratch)}"
            )
        problem = _wrong(job, kind, victim, tries)
        if problem:
            counts.wrong.append(f"{fault}: {problem}")


def _scratch(site: Site, job: str) -> Path:
    """The folder of the job's first attempt, once it is launched."""
    deadline = time.monotonic() + _ROUND_S
    while time.monotonic() < deadline:
        for node in site.nodes(job):
            return node.parent
        time.sleep(0.01)
    raise AssertionError(f"{job} was not launched")


def _hit(scratch: Path, kind: str, chance: random.Random) -> Victim | None:
    """Kill one process of the attempt; None where there was none of this kind."""
    signum = signal.SIGTERM if kind.startswith("end") else signal.SIGKILL
    program = kind.partition(" ")[2]
    if program == "recovery worker":
        return _hit_recovery(scratch, chance)
    candidates = _wait_for_victims(scratch, "worker" if program == "both" else program)
    if not candidates:
        return None
    victim = chance.choice(candidates)
    if program == "both":
        # Stopped first, so that neither sees the other's end.
        parent = read(victim.process.parent)
        targets = [process for process in (parent, victim.process) if process is not None]
        for process in targets:
            _send(process, signal.SIGSTOP)
        for process in targets:
            _send(process, signal.SIGKILL)
    else:
        _send(victim.process, signum)
    return victim


def _hit_recovery(scratch: Path, chance: random.Random) -> Victim | None:
    """Kill a worker, and after a moment the recovery worker that follows it."""
    candidates = _wait_for_victims(scratch, "worker")
    if not candidates:
        return None
    victim = chance.choice(candidates)
    _send(victim.process, signal.SIGKILL)
    deadline = time.monotonic() + 3.0
    while time.monotonic() < deadline:
        for other in _victims(scratch, "worker"):
            if other.node == victim.node and other.process.pid != victim.process.pid:
                time.sleep(chance.random() * 0.3)
                _send(other.process, signal.SIGKILL)
                return victim
        time.sleep(0.005)
    return victim


def _send(process: Process, signum: int) -> None:
    send(process.pid, process.start_time, signum)


def _living(scratch: Path) -> str:
    """What is left of an attempt, for one that is stuck."""
    lines = []
    for process in ("supervisor", "worker", "rank"):
        lines += [f"{process} of node {victim.node}" for victim in _victims(scratch, process)]
    for file in sorted(scratch.glob("node-*/worker.log")):
        lines.append(f"{file.parent.name}: {file.read_text(errors='replace')[-500:]}")
    for file in sorted(scratch.glob("node-*/spool/events.jsonl")):
        lines.append(f"{file.parent.parent.name}: {file.read_text(errors='replace')[-1500:]}")
    for file in sorted(scratch.glob("node-*/user_logs/*")):
        lines.append(f"{file.name}: {file.read_text(errors='replace')[-300:]}")
    return "; ".join(lines) or "nothing of it lives"


def _wait_for_victims(scratch: Path, process: str) -> list[Victim]:
    deadline = time.monotonic() + FIRST_S
    while time.monotonic() < deadline:
        candidates = _victims(scratch, process)
        if candidates:
            return candidates
        time.sleep(0.005)
    return []


def _victims(scratch: Path, program: str) -> list[Victim]:
    """The living supervisors, workers or ranks of an attempt."""
    workers = worker_programs(scratch)
    supervisors = {pid for pid, (process, _) in workers.items() if process.parent not in workers}
    if program == "supervisor":
        return [Victim(workers[pid][0], workers[pid][1]) for pid in supervisors]
    inner = {pid: worker for pid, worker in workers.items() if pid not in supervisors}
    if program == "worker":
        return [Victim(process, node) for process, node in inner.values()]
    return [victim for pid, (_, node) in inner.items() for victim in _ranks(pid, node)]


def _ranks(worker: int, node: int) -> list[Victim]:
    """Ranks whose program has begun: before, they write to the worker's own log."""
    victims = []
    for pid in _pids():
        process = read(pid)
        if process is None or process.ended or process.parent != worker:
            continue
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            ranks = [entry[5:] for entry in variables if entry.startswith(b"RANK=")]
            if ranks:
                victims.append(Victim(process, node, int(ranks[0])))
    return victims


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _wait(server: Server, name: str) -> tuple[dict[str, Any], float]:
    """The job once it has ended, and how long that took from now on; other rounds' kills of the
    server count as well.
    """
    started = time.monotonic()
    while True:
        job = server.job(name)
        ended_s = time.monotonic() - started
        if job["status"] in ENDED or ended_s > _ROUND_S:
            return job, ended_s
        time.sleep(0.1)


def _wrong(job: dict[str, Any], kind: str, victim: Victim | None, tries: int) -> str:
    """What is wrong with the end of a job; empty if nothing is."""
    if job["status"] not in ENDED:
        return ""  # it is stuck, which is counted elsewhere
    error = job["error"] or {}
    answer = (
        f"{job['status']}, attempt {job['attempt']}: {error.get('code')}: {error.get('message')}"
    )
    if job["status"] == "Completed":
        return ""  # the kill came too late, or the next attempt made up for it
    if victim is None or tries > 1:
        return answer
    code = _CODES.get(kind, "worker_lost")
    subject = f"node {victim.node}" if victim.rank < 0 else f"rank {victim.rank} on node"
    if error.get("code") != code or subject not in str(error.get("message")):
        return f"{answer} (not `{code}` of {subject})"
    return ""


def report(counts: Counts) -> str:
    lines = [
        f"{sum(counts.kinds.values())} rounds: {dict(sorted(counts.kinds.items()))}; the server "
        f"killed in {counts.servers_killed}; nobody to kill in {counts.missed}",
        f"stuck over {LIMIT_S:.0f} s: {len(counts.stuck)}",
        *(f"  {line}" for line in counts.stuck),
        f"wrong ends and causes: {len(counts.wrong)}",
        *(f"  {line}" for line in counts.wrong),
        f"from the kill or the server's return to the job's end: median "
        f"{percentile(counts.ended_s, 0.5):.1f} s, p99 {percentile(counts.ended_s, 0.99):.1f} s, "
        f"longest {max(counts.ended_s):.1f} s",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=18)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--kind", action="append", choices=KINDS, help="these only")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    counts = run(options.kills, options.seed, options.at_once, options.kind or KINDS)
    print(report(counts))
    return 1 if counts.stuck or counts.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
