"""Random kills of what serves an endpoint: is every request answered, and how soon is it back?

    python tests/faults/endpoint_kills.py --kills 1000 --seed 7
    python tests/faults/endpoint_kills.py --kills 100 --instances 2 --kind instance --kind in_turn
    python tests/faults/endpoint_kills.py --requests 10000

While requests flow, one of the processes behind an endpoint is killed: a serving process, the
master of gunicorn, the server that waits in line, the instance's supervisor, the router, the server
of torchyard. `instance` kills every process of one instance, `in_turn` those of all instances, one
instance after another, and the server. Counted: requests that got anything but an answer, a 502 or
a 503; what is left over of instances; how long it took until another process of that kind answered,
or as many instances as before were ready; and the longest time in which nobody got a 200. A client
of a router that is killed loses its connection: that is counted by itself. With --requests, a
deployment's code is changed again and again while as many requests are sent: each must be answered,
with 200.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import http.client
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1]))

from end_to_end.yard_under_test import Yard
from faults.fault_site import ENDED, Site, having, made, percentile, until
from torchyard.endpoints.router import control
from torchyard.shared.processes import Process, read, send

KINDS = ("worker", "worker", "worker", "master", "master", "successor", "supervisor", "router",
         "server")  # fmt: skip
OF_INSTANCES = ("instance", "in_turn")
_ENDPOINT = "killed"
_CLIENTS = 3
# A request that takes longer hangs.
_HANG_S = 60.0
_BACK_S = 120.0
# Between a client's requests: they are many, and not all that the machine can do.
_PAUSE_S = 0.01
_SCORE = """
import json, os, time
def init():
    pass
def run(raw_data):
    time.sleep(0.005)
    return {{"worker": os.getpid(), "master": os.getppid(), "revision": {revision}}}
