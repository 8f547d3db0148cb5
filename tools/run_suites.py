"""Run make targets, one after another, and end with one table.

    .venv/bin/python tools/run_suites.py check test smoke

Owns: the order, the table, the search for processes left behind, the closing lines.
Leaves: a suite to its make target, which calls tools/run_suite.py.
Always: a red suite hides none behind it. The last lines are what failed, and `N passed, N failed`.

Exit code: 0 if all passed, 1 else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from run_suite import Record, logs_folder

# Every process of a job bears this variable, and every program of torchyard's own these words in
# its command line; what is just ending is given a moment.
_MARK = b"TORCHYARD_ATTEMPT="
_PROGRAM = b"-m\0torchyard."
_ENDING_S = 30.0
# Of what pytest said of a red suite, so that the end of a long log has it.
_MAX_LINES = 150


def left_behind(folder: str) -> list[str]:
    """Command lines of jobs' processes whose environment names `folder`, and of torchyard's own
    programs whose arguments do: others' are not ours.
    """
    commands = []
    folder_bytes = os.fsencode(folder)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
            command = (process / "cmdline").read_bytes()
            if (_MARK in environment and folder_bytes in environment) or (
                _PROGRAM in command and folder_bytes in command
            ):
                shown = command.replace(b"\0", b" ").decode(errors="replace")
                commands.append(f"{process.name} {shown[:200]}")
        except OSError:
            continue  # it has just ended
    return commands


def _wait_until_none_is_left(folder: str) -> list[str]:
    limit = time.monotonic() + _ENDING_S
    while (commands := left_behind(folder)) and time.monotonic() < limit:
        time.sleep(0.5)
    return commands


def run(target: str) -> Record:
    """Run one make target; its counts come from the record that its pytest left, if it has one."""
    print(f"== make {target}", flush=True)
    record_file = logs_folder() / f"{target}.json"
    record_file.unlink(missing_ok=True)
    started = time.monotonic()
    # Absolute, because a target may change folder.
    environment = os.environ | {
        "PYTEST": f"{sys.executable} {Path(__file__).with_name('run_suite.py')}",
        "SUITE": target,
        "CI_LOGS": str(logs_folder().absolute()),
    }
    code = subprocess.run(
        ["make", "--no-print-directory", target], env=environment, stdin=subprocess.DEVNULL
    ).returncode
    seconds = round(time.monotonic() - started)
    record = Record(target, code, seconds)
    if record_file.exists():
        record = Record(**json.loads(record_file.read_text()))
        record.code, record.seconds = code, seconds
    if code and not record.failures:
        record.failures = [f"make {target} (exit code {code})"]
    if folder := os.environ.get("TMPDIR"):
        for command in _wait_until_none_is_left(folder):
            record.code = 1
            record.failures.append(f"{target} left a process behind: {command}")
    print(f"== make {target} took {seconds} s", flush=True)
    return record


def explain(record: Record) -> None:
    """Print what pytest said of a red suite's failures once more."""
    log = logs_folder() / f"{record.suite}.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    starts = [
        index
        for index, line in enumerate(lines)
        if line.startswith("=") and (" FAILURES " in line or " ERRORS " in line)
    ]
    if starts:
        print(f"== {record.suite}", *lines[starts[0] :][-_MAX_LINES:], sep="\n")


def table(records: Sequence[Record]) -> str:
    rows = [("suite", "passed", "failed", "skipped", "flaky", "seconds")]
    rows += [
        (
            r.suite,
            str(r.passed),
            str(len(r.failures)),
            str(r.skipped),
            str(len(r.flaky)),
            str(r.seconds),
        )
        for r in records
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    )


def main(targets: Sequence[str]) -> int:
    records = [run(target) for target in targets]
    for record in records:
        if record.code:
            explain(record)
    print(table(records))
    for record in records:
        for line in record.flaky:
            print(f"flaky: {line}")
    failures = [(record.suite, failure) for record in records for failure in record.failures]
    for suite, failure in failures:
        print(f"failed: {suite}: {failure}")
    passed = sum(record.passed for record in records)
    print(f"{passed} passed, {len(failures)} failed", flush=True)
    return 1 if any(record.code for record in records) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
