"""`kill -9` of the server, and of its PostgreSQL, while eight clients write run history.

    python tests/faults/history_kills.py --database postgres --kills 60 --pause 10 --seed 7

The clients write as MLflow's does: what is not answered, or answered with 503, is sent again. Half
of what they write goes to one run that all share. Counted afterwards: what was acknowledged and is
not there, what is there twice, what nobody wrote, and answers that no client should get.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import http.client
import json
import math
import random
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.fault_site import Site, made, percentile
from postgres_server import PostgresServer

WRITERS = 8
API = "/mlflow/default/api/2.0/mlflow/"
ODD = [math.nan, math.inf, -math.inf, -0.0, 1e308, 5e-324]
ON_SQLITE = ("server",)
ON_POSTGRES = ("server", "postgres", "postmaster", "backend", "both")
# Of a point as it is compared: a NaN is not itself, and -0.0 is not 0.0.
Told = tuple[int, int, str]


@dataclass
class Counts:
    """What the kills showed; `away_s` is how long a client's call was sent again and again."""

    kills: collections.Counter[str] = field(default_factory=collections.Counter)
    calls: int = 0
    again: int = 0
    points: int = 0
    wrong: list[str] = field(default_factory=list)
    away_s: list[float] = field(default_factory=list)


class Writer:
    """One client, in a thread of its own; what it was told is stored it writes down."""

    def __init__(self, site: Site, number: int, seed: int, shared: str, stop: threading.Event):
        self._site, self._number, self._shared, self._stop = site, number, shared, stop
        self._chance = random.Random(seed)
        self._line: http.client.HTTPConnection | None = None
        self._written = 0
        self.points: dict[tuple[str, str], list[Told]] = collections.defaultdict(list)
        self.params: dict[tuple[str, str], str] = {}
        self.tags: dict[tuple[str, str], str] = {}
        self.runs: list[str] = []
        self.calls = self.again = 0
        self.wrong: list[str] = []
        self.away_s: list[float] = []
        self.thread = threading.Thread(target=self._write, name=f"writer {number}")

    def _write(self) -> None:
        try:
            self._make_run()
            while not self._stop.is_set():
                run = self._chance.choice((self._shared, self.runs[-1]))
                self._chance.choices(
                    (self._metric, self._batch, self._param, self._tag, self._new_run),
                    weights=(10, 6, 2, 2, 1),
                )[0](run)
                time.sleep(self._chance.random() * 0.02)
        except Exception as error:
            self.wrong.append(f"writer {self._number} ended: {error!r}")
        finally:
            self._hang_up()

    # What is written

    def _point(self) -> dict[str, Any]:
        self._written += 1
        step = self._written
        if self._chance.random() < 0.1:
            step = self._chance.randrange(self._written)  # as a run does that is resumed
        value = self._chance.choice(ODD) if self._chance.random() < 0.05 else step / 7
        key = self._chance.choice(("all of them", f"of {self._number} @1 %"))
        # The number makes the point unique, whatever other writers write to this key.
        timestamp = 1000 * self._written + self._number
        return {"key": key, "value": json_number(value), "timestamp": timestamp, "step": step}

    def _record_point(self, run: str, point: dict[str, Any]) -> None:
        written = (point["step"], point["timestamp"], str(point["value"]))
        self.points[run, point["key"]].append(written)

    def _metric(self, run: str) -> None:
        point = self._point()
        self._post("runs/log-metric", {"run_id": run, **point})
        self._record_point(run, point)

    def _batch(self, run: str) -> None:
        points = [self._point() for _ in range(self._chance.randrange(1, 300))]
        names = [f"p{self._number} {self._written} {index}" for index in range(3)]
        rows = [{"key": name, "value": name.upper()} for name in names]
        self._post(
            "runs/log-batch", {"run_id": run, "metrics": points, "params": rows, "tags": rows}
        )
        for point in points:
            self._record_point(run, point)
        for row in rows:
            self.params[run, row["key"]] = self.tags[run, row["key"]] = row["value"]

    def _param(self, run: str) -> None:
        row = {"key": f"q{self._number} {self.calls}", "value": str(self._chance.random())}
        self._post("runs/log-parameter", {"run_id": run, **row})
        self.params[run, row["key"]] = row["value"]

    def _tag(self, run: str) -> None:
        row = {"key": f"t{self._number}", "value": str(self._chance.random())}
        self._post("runs/set-tag", {"run_id": run, **row})
        self.tags[run, row["key"]] = row["value"]

    def _new_run(self, run: str) -> None:
        self._make_run()

    def _make_run(self) -> None:
        # A relay names what makes something, so that it is made once though it is asked twice.
        name = f"{self._number}-{len(self.runs)}-{self._chance.getrandbits(64):x}"
        body = {"experiment_id": "0", "start_time": 1, "run_name": name}
        answer = self._post("runs/create", body, {"X-Torchyard-Request": name})
        self.runs.append(answer["run"]["info"]["run_id"])

    # How it is sent

    def _post(self, path: str, body: Any, more: dict[str, str] | None = None) -> Any:
        """Send it until it is answered; an answer that no client would get is an error."""
        self.calls += 1
        content = json.dumps(body)
        began: float | None = None
        pause_s = 0.02
        while True:
            try:
                status, answer = self._once(path, content, more or {})
            except (OSError, http.client.HTTPException):
                self._hang_up()
                status, answer = 503, b""
            if status == 200:
                break
            assert status == 503, f"{path}: {status} {answer[:300]!r}"
            began = began or time.monotonic()
            assert time.monotonic() < began + 300, f"{path}: no answer within 300 s"
            self.again += 1
            pause_s = min(pause_s * 1.5, 0.5)
            time.sleep(pause_s)
        if began is not None:
            self.away_s.append(time.monotonic() - began)
        return json.loads(answer)

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = None

    def _once(self, path: str, content: str, more: dict[str, str]) -> tuple[int, bytes]:
        if self._line is None:
            netloc = urlsplit(self._site.url).netloc
            self._line = http.client.HTTPConnection(netloc, timeout=60)
        token = (self._site.home / "token").read_text().strip()
        head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **more}
        self._line.request("POST", API + path, content, head)
        answer = self._line.getresponse()
        return answer.status, answer.read()


