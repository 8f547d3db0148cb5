"""Measure torchyard and the peers in turn, and print them side by side.

Owns: interleaved rounds, the table, a torchyard of the benchmark's own, timing a job, the
processor's seconds of a process.
Leaves: what is measured to the scripts beside this file.
Always: torchyard and every peer are measured in the same run, one after the other in each round, so
that a busy machine slows all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Measure = Callable[[], Mapping[str, float]]
"""One try: figures by name, in the unit that the name ends with (`wall_s`, `memory_mb`)."""

YARD = Path(sys.executable).with_name("yard")
CREATE: list[str | Path] = [YARD, "job", "create", "-f", "job.yml", "--stream"]
FIRST_LINE = """\
import sys, time
sys.stdout.write(f"first line at {time.time()}\\n")
sys.stdout.flush()
"""
"""How a script begins whose first line `printed_lines` reads; one write, for where output has no
buffer, `print` makes one of each part, and the parts of two ranks would mix.
"""
TABLE = "TORCHYARD_BENCHMARK_TABLE"
"""Names the file that `compare` adds its figures to, for the one table of all.py."""


@dataclass(frozen=True)
class Case:
    """What is measured; the first case of a table is torchyard's, the others are its peers."""

    name: str
    measure: Measure


def compare(title: str, cases: list[Case], rounds: int) -> None:
    """Measure every case once a round, then print minimum, median and the ratio of the medians."""
    tries: dict[str, list[Mapping[str, float]]] = {case.name: [] for case in cases}
    for number in range(1, rounds + 1):
        for case in cases:
            progress(f"{title}: round {number} of {rounds}, {case.name}")
            tries[case.name].append(case.measure())
    progress("")
    _record(title, tries)
    print(f"\n{title}, {rounds} interleaved rounds")
    for figure in tries[cases[0].name][0]:
        print(f"  {figure:34}{'minimum':>10}{'median':>10}{'ours/this':>11}")
        own_median = statistics.median(each[figure] for each in tries[cases[0].name])
        for case in cases:
            if figure in tries[case.name][0]:
                values = [each[figure] for each in tries[case.name]]
                median = statistics.median(values)
                ratio = f"{own_median / median:10.2f}x" if case is not cases[0] and median else ""
                print(f"    {case.name:32}{min(values):10.3f}{median:10.3f}{ratio:>11}")


def _record(title: str, tries: Mapping[str, list[Mapping[str, float]]]) -> None:
    """Add the medians to the table that is being made, if one is."""
    if TABLE not in os.environ:
        return
    with open(os.environ[TABLE], "a") as table:
        own_name, *_ = tries
        for figure in tries[own_name][0]:
            medians = {
                name: statistics.median(each[figure] for each in values)
                for name, values in tries.items()
                if figure in values[0]
            }
            table.write(json.dumps({"title": title, "figure": figure, "medians": medians}) + "\n")


def progress(text: str) -> None:
    """Say on a terminal what goes on; an empty text takes it away."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def clean_variables(**more: str) -> dict[str, str]:
    """The environment without what slows Python down for everyone alike."""
    environ = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    return {**environ, **more}


@contextlib.contextmanager
def temporary_yard(home: Path | None = None, start: Sequence[str] = ()) -> Iterator[dict[str, str]]:
    """The variables of a torchyard with a running server, removed unless `home` is given.

    A given home keeps its environments, so that the next run need not build them again.

    Args:
        start: options of `yard server start`.
    """
    folder = home or Path(tempfile.mkdtemp(prefix="torchyard-benchmark-"))
    variables = clean_variables(TORCHYARD_HOME=str(folder))
    # A benchmark that is told to end still ends its server.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    run([YARD, "server", "start", *start], variables)
    try:
        yield variables
    finally:
        subprocess.run([YARD, "server", "stop"], env=variables, check=False, capture_output=True)
        if home is None:
            remove(folder)


def remove(folder: Path) -> None:
    """Delete a folder whose files may be read-only."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def processor_s(pid: int, *, with_children: bool = False) -> float:
    """Seconds of processor that a process has taken so far.

    Args:
        with_children: add those of the processes that it started, running or waited for.
    """
    folder = Path(f"/proc/{pid}")
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    # utime and stime, then cutime and cstime; see proc_pid_stat(5).
    ticks = sum(map(int, fields[11 : 15 if with_children else 13]))
    total = ticks / os.sysconf("SC_CLK_TCK")
    if not with_children:
        return total
    children: list[str] = []
    # A thread or a child may end meanwhile.
    for task in (folder / "task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children += (task / "children").read_text().split()
    for child in children:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += processor_s(int(child), with_children=True)
    return total


def run(command: list[str | Path], variables: Mapping[str, str], cwd: Path | None = None) -> str:
    """Run to the end and return what it printed.

    Raises:
        SystemExit: the command failed; its words are shown.
    """
    done = subprocess.run(
        command, env=variables, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def printed_lines(printed: str) -> list[float]:
    """When each rank of a script that begins with `FIRST_LINE` did, in seconds since 1970."""
    return [float(at) for at in re.findall(r"first line at ([\d.]+)", printed)]


def timed_job(
    command: list[str | Path],
    variables: Mapping[str, str],
    folder: Path | None,
    first_lines: Callable[[str], list[float]] = printed_lines,
) -> dict[str, float]:
    """Seconds from a submission to the script's first line, and to the job's end.

    Args:
        command: submits a job and ends with it.
        first_lines: when the ranks began, by what the command printed.
    """
    started = time.time()
    printed = run(command, variables, folder)
    ended = time.time()
    lines = first_lines(printed)
    if not lines:
        words = " ".join(map(str, command))
        raise SystemExit(f"no rank printed its first line\n{words}\n{printed}")
    return {"first_line_s": min(lines) - started, "whole_job_s": ended - started}
