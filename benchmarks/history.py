"""Run history: `yard-server` beside `mlflow server` on SQLite, asked by the same client.

    python benchmarks/history.py [--mlflow-python PYTHON] [--writers 1 8] [--points 100000]
                                 [--singles 400] [--runs 500] [--history 100000] [--only writing]

The sizes above take about five minutes; those of the README are named there. PYTHON has mlflow 3
installed: it runs the server, and for both servers the client; without it ours is written to alone.
`raw` is plain HTTP with bodies made before the clock starts, so that it measures servers; `client`
is mlflow's own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import clean_variables, processor_s, progress, remove
from server import memory_mb, mlflow_server, torchyard_server

CLIENT = Path(__file__).with_name("history_client.py")
BATCH = 1000
CHART_WIDTH = 1000


@dataclass(frozen=True)
class Peer:
    """A server that runs, and how to measure it."""

    name: str
    python: str
    url: str
    token: str
    pid: int
    database: Path
    chart: Callable[[str], str]

    def ask(self, case: str, **fields: Any) -> dict[str, Any]:
        """Run the client to its end."""
        progress(f"{self.name}: {case} {fields}")
        variables = clean_variables(MLFLOW_TRACKING_URI=self.url, MLFLOW_TRACKING_TOKEN=self.token)
        if not self.token:
            del variables["MLFLOW_TRACKING_TOKEN"]
        done = subprocess.run(
            [self.python, CLIENT, json.dumps({"case": case, **fields})],
            env=variables,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        progress("")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def write(self, by: str, kind: str, writers: int, calls: int, size: int) -> dict[str, float]:
        """`server_us`: of the server's processor a call, which other programs hardly change."""
        before_s = processor_s(self.pid, with_children=True)
        answer = self.ask("write", by=by, kind=kind, writers=writers, calls=calls, size=size)
        server_s = processor_s(self.pid, with_children=True) - before_s
        return {**answer, "server_us": server_s * 1e6 / (writers * calls)}

    def memory(self) -> dict[str, float]:
        return {"pss_mb": memory_mb(self.pid, "Pss"), "rss_mb": memory_mb(self.pid, "Rss")}

    def database_bytes(self) -> int:
        """The pages in use, those in the write-ahead log too."""
        with contextlib.closing(sqlite3.connect(self.database, timeout=60)) as connection:
            pages, free, size = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        return int((pages - free) * size)


def table(title: str, results: dict[str, dict[str, float]]) -> None:
    """Ours first; the ratio is ours over theirs."""
    own_name, *others = results
    theirs = others[0] if others else ""
    print(f"\n{title}\n  {'':14}{own_name:>14}{theirs:>14}{'ours/theirs' if theirs else '':>14}")
    for figure in results[own_name]:
        value, other = results[own_name][figure], results.get(theirs, {}).get(figure)
        beside = "" if other is None else f"{other:14,.2f}{value / other:13,.3f}x"
        print(f"  {figure:14}{value:14,.2f}{beside}", flush=True)


def writing(peers: list[Peer], writer_counts: list[int], points: int, singles: int) -> None:
    """In turn: each of the peers, then the next way to write."""
    for writers in writer_counts:
        calls = max(2, singles // writers)
        results = {peer.name: peer.write("raw", "run", writers, calls, 1) for peer in peers}
        table(f"runs/create, {writers} writers, {calls} calls each, raw", results)
        for by in ("raw", "client") if len(peers) > 1 else ("raw",):
            calls = max(2, points // BATCH // writers)
            results = {peer.name: peer.write(by, "batch", writers, calls, BATCH) for peer in peers}
            table(f"log_batch of {BATCH}, {writers} writers, {calls} calls each, {by}", results)
            calls = max(2, singles // writers)
            results = {peer.name: peer.write(by, "single", writers, calls, 1) for peer in peers}
            table(f"log_metric, {writers} writers, {calls} calls each, {by}", results)


def searching(peers: list[Peer], runs: int, rounds: int) -> None:
    results = {}
    for peer in peers:
        made = peer.ask("make_runs", experiment="search", runs=runs, writers=8)
        answer = peer.ask("search", experiment_id=made["experiment_id"], rounds=rounds)
        results[peer.name] = {"runs_per_s": made["runs_per_s"], **answer}
    table(f"search over {runs} runs, the first 100; median of {rounds}", results)


def reading(peers: list[Peer], count: int, rounds: int) -> None:
    results = {}
    for peer in peers:
        before = peer.database_bytes()
        loaded = peer.ask("load", count=count)
        used = peer.database_bytes() - before
        chart = peer.chart(loaded["run"])
        answer = peer.ask("read", run=loaded["run"], count=count, chart=chart, rounds=rounds)
        results[peer.name] = {
            "points_per_s": loaded["points_per_s"],
            "bytes_a_point": used / count,
            **answer,
        }
    table(f"{count} points of one metric: whole, and for a chart; median of {rounds}", results)


def our_chart(run: str) -> str:
    path = f"/v1/workspaces/default/jobs/{run}/metrics/chart"
    return f"{path}?key=metric0&width={CHART_WIDTH}"


def their_chart(run: str) -> str:
    path = "/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval"
    return f"{path}?run_ids={run}&metric_key=metric0&max_results={CHART_WIDTH}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mlflow-python", default="", help="a Python that has mlflow 3")
    parser.add_argument("--writers", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--only", choices=["writing"], default="", help="leave out the rest")
    parser.add_argument("--points", type=int, default=100_000, help="written by log_batch")
    parser.add_argument("--singles", type=int, default=400, help="calls of log_metric")
    parser.add_argument("--runs", type=int, default=500, help="to search in")
    parser.add_argument("--history", type=int, default=100_000, help="points to read back")
    parser.add_argument("--rounds", type=int, default=5, help="of each search and chart")
    arguments = parser.parse_args()
    # A benchmark that is told to end still ends its servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    home = Path(tempfile.mkdtemp(prefix="torchyard-benchmark-"))
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            torchyard_server(home) as (our_url, our_pid, our_start_s),
            contextlib.ExitStack() as stack,
        ):
            own_name = Peer(
                "yard-server",
                arguments.mlflow_python or sys.executable,
                our_url,
                (home / "token").read_text().strip(),
                our_pid,
                home / "torchyard.db",
                our_chart,
            )
            peers, starts = [own_name], {own_name.name: our_start_s}
            if arguments.mlflow_python:
                python = arguments.mlflow_python
                url, pid, start_s = stack.enter_context(mlflow_server(python, Path(folder)))
                database = Path(folder, "mlflow.db")
                peers.append(Peer("mlflow server", python, url, "", pid, database, their_chart))
                starts["mlflow server"] = start_s
            results = {peer.name: {"start_s": starts[peer.name], **peer.memory()} for peer in peers}
            table("empty", results)
            writing(peers, arguments.writers, arguments.points, arguments.singles)
            if not arguments.only and len(peers) > 1:
                reading(peers, arguments.history, arguments.rounds)
                searching(peers, arguments.runs, arguments.rounds)
            table("memory after all that", {peer.name: peer.memory() for peer in peers})
    finally:
        remove(home)


if __name__ == "__main__":
    main()