def json_number(value: float) -> float | str:
    """A float as JSON can say it."""
    if math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def run(kills: int, seed: int, database: str, pause_s: float = 3.0) -> Counts:
    """Do it; the same seed asks for the same writes, faults and pauses.

    Args:
        database: `sqlite` or `postgres`.
        pause_s: the longest time between two kills.
    """
    chance = random.Random(seed)
    counts = Counts()
    with contextlib.ExitStack() as stack:
        postgres: PostgresServer | None = None
        options: tuple[str, ...] = ()
        if database == "postgres":
            # What is told to be written is on its disk: without that its own kill loses some.
            postgres = stack.enter_context(contextlib.closing(PostgresServer(durable=True)))
            options = ("--database", postgres.new_database())
        site = stack.enter_context(made(options))
        with _writing(site, seed) as writers:
            every_fault = ON_SQLITE if postgres is None else ON_POSTGRES
            faults: list[str] = []
            for _ in range(kills):
                faults = faults or chance.sample(every_fault, len(every_fault))
                time.sleep(chance.random() * pause_s)
                fault = faults.pop()
                _do(fault, site, postgres, chance)
                counts.kills[fault] += 1
        _compare(site, writers, counts)
    return counts


@contextlib.contextmanager
def _writing(site: Site, seed: int) -> Iterator[list[Writer]]:
    shared = site.ask("POST", API + "runs/create", {"experiment_id": "0", "start_time": 1})
    stop = threading.Event()
    writers = [
        Writer(site, number, seed + number, shared["run"]["info"]["run_id"], stop)
        for number in range(WRITERS)
    ]
    for writer in writers:
        writer.thread.start()
    try:
        yield writers
    finally:
        stop.set()
        for writer in writers:
            writer.thread.join()