"""


@dataclass
class Counts:
    """What was answered, and how long each kind took to be back, in seconds."""

    statuses: collections.Counter[str] = field(default_factory=collections.Counter)
    wrong: list[str] = field(default_factory=list)
    cut_by_router: int = 0
    away_s: dict[str, list[float]] = field(default_factory=dict)
    # Between two answers with 200, by what was killed last.
    silence_s: dict[str, float] = field(default_factory=dict)
    missed: int = 0

    @property
    def kills(self) -> int:
        return sum(map(len, self.away_s.values()))


class Endpoint:
    """An endpoint of a site with one deployment, and clients that ask it."""

    def __init__(self, site: Site, folder: Path, instances: int) -> None:
        self.site, self.folder, self.instances = site, folder, instances
        self.yard = Yard(site.home)
        (folder / "code").mkdir()
        (folder / "blue.yml").write_text(
            json.dumps(
                {
                    "name": "blue",
                    "endpoint_name": _ENDPOINT,
                    "instance_count": instances,
                    "model": {"path": "./code"},
                    "code_configuration": {"code": "./code", "scoring_script": "score.py"},
                    # Those that meet a server that is being replaced wait for the next one.
                    "request_settings": {
                        "request_timeout_ms": 60_000,
                        "max_queue_wait_ms": 60_000,
                    },
                    "environment": {"conda_file": {"dependencies": ["python=3.11", "pip"]}},
                }
            )
        )
        self.write(1)
        self.yard("online-endpoint", "create", "-n", _ENDPOINT)
        self.yard(
            "online-deployment", "create", "-f", str(folder / "blue.yml"), "--all-traffic",
            timeout_s=600,
        )  # fmt: skip
        self._address = urlsplit(site.ask("GET", f"online-endpoints/{_ENDPOINT}")["scoring_uri"])
        self._key = site.ask("POST", f"online-endpoints/{_ENDPOINT}/keys", {})["primaryKey"]

    def write(self, revision: int) -> None:
        (self.folder / "code" / "score.py").write_text(_SCORE.format(revision=revision))

    def ask(self) -> tuple[int, Any]:
        """
        Raises:
            OSError: the connection broke, or no answer came in time.
        """
        address = self._address
        connection = http.client.HTTPConnection(
            address.hostname or "", address.port, timeout=_HANG_S
        )
        try:
            connection.request(
                "POST", address.path, b"{}", {"Authorization": f"Bearer {self._key}"}
            )
            answer = connection.getresponse()
            body = answer.read()
            return answer.status, json.loads(body)
        except http.client.HTTPException as error:
            raise ConnectionError(f"{type(error).__name__}: {error}") from error
        finally:
            connection.close()

    def jobs(self) -> list[str]:
        """Of the instances that are ready; those that wait or have ended are none."""
        path = f"online-endpoints/{_ENDPOINT}/deployments/blue"
        rows = self.site.patiently("GET", path)["instances"]
        return [row["job"] for row in rows if row["state"] == "Ready"]

    def router(self) -> int:
        return int(control.ask(self.site.home / "router", {"ask": "hello"})["pid"])

    @contextlib.contextmanager
    def load(self, counts: Counts, killing: list[str]) -> Iterator[None]:
        """Requests without a pause within the block.

        Args:
            killing: its last item is what was killed last and is not back.
        """
        is_over = threading.Event()
        lock = threading.Lock()
        answered_at = time.monotonic()

        def note_answer(kind: str) -> None:
            nonlocal answered_at
            now = time.monotonic()
            counts.silence_s[kind] = max(counts.silence_s.get(kind, 0.0), now - answered_at)
            answered_at = now

        def work() -> None:
            while not is_over.is_set():
                kind = killing[-1] if killing else ""
                problem = ""
                try:
                    status, body = self.ask()
                    outcome = str(status)
                    if status not in (200, 502, 503):
                        problem = f"{status}: {body}"
                except OSError as error:
                    outcome = type(error).__name__
                    problem = f"{outcome}: {error}"
                time.sleep(_PAUSE_S)
                kinds = {kind, killing[-1] if killing else ""}
                with lock:
                    counts.statuses[outcome] += 1
                    if outcome == "200":
                        note_answer(killing[-1] if killing else "")
                    if problem and "router" in kinds and "imed out" not in problem:
                        counts.cut_by_router += 1
                        time.sleep(0.02)
                    elif problem:
                        counts.wrong.append(f"during {kinds}: {problem}")

        threads = [threading.Thread(target=work) for _ in range(_CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            is_over.set()
            for thread in threads:
                thread.join()


@contextlib.contextmanager
def endpoint(instances: int = 1) -> Iterator[Endpoint]:
    with made() as site:
        folder = site.home / "files"
        folder.mkdir()
        yield Endpoint(site, folder, instances)


def run(
    kills: int,
    seed: int,
    kinds: Sequence[str] = KINDS,
    pause_s: float = 1.0,
    instances: int = 1,
) -> Counts:
    """Do it; the same seed asks for the same kills.

    Args:
        pause_s: at most so long between what is back and the next kill.
    """
    counts = Counts()
    chance = random.Random(seed)
    plan = [kinds[number % len(kinds)] for number in range(kills)]
    chance.shuffle(plan)
    with endpoint(instances) as there:
        killing: list[str] = []
        until(lambda: len(there.jobs()) == instances, _BACK_S, "all instances are ready", 0.1)
        with there.load(counts, killing):
            for kind in plan:
                if kind in OF_INSTANCES:
                    _kill_instances(there, kind, chance, killing, counts)
                else:
                    _kill(there, kind, killing, counts)
                time.sleep(chance.random() * pause_s)
        counts.wrong += _left_over(there)
    return counts


def _kill_instances(
    there: Endpoint, kind: str, chance: random.Random, killing: list[str], counts: Counts
) -> None:
    jobs = there.jobs()
    chance.shuffle(jobs)
    victims = jobs if kind == "in_turn" else jobs[:1]
    killing.append(kind)
    began = time.monotonic()
    for job in victims:
        for scratch in {node.parent for node in there.site.nodes(job)}:
            for process in having(str(scratch)):
                send(process.pid, process.start_time, signal.SIGKILL)
        time.sleep(chance.random() * 0.5)
    if kind == "in_turn":
        there.site.kill()
        there.site.start()

    def are_back() -> bool:
        ready = there.jobs()
        return len(ready) == there.instances and not set(victims) & set(ready)

    until(are_back, _BACK_S, f"{kind}: as many instances as before are ready", 0.05)
    _note_return(kind, began, killing, counts)


def _left_over(there: Endpoint) -> list[str]:
    """Jobs of instances that go on and are none of the deployment's, and processes of those."""
    path = f"online-endpoints/{_ENDPOINT}/deployments/blue"

    def others() -> list[str]:
        own = {row["job"] for row in there.site.patiently("GET", path)["instances"]}
        listed = there.site.patiently("GET", "jobs?limit=1000")["value"]
        going = {job["name"] for job in listed if job["status"] not in ENDED}
        scratches = (there.site.home / "scratch").glob("*/plan.json")
        going |= {json.loads(plan.read_text())["job"] for plan in scratches}
        return sorted(going - own)

    with contextlib.suppress(AssertionError):
        until(lambda: not others(), _BACK_S, "what was killed has ended", 0.2)
    return [f"left over: {name}" for name in others()]


