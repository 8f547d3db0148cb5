"""Run the benchmarks that need nothing but a clone, one after the other, and print one table.

    python benchmarks/all.py [--limit-s 570] [NAME ...]

Each is run with few rounds, so that all end within ten minutes; what has not ended by then is left
out, and the table says so. A peer that is not installed is left out by its own script.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figures import TABLE

RUNS: dict[str, list[str]] = {
    "small_jobs": ["--jobs", "20", "--rounds", "3"],
    "cli": ["--rounds", "5"],
    "server": ["--rounds", "3"],
    "redaction": ["--rounds", "2"],
    "snapshot": ["--rounds", "3"],
    "launch": ["--rounds", "3"],
    "data": ["--rounds", "1"],
    "relay": ["--rounds", "1", "--seconds", "3"],
}
_ENDING_S = 20.0
_LAST_LINES = 15


def run(name: str, table: Path, deadline: float) -> str:
    """Run one; returns why its figures are missing or incomplete, empty when they are not."""
    limit_s = deadline - time.monotonic()
    if limit_s <= 0:
        return "no time was left"
    command = [sys.executable, str(Path(__file__).with_name(f"{name}.py")), *RUNS[name]]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env={**os.environ, TABLE: str(table)}, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return "it did not end in time"
        finally:
            _end(process)
        if code == 0:
            return ""
        output.seek(0)
        last = output.read().splitlines()[-_LAST_LINES:]
        print("\n".join([f"-- {name} ended with {code}", *last]), file=sys.stderr)
        return f"it ended with {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it with what it started; asked first, it ends its server."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(kind)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_ENDING_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def rows(table: Path) -> Iterator[str]:
    """A line for each figure: ours, then each peer with the ratio of ours to it."""
    title = ""
    lines = table.read_text().splitlines() if table.exists() else []
    for row in map(json.loads, lines):
        if row["title"] != title:
            title = row["title"]
            yield f"\n{title}"
        yield _row(row)


def _row(row: dict[str, Any]) -> str:
    (own_name, own), *peers = row["medians"].items()
    words = [f"{own_name} {own:.3f}"]
    words += [f"{name} {value:.3f} ({own / value:.2f}x)" for name, value in peers if value]
    return f"  {row['figure']:26} {'; '.join(words)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--limit-s", type=float, default=570.0)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RUNS))
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in RUNS]:
        parser.error(f"no such benchmark: {', '.join(unknown)}")
    deadline = time.monotonic() + options.limit_s
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="torchyard-benchmarks-") as folder:
        table = Path(folder, "table.jsonl")
        for name in options.names or RUNS:
            begun = time.monotonic()
            why = run(name, table, deadline)
            took = f"{time.monotonic() - begun:.0f} s"
            print(f"{name}: {why or 'done'} ({took})", file=sys.stderr, flush=True)
            if why:
                missing[name] = why
        print("Medians; in brackets, ours divided by the peer's")
        for line in rows(table):
            print(line)
    for name, why in missing.items():
        print(f"\n{name} is missing or incomplete: {why}")
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