def _do(fault: str, site: Site, postgres: PostgresServer | None, chance: random.Random) -> None:
    if fault in ("server", "both"):
        site.kill()
    if postgres is not None and fault != "server":
        if fault == "backend":
            postgres.kill_a_backend(chance)
        elif fault == "postmaster":
            postgres.kill_postmaster()
        else:
            postgres.kill()
        time.sleep(chance.random())
        if fault != "backend":
            postgres.start()
    if fault in ("server", "both"):
        time.sleep(chance.random() * chance.choice((0.1, 1.0)))
        site.start()


def _compare(site: Site, writers: list[Writer], counts: Counts) -> None:
    """Compare what the server has with what it acknowledged."""
    points: dict[tuple[str, str], list[Told]] = collections.defaultdict(list)
    texts: dict[str, dict[tuple[str, str], str]] = {"params": {}, "tags": {}}
    for writer in writers:
        counts.calls += writer.calls
        counts.again += writer.again
        counts.away_s += writer.away_s
        counts.wrong += writer.wrong
        for series, written in writer.points.items():
            points[series] += written
        texts["params"] |= writer.params
        texts["tags"] |= writer.tags
    counts.points = sum(map(len, points.values()))
    for (run, key), written in points.items():
        counts.wrong += _differences(f"{run} `{key}`", written, _points_of(site, run, key))
    runs = {run for run, _ in points} | {run for writer in writers for run in writer.runs}
    for run in runs:
        data = site.patiently("GET", f"{API}runs/get?run_id={run}")["run"]["data"]
        for kind, expected_texts in texts.items():
            stored = {row["key"]: row["value"] for row in data.get(kind, ())}
            expected = {key: value for (of, key), value in expected_texts.items() if of == run}
            if {key: stored.get(key) for key in expected} != expected:
                counts.wrong.append(f"{run}: its {kind} are not those that were acknowledged")
            if kind == "params" and set(stored) - set(expected):
                counts.wrong.append(f"{run}: {kind} that nobody wrote")
        keys = {metric["key"] for metric in data.get("metrics", ())}
        if keys != {key for of, key in points if of == run}:
            counts.wrong.append(f"{run}: its metrics are {sorted(keys)}")
    names = collections.Counter(_run_names(site))
    twice = [name for name, count in names.items() if count > 1]
    counts.wrong += [f"run `{name}` was made twice" for name in twice]
    log = (site.home / "server.out").read_text(errors="replace")
    counts.wrong += [line for line in log.splitlines() if "Traceback" in line]


def _points_of(site: Site, run: str, key: str) -> list[Told]:
    answer = site.patiently("GET", f"jobs/{run}/metrics/history?{urlencode({'key': key})}")
    return [(step, timestamp, str(value)) for step, timestamp, value in answer["points"]]


def _run_names(site: Site) -> Iterator[str]:
    token = ""
    while True:
        body = {"experiment_ids": ["0"], "max_results": 1000, "page_token": token}
        answer = site.patiently("POST", API + "runs/search", body)
        yield from (run["info"]["run_name"] for run in answer.get("runs", ()))
        token = answer.get("next_page_token") or ""
        if not token:
            return


def _differences(kind: str, written: list[Told], stored: list[Told]) -> list[str]:
    expected, there = collections.Counter(written), collections.Counter(stored)
    lost, more = expected - there, there - expected
    return [
        f"{kind}: {sum(some.values())} points {why}, as {next(iter(some))}"
        for some, why in ((lost, "are lost"), (more, "are there that nobody was told of"))
        if some
    ]


def report(counts: Counts) -> str:
    kills = ", ".join(f"{count} of {name}" for name, count in sorted(counts.kills.items()))
    lines = [
        f"kills: {kills}; {counts.calls:,} calls, sent again {counts.again:,} times; "
        f"{counts.points:,} points acknowledged: {len(counts.wrong)} things wrong"
    ]
    lines += [f"  {line}" for line in counts.wrong[:50]]
    if counts.away_s:
        lines.append(
            f"calls that met a kill were answered after: median "
            f"{percentile(counts.away_s, 0.5):.2f} s, p99 {percentile(counts.away_s, 0.99):.2f} s"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--pause", type=float, default=3.0, help="at most between kills, in s")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    counts = run(options.kills, options.seed, options.database, options.pause)
    print(report(counts))
    return 1 if counts.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
