"""What history.py asks of a server, whichever it is: run by the Python that has mlflow.

    MLFLOW_TRACKING_URI=URL python benchmarks/history_client.py '{"case": "write", ...}'

Owns: the calls, their times; one JSON object on the standard output.
Leaves: starting servers, sizes and tables to history.py.
Always: what is sent is made before the clock starts, unless the client of mlflow makes it.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import multiprocessing
import os
import queue
import statistics
import sys
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

KEYS = 10
EPOCH_MS = 1_700_000_000_000


class Http:
    """One connection that stays open, with the token that mlflow's client would send."""

    def __init__(self) -> None:
        address = urllib.parse.urlsplit(os.environ["MLFLOW_TRACKING_URI"])
        assert address.hostname
        self._connection = http.client.HTTPConnection(address.hostname, address.port, timeout=600)
        self._connection.connect()
        self._headers = {"Content-Type": "application/json"}
        token = os.environ.get("MLFLOW_TRACKING_TOKEN")
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def post(self, path: str, body: bytes) -> bytes:
        return self._ask("POST", f"/api/2.0/mlflow/{path}", body)

    def get(self, path: str) -> bytes:
        return self._ask("GET", path, None)

    def _ask(self, method: str, path: str, body: bytes | None) -> bytes:
        try:
            answer = self._sent(method, path, body)
        except http.client.RemoteDisconnected:
            # Both servers end a connection that was idle for 5 s, as one that waits for the others.
            self._connection.close()
            answer = self._sent(method, path, body)
        content = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{method} {path}: {answer.status} {content[:500]!r}")
        return content

    def _sent(self, method: str, path: str, body: bytes | None) -> http.client.HTTPResponse:
        self._connection.request(method, path, body, self._headers)
        return self._connection.getresponse()

    def call(self, path: str, **fields: Any) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.post(path, json.dumps(fields).encode()))
        return answer

    def new_run(self, experiment_id: str = "0", **more: Any) -> str:
        fields = {"experiment_id": experiment_id, "start_time": EPOCH_MS, **more}
        run_id: str = self.call("runs/create", **fields)["run"]["info"]["run_id"]
        return run_id


def points(start: int, count: int, keys: int) -> list[dict[str, Any]]:
    """`count` points spread over `keys` metrics; their steps go on where the last ones ended."""
    return [
        {
            "key": f"metric{number % keys}",
            "value": 1.0 / (1 + number),
            "timestamp": EPOCH_MS + number,
            "step": number // keys,
        }
        for number in range(start, start + count)
    ]


def raw_batches(run: str, calls: int, size: int, keys: int) -> Callable[[int], Any]:
    http_ = Http()
    bodies = [
        json.dumps({"run_id": run, "metrics": points(number * size, size, keys)}).encode()
        for number in range(calls)
    ]
    return lambda number: http_.post("runs/log-batch", bodies[number])


def client_batches(run: str, calls: int, size: int, keys: int) -> Callable[[int], Any]:
    from mlflow.entities import Metric

    from mlflow import MlflowClient

    client = MlflowClient()
    batches = [
        [Metric(**fields) for fields in points(number * size, size, keys)]
        for number in range(calls)
    ]
    return lambda number: client.log_batch(run, metrics=batches[number])


def raw_singles(run: str, calls: int, size: int, keys: int) -> Callable[[int], Any]:
    http_ = Http()
    bodies = [json.dumps({"run_id": run, **point}).encode() for point in points(0, calls, keys)]
    return lambda number: http_.post("runs/log-metric", bodies[number])


def client_singles(run: str, calls: int, size: int, keys: int) -> Callable[[int], Any]:
    from mlflow import MlflowClient

    client = MlflowClient()
    ready = points(0, calls, keys)
    return lambda number: client.log_metric(run, **ready[number])


def raw_runs(run: str, calls: int, size: int, keys: int) -> Callable[[int], Any]:
    http_ = Http()
    body = json.dumps({"experiment_id": "0", "start_time": EPOCH_MS}).encode()
    return lambda number: http_.post("runs/create", body)


WRITERS = {
    ("raw", "run"): raw_runs,
    ("raw", "batch"): raw_batches,
    ("raw", "single"): raw_singles,
    ("client", "batch"): client_batches,
    ("client", "single"): client_singles,
}


