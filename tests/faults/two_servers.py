"""Two servers on one PostgreSQL and one home, either killed or stopped for a while at random.

    python tests/faults/two_servers.py --jobs 300 --seed 7

The jobs are those of server_kills.py, and so is what is counted afterwards: jobs that did not
complete, that ran twice, whose log bytes or points differ from what the ranks wrote. Besides: how
long after a kill the other server looked after what the dead one did, and had news of its jobs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.fault_site import Site, new_home, percentile, started
from faults.server_kills import Workload, all_wrong, keep_busy, news, prepare
from postgres_server import PostgresServer

# Longer than a lease's term, so that the other server takes over from one that only stands still.
STALLS_S = (6.0, 8.0)
# News is only measured; the takeover must happen, on a busy machine too.
NEWS_S, TAKEOVER_S = 10.0, 30.0
_TAKEN_OVER = re.compile(r"jobs\.attempts\.takeover: (\d+) attempts")


@dataclass
class Pair(Site):
    """Two servers of one home; requests alternate between them, in case one is unreachable."""

    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    turn: int = 0

    def start(self) -> None:
        for _ in range(2):
            server, url = self.launch()
            self.servers.append(server)
            self.urls.append(url)

    def kill_one(self, number: int) -> None:
        self.servers[number].kill()
        self.servers[number].wait()

    def start_one(self, number: int) -> None:
        self.servers[number], self.urls[number] = self.launch()

    def ask(self, method: str, path: str, body: Any = None, timeout_s: float = 4.0) -> Any:
        """Raises:
        OSError: this server is unreachable, or refuses; the next request goes to the other.
        """
        self.turn = 1 - self.turn
        self.url = self.urls[self.turn]
        return super().ask(method, path, body, timeout_s)

    def end(self) -> None:
        for server in self.servers:
            if server.poll() is None:
                server.terminate()
        for server in self.servers:
            server.wait(60)
        super().end()


@dataclass
class Counts:
    """What the faults showed; times in seconds since the kill."""

    kills: int = 0
    stalls: int = 0
    jobs: int = 0
    taken_over: int = 0
    wrong: list[str] = field(default_factory=list)
    takeover_s: list[float] = field(default_factory=list)
    news_s: list[float] = field(default_factory=list)


def run(jobs: int, seed: int, at_once: int = 6, stalls: float = 0.1) -> Counts:
    """Do it; the same seed asks for the same jobs and pauses.

    Args:
        stalls: the share of faults that stop a server for a while instead of killing it.
    """
    import psycopg  # Not everyone who collects the tests has it.

    chance = random.Random(seed)
    counts, workload = Counts(), Workload()
    with contextlib.closing(PostgresServer()) as postgres:
        url = postgres.new_database()
        options = ("--shared", "--jobs-as-server-user", "--database", url)
        with started(Pair(new_home(), options)) as site:
            prepare(site, at_once)
            with psycopg.connect(url, autocommit=True) as records:
                while (
                    keep_busy(site, workload, chance, at_once, jobs) or len(workload.steps) < jobs
                ):
                    time.sleep(chance.random() * 1.5)
                    victim = chance.randrange(2)
                    if chance.random() < stalls:
                        _stall(site, victim, chance)
                        counts.stalls += 1
                    else:
                        _kill(site, victim, records, counts)
                        time.sleep(chance.random() * chance.choice((0.1, 1.5)))
                        site.start_one(victim)
                        counts.kills += 1
            counts.jobs = len(workload.steps)
            counts.wrong = all_wrong(site, workload)
            log = (site.home / "server.out").read_text()
            counts.taken_over = sum(int(number) for number in _TAKEN_OVER.findall(log))
            counts.wrong += [line for line in log.splitlines() if " ERROR " in line]
    return counts


def _stall(site: Pair, victim: int, chance: random.Random) -> None:
    site.servers[victim].send_signal(signal.SIGSTOP)
    time.sleep(chance.uniform(*STALLS_S))
    site.servers[victim].send_signal(signal.SIGCONT)


def _kill(site: Pair, victim: int, records: Any, counts: Counts) -> None:
    pid = site.servers[victim].pid
    theirs = "SELECT job_name FROM attempts JOIN servers ON servers.id = attempts.server"
    running = f"{theirs} WHERE servers.pid = %s AND ended_at IS NULL AND handle IS NOT NULL"
    jobs = [name for (name,) in records.execute(running.encode(), [pid])]
    owned = b"SELECT attempts.id FROM attempts JOIN servers ON servers.id = attempts.server"
    left = [
        attempt for (attempt,) in records.execute(owned + b" WHERE pid = %s AND NOT clean", [pid])
    ]
    dead = [
        server for (server,) in records.execute(b"SELECT id FROM servers WHERE pid = %s", [pid])
    ]
    site.kill_one(victim)
    began = time.monotonic()
    with _only(site, 1 - victim):
        before = {name: news(site, name) for name in jobs}
        still = b"SELECT count(*) FROM attempts WHERE id = ANY(%s) AND server = ANY(%s)"
        taken_over = not left
        limit_s = NEWS_S
        while (before or not taken_over) and time.monotonic() < began + limit_s:
            limit_s = NEWS_S if taken_over else TAKEOVER_S
            if not taken_over and records.execute(still, [left, dead]).fetchone() == (0,):
                counts.takeover_s.append(time.monotonic() - began)
                taken_over = True
            for name in [name for name, seen in before.items() if news(site, name) != seen]:
                counts.news_s.append(time.monotonic() - began)
                del before[name]
            time.sleep(0.02)
        if not taken_over:
            counts.wrong.append(f"kill {counts.kills}: not taken over within {TAKEOVER_S:.0f} s")


@contextlib.contextmanager
def _only(site: Pair, number: int) -> Iterator[None]:
    """Ask this one alone."""
    urls, site.urls = site.urls, [site.urls[number]] * 2
    try:
        yield
    finally:
        site.urls = urls


def report(counts: Counts) -> str:
    lines = [
        f"{counts.kills} kills and {counts.stalls} stalls of either of two servers, {counts.jobs} "
        f"jobs: {len(counts.wrong)} things wrong; {counts.taken_over} attempts taken over"
    ]
    lines += [f"  {line}" for line in counts.wrong]
    for title, times in (("takeover", counts.takeover_s), ("news of a job", counts.news_s)):
        if times:
            lines.append(
                f"{title} after a kill: median {percentile(times, 0.5):.2f} s, "
                f"p99 {percentile(times, 0.99):.2f} s, of {len(times)}"
            )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}, pid {os.getpid()}", flush=True)
    counts = run(options.jobs, options.seed)
    print(report(counts))
    return 1 if counts.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
