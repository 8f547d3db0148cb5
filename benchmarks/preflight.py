"""What preflight costs: two nodes on this machine, from launch to the first line of a rank.

    .venv/bin/python benchmarks/preflight.py [rounds]

Workers are real and the server is the tests' stub. Each round launches the same job with preflight
`on` and `off`, in turns. Beside it stand what a node says that the checks took it (facts and
connecting, by its own clock) and a bare TCP handshake of this machine; a node makes two.
"""

from __future__ import annotations

import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from worker.bench import Bench, bench_in


def launch_ms(bench: Bench, preflight: str) -> tuple[float, float]:
    """Until both ranks were started, and what the slower node said of its checks."""
    for collection in (bench.server.events, bench.server.event_times, bench.server.addresses):
        collection.clear()
    began = time.monotonic()
    bench.run(bench.plan("true", node_count=2, preflight=preflight), 60.0)
    times = [bench.server.event_times[node, "ranks_started"] for node in (0, 1)]
    took = [
        event["body"]["took_ms"]
        for node in (0, 1)
        for event in bench.server.events[node]
        if event["kind"] == "preflight"
    ]
    return (max(times) - began) * 1000, max(took, default=0.0)


def handshake_ms() -> float:
    with socket.create_server(("127.0.0.1", 0)) as server:
        began = time.perf_counter()
        socket.create_connection(server.getsockname()).close()
        return (time.perf_counter() - began) * 1000


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    times_of: dict[str, list[float]] = {"on": [], "off": []}
    checks_ms: list[float] = []
    with tempfile.TemporaryDirectory() as folder, bench_in(Path(folder)) as bench:
        for number in range(rounds + 1):
            for preflight in times_of:
                ms, took_ms = launch_ms(bench, preflight)
                if number:  # the first one makes the worker's zip
                    times_of[preflight].append(ms)
                    checks_ms += [took_ms] if preflight == "on" else []
    for preflight, times in times_of.items():
        print(f"preflight {preflight:<3}  launch to ranks: {_shown(times)}")
    print(f"checks of a node, as it says: {_shown(checks_ms)}")
    print(f"a bare handshake: {_shown([handshake_ms() for _ in range(50)])}")


def _shown(times: list[float]) -> str:
    return f"least {min(times):.2f} ms, median {statistics.median(times):.2f} ms"


if __name__ == "__main__":
    main()
