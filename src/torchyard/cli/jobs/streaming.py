"""Print a job's stream.

Owns: the first and last lines, as Azure ML prints them, and how to come back.
Leaves: the lines between to client/printing.py, the steps of a pipeline to pipeline_page.py.
Always: the ranks' bytes go to stdout, everything about the job to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from torchyard.base.settings import terminal_type
from torchyard.base.terminal_text import plain
from torchyard.cli.jobs import causes, page, pipeline_page
from torchyard.cli.terminal import tables
from torchyard.cli.terminal.live_area import LiveArea
from torchyard.client.client import Client
from torchyard.client.printing import Printer, bytes_of, print_frames
from torchyard.client.times import duration, seconds_between


def stream(
    client: Client, name: str, rank: int | None = None, cleans: bool = False
) -> dict[str, Any]:
    """Follow job `name` to its end and return its final JSON.

    Args:
        cleans: as client/printing.py has it.

    Raises:
        KeyboardInterrupt: the user left; the job keeps running.
    """

    def say(text: str) -> None:
        click.echo(text, err=True)

    end_line = _end_line if _share_output() else None
    live = _live_area()
    say(f"RunId: {name}\n")
    if live is not None and client.jobs.get(name).type == "pipeline":
        job = pipeline_page.follow(client, name)
        say(f"\n{_summary(client, job)}")
        return job
    printer = Printer(bytes_of(sys.stdout), say, rank, end_line, live, cleans=cleans)
    frames = client.jobs.follow(name, on_lost=printer.lost)
    job = print_frames(frames, printer)
    if rank is not None and rank not in printer.seen_ranks:
        seen = ", ".join(str(number) for number in sorted(printer.seen_ranks)) or "none"
        printer.line(f"Rank {rank} wrote nothing; ranks that did: {seen}")
    say(f"\n{_summary(client, job)}")
    return job


def _summary(client: Client, job: Mapping[str, Any]) -> str:
    text = summary(job)
    if job.get("type") != "pipeline" or job["status"] != "Failed":
        return text
    why = pipeline_page.failure(client, client.pipelines.steps(job["name"]).raw)
    return f"{text}\n\n{why}" if why else text


def _share_output() -> bool:
    """Whether stdout and stderr go to one terminal, file or pipe."""
    try:
        out, err = os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    is_one = (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino)
    return is_one or (sys.stdout.isatty() and sys.stderr.isatty())


def _live_area() -> LiveArea | None:
    """For the progress bars of several ranks; None where no cursor can be moved."""
    if os.name != "posix" or not sys.stdout.isatty() or terminal_type() in ("", "dumb"):
        return None
    return LiveArea(bytes_of(sys.stdout))


def _end_line() -> None:
    click.echo(err=True)


def leave(name: str) -> None:
    """Print how to come back to a job that keeps running."""
    click.echo(
        f"\nJob `{name}` keeps running.\n"
        f"hint: resume with `yard job stream {name}`, or cancel with `yard job cancel {name}`",
        err=True,
    )


def summary(job: Mapping[str, Any]) -> str:
    """Azure ML's `Execution Summary`, with metrics, outputs and the error."""
    name = job["name"]
    pairs: list[tuple[str, Any]] = [
        ("RunId:", name),
        ("Status:", tables.status(job["status"])),
        ("Took:", _took(job)),
    ]
    text = "Execution Summary\n=================\n" + tables.fields(pairs)
    if job.get("metrics"):
        text += "\nMetrics:\n" + page.metrics_text(job)
    for model in job.get("models") or []:
        text += f"\nModel: {plain(model['name'])}:{model['version']}"
    text += f"\nOutputs: `yard job download -n {name} --all`"
    problem = causes.error_text(job)
    return text + (f"\n\n{problem}" if problem else "")


def _took(job: Mapping[str, Any]) -> str:
    """How long the command ran, which is less than the stage Running; of what has none, or never
    started it, from start to end.
    """
    took_s, is_command = job.get("duration_s"), job.get("type", "command") == "command"
    if took_s is not None:
        return duration(took_s) + (" for the command" if is_command else "")
    took_s = seconds_between(job.get("started_at") or job["created_at"], job.get("ended_at"))
    return duration(took_s) + ("; the command did not start" if is_command else "")


def exit_code(job: Mapping[str, Any]) -> int:
    """The job's exit code; 1 for a job that did not complete and has none."""
    if job["status"] == "Completed":
        return 0
    code = job.get("exit_code") or 1
    # A negative code is a signal's number, which shells report as 128 + number.
    return code if 0 < code < 256 else 128 - code if -128 < code < 0 else 1
