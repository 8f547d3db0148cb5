"""How long `/health` takes while every text field of the interfaces gets a hostile text.

    python benchmarks/hostile_text.py [--texts 9] [--size 60000]

Each field gets so many of 261 texts, of so many characters. Exits with 1 if `/health` ever took
longer than 250 ms; for a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from hostile_input import hostile_requests
from hostile_input.hostile_requests import Request
from hostile_input.watched_server import Server, Watch, running, watched

CEILING_MS = 250.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=9)
    parser.add_argument("--size", type=int, default=60_000)
    options = parser.parse_args()
    slowest: list[tuple[float, str]] = []
    with tempfile.TemporaryDirectory() as folder, running(Path(folder) / "home") as server:
        openapi, address = server.get("/openapi.json"), server.azure_workspace()
        # What is imported with the first request of its kind is not what is measured.
        send(server, hostile_requests.requests(openapi, address, 1, 1), [], Watch())
        with watched(server) as watch:
            texts = hostile_requests.requests(openapi, address, options.size, options.texts)
            for requests in (hostile_requests.raw_requests(address), texts):
                send(server, requests, slowest, watch)
    times_ms = sorted(1000 * time_s for time_s in watch.times_s)
    longest_ms = times_ms[-1]
    figures = {
        "requests": len(slowest),
        "health_requests": len(times_ms),
        "health_p50_ms": round(times_ms[len(times_ms) // 2], 1),
        "health_p99_ms": round(times_ms[len(times_ms) * 99 // 100], 1),
        "health_max_ms": round(longest_ms, 1),
        "health_max_at": watch.longest_field,
        "slowest": [
            f"{1000 * time_s:.0f} ms {field}"
            for time_s, field in sorted(slowest, reverse=True)[:10]
        ],
    }
    print(json.dumps(figures, indent=2))
    return int(longest_ms > CEILING_MS)


def send(
    server: Server, requests: Iterable[Request], times: list[tuple[float, str]], watch: Watch
) -> None:
    """Send them one after the other; adds the seconds and the field of each."""
    for request in requests:
        watch.field = request.field
        started = time.monotonic()
        server.ask(request)
        times.append((time.monotonic() - started, request.field))


if __name__ == "__main__":
    sys.exit(main())