def write(by: str, kind: str, writers: int, calls: int, size: int) -> dict[str, float]:
    """Every writer is a process with a run of its own; they start together."""
    if by == "client":
        import mlflow  # noqa: F401  (imported once, before the writers are forked)
    gate = multiprocessing.Barrier(writers)
    results: multiprocessing.Queue[tuple[float, float, list[float]]] = multiprocessing.Queue()

    def one() -> None:
        call = WRITERS[by, kind](Http().new_run(), calls, size, KEYS)
        gate.wait()
        times = [time.monotonic()]
        for number in range(calls):
            call(number)
            times.append(time.monotonic())
        spans = [after - before for before, after in itertools.pairwise(times)]
        results.put((times[0], times[-1], spans))

    processes = [multiprocessing.Process(target=one, daemon=True) for _ in range(writers)]
    for process in processes:
        process.start()
    figures: list[tuple[float, float, list[float]]] = []
    while len(figures) < writers:
        with contextlib.suppress(queue.Empty):
            figures.append(results.get(timeout=1))
        if any(process.exitcode for process in processes):
            raise SystemExit("a writer ended with an error")
    for process in processes:
        process.join()
    took_s = max(end for _, end, _ in figures) - min(start for start, _, _ in figures)
    spans = [span for _, _, spans in figures for span in spans]
    rate = "points_per_s" if kind == "batch" else "calls_per_s"
    return {rate: writers * calls * size / took_s, **percentiles(spans)}


def percentiles(spans_s: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(spans_s, n=100, method="inclusive")
    return {f"p{number}_ms": cuts[number - 1] * 1000 for number in (50, 95, 99)}


def make_runs(experiment: str, runs: int, writers: int) -> dict[str, Any]:
    """Runs with a metric, a parameter and a tag each."""
    experiment_id = Http().call("experiments/create", name=experiment)["experiment_id"]

    def some(numbers: range) -> None:
        http_ = Http()
        for number in numbers:
            team = {"key": "team", "value": f"team{number % 7}"}
            run = http_.new_run(experiment_id, tags=[team])
            score = (number * 7919 % runs) / runs
            http_.call(
                "runs/log-batch",
                run_id=run,
                metrics=[{"key": "score", "value": score, "timestamp": EPOCH_MS, "step": 0}],
                params=[{"key": "lr", "value": str(number % 10)}],
            )

    started = time.monotonic()
    processes = [
        multiprocessing.Process(target=some, args=(range(first, runs, writers),), daemon=True)
        for first in range(writers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return {"runs_per_s": runs / (time.monotonic() - started), "experiment_id": experiment_id}


def search(experiment_id: str, rounds: int) -> dict[str, float]:
    """The first 100 runs by mlflow's client: the median of some tries."""
    from mlflow import MlflowClient

    client = MlflowClient()
    cases: dict[str, dict[str, Any]] = {
        "list": {},
        "filter": {"filter_string": "metrics.score > 0.5 and tags.team = 'team3'"},
        "order": {"order_by": ["metrics.score DESC"]},
    }
    figures: dict[str, float] = {}
    for name, more in cases.items():
        spans = []
        for _ in range(rounds):
            started = time.monotonic()
            page = client.search_runs([experiment_id], max_results=100, **more)
            spans.append(time.monotonic() - started)
            assert page, name
        figures[f"{name}_ms"] = statistics.median(spans) * 1000
    return figures


def load(count: int) -> dict[str, Any]:
    """A run with `count` points of one key."""
    run = Http().new_run()
    size = min(1000, count)
    call = raw_batches(run, count // size, size, 1)
    started = time.monotonic()
    for number in range(count // size):
        call(number)
    return {"run": run, "points_per_s": count / (time.monotonic() - started)}


def read(run: str, count: int, chart: str, rounds: int) -> dict[str, float]:
    """The whole history by mlflow's client, and the data of a chart."""
    from mlflow import MlflowClient

    started = time.monotonic()
    history = MlflowClient().get_metric_history(run, "metric0")
    figures = {"history_s": time.monotonic() - started}
    assert len(history) == count, (len(history), count)
    http_ = Http()
    spans = []
    for _ in range(rounds):
        started = time.monotonic()
        content = http_.get(chart)
        spans.append(time.monotonic() - started)
    return {**figures, "chart_ms": statistics.median(spans) * 1000, "chart_kb": len(content) / 1000}


def main() -> None:
    cases: dict[str, Callable[..., dict[str, Any]]] = {
        "write": write,
        "make_runs": make_runs,
        "search": search,
        "load": load,
        "read": read,
    }
    arguments = json.loads(sys.argv[1])
    print(json.dumps(cases[arguments.pop("case")](**arguments)))


if __name__ == "__main__":
    main()