def _kill(there: Endpoint, kind: str, killing: list[str], counts: Counts) -> None:
    before = _answer(there)
    victim = _victim(there, kind, before)
    if victim is None and kind != "server":
        counts.missed += 1
        return
    killing.append(kind)
    began = time.monotonic()
    if kind == "server":
        there.site.kill()
        there.site.start()
    elif victim is not None:
        send(victim.pid, victim.start_time, signal.SIGKILL)
        if kind == "router":
            until(lambda: _is_router_back(there, victim.pid), _BACK_S, "the router is back")
        elif kind != "successor":
            # A worker that lost its master may still answer once.
            name = "worker"
            until(lambda: _answer(there)[name] != before[name], _BACK_S, f"{kind} is back", 0.005)
    _note_return(kind, began, killing, counts)


def _note_return(kind: str, began: float, killing: list[str], counts: Counts) -> None:
    counts.away_s.setdefault(kind, []).append(time.monotonic() - began)
    # What was asked before it was back ends before the next one is killed.
    time.sleep(0.1)
    killing.append("")


def _answer(there: Endpoint) -> dict[str, int]:
    """Who answers a request, as soon as it is answered."""
    deadline = time.monotonic() + _BACK_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            status, body = there.ask()
            if status == 200:
                answer: dict[str, int] = body
                return answer
        time.sleep(0.005)
    raise AssertionError("nobody answers")


def _is_router_back(there: Endpoint, before: int) -> bool:
    with contextlib.suppress(OSError):
        return there.router() != before and there.ask()[0] == 200
    return False


def _victim(there: Endpoint, kind: str, answer: dict[str, int]) -> Process | None:
    if kind == "router":
        return read(there.router())
    if kind in ("worker", "master"):
        return read(answer[kind])
    master = read(answer["master"])
    if master is None:
        return None
    if kind == "supervisor":
        return read(master.parent)
    for name in os.listdir("/proc"):
        process = read(int(name)) if name.isdigit() else None
        if process is not None and process.parent == master.parent and process.pid != master.pid:
            return process
    return None


def update(requests: int, limit_s: float = 900.0) -> Counts:
    """Change the deployment's code, again and again, until as many requests were answered."""
    counts = Counts()
    with endpoint() as there, there.load(counts, []):
        revision = 1
        deadline = time.monotonic() + limit_s
        while sum(counts.statuses.values()) < requests or revision == 1:
            assert time.monotonic() < deadline, counts.statuses
            revision += 1
            there.write(revision)
            began = time.monotonic()
            there.yard("online-deployment", "update", "-f", str(there.folder / "blue.yml"))
            until(lambda n=revision: _answer(there)["revision"] == n, _BACK_S, "the new code")  # type: ignore[misc]
            counts.away_s.setdefault("update", []).append(time.monotonic() - began)
    counts.wrong += [
        f"{number} times {status}" for status, number in counts.statuses.items() if status != "200"
    ]
    return counts


def report(counts: Counts) -> str:
    lines = [
        f"{counts.kills} kills or updates, {counts.missed} with nobody to kill; answers: "
        f"{dict(counts.statuses)}",
        f"cut off with a router that was killed: {counts.cut_by_router}",
        f"wrong: {len(counts.wrong)}",
        *(f"  {line}" for line in counts.wrong[:20]),
    ]
    for kind, seconds in sorted(counts.away_s.items()):
        lines.append(
            f"{kind}: {len(seconds)} times, back after median {percentile(seconds, 0.5):.2f} s, "
            f"p99 {percentile(seconds, 0.99):.2f} s, longest {max(seconds):.2f} s"
        )
    silences = sorted(((kind or "nothing", f"{s:.2f} s") for kind, s in counts.silence_s.items()))
    lines.append(f"longest without an answer of 200, after what: {dict(silences)}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--requests", type=int, default=0, help="during updates, without kills")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--kind", action="append", choices=sorted({*KINDS, *OF_INSTANCES}),
                        help="these only")  # fmt: skip
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--pause", type=float, default=1.0, help="longest, in seconds")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    if options.requests:
        counts = update(options.requests)
    else:
        kinds = options.kind or (KINDS if options.instances == 1 else (*KINDS, *OF_INSTANCES))
        counts = run(options.kills, options.seed, kinds, options.pause, options.instances)
    print(report(counts))
    return 1 if counts.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
