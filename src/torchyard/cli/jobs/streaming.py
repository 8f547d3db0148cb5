"""Print a job's stream.

Owns: the first and last lines as Azure ML prints them, how to come back.
Leaves: what comes between to client/printing.py.
Always: the ranks' bytes go to stdout, everything about the job to stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from torchyard.cli.jobs import causes
from torchyard.cli.terminal import tables
from torchyard.client.client import Client
from torchyard.client.printing import Printer, print_frames
from torchyard.client.times import duration, seconds_between


def stream(client: Client, name: str, rank: int | None = None) -> dict[str, Any]:
    """Follow job `name` to its end; returns its JSON as it ended.

    Raises:
        KeyboardInterrupt: the user left; the job goes on.
    """
    lost = False

    def say(text: str) -> None:
        click.echo(text, err=True)

    def on_lost(_: float) -> None:
        nonlocal lost
        if not lost:
            printer.line("The server is away; the job goes on. Waiting for it…")
        lost = True

    sys.stdout.flush()
    printer = Printer(sys.stdout.buffer, say, rank, _end_line if _meet() else None)
    say(f"RunId: {name}\n")
    frames = client.jobs.follow(name, on_lost=on_lost)
    job = print_frames(frames, printer)
    if rank is not None and rank not in printer.seen_ranks:
        seen = ", ".join(str(number) for number in sorted(printer.seen_ranks)) or "none"
        printer.line(f"Rank {rank} wrote nothing; ranks that did: {seen}")
    say(f"\n{summary(job)}")
    return job


def _meet() -> bool:
    """Whether both streams end at a terminal."""
    return sys.stdout.isatty() and sys.stderr.isatty()


def _end_line() -> None:
    click.echo(err=True)


def leave(name: str) -> None:
    """Say how to come back to a job that goes on."""
    click.echo(
        f"\nJob `{name}` keeps running.\n"
        f"hint: come back with `yard job stream {name}`, end it with `yard job cancel {name}`",
        err=True,
    )


def summary(job: Mapping[str, Any]) -> str:
    """Azure ML's `Execution Summary`, with metrics, where the outputs are, and what went wrong."""
    name = job["name"]
    started = job.get("started_at") or job["created_at"]
    pairs: list[tuple[str, Any]] = [
        ("RunId:", name),
        ("Status:", tables.status(job["status"])),
        ("Took:", duration(seconds_between(started, job.get("ended_at")))),
    ]
    text = "Execution Summary\n=================\n" + tables.fields(pairs)
    if job.get("metrics"):
        values = [(f"  {key}", tables.number(value)) for key, value in job["metrics"].items()]
        text += "\nMetrics:\n" + tables.fields(values)
    for model in job.get("models") or []:
        text += f"\nModel: {model['name']}:{model['version']}"
    text += f"\nOutputs: `yard job download -n {name} --all`"
    problem = error_text(job)
    return text + (f"\n\n{problem}" if problem else "")


def error_text(job: Mapping[str, Any]) -> str:
    """What went wrong, in the shape of every error; empty when nothing did."""
    error = job.get("error")
    if not error:
        return ""
    text = click.style("error:", fg="red", bold=True) + f" {error['message']}"
    if error.get("hint"):
        text += "\n" + click.style("hint:", fg="yellow", bold=True) + f" {error['hint']}"
    log_text = causes.context(error)
    return f"{text}\n\n{log_text}" if log_text else text


def exit_code(job: Mapping[str, Any]) -> int:
    """The job's own exit code; 1 for a job that did not complete and has none."""
    if job["status"] == "Completed":
        return 0
    code = job.get("exit_code") or 1
    # A negative one is the number of a signal, which shells show as 128 + number.
    return code if 0 < code < 256 else 128 - code if -128 < code < 0 else 1
