"""Print a job's stream.

Owns: which bytes go where: the ranks' output to stdout, everything about the job to stderr; the
first and last lines as Azure ML prints them.
Leaves: connections and cursors to follow.py.
Always: bytes are never decoded. One rank's bytes are written as they come; of several ranks each
whole line is written with its rank in front, and nothing is between a line's first and last byte.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import click

from torchyard.answers import Job
from torchyard.cli import tables
from torchyard.client import Client
from torchyard.follow import Frame

_RANK_LOG = re.compile(r"^user_logs/std_log(?:_process_(\d+))?\.txt$")
_SAID_STATUSES = {
    "CancelRequested": "Cancel requested: the job is ending",
    "NotResponding": "Not responding: no sign of life from a node, waiting for it",
}


@dataclass
class _Lines:
    """What one rank has written behind its last whole line."""

    prefix: bytes
    held: list[bytes] = field(default_factory=list)


class Printer:
    """Prints frames.

    Args:
        rank: only this rank's bytes, without prefix; None for all ranks.
        out: where the job's bytes go.
        say: prints one line about the job.
    """

    def __init__(self, out: BinaryIO, say: Callable[[str], None], rank: int | None = None) -> None:
        self._out = out
        self._say = say
        self._rank = rank
        self._lines: dict[tuple[int, str], _Lines] = {}
        self._stage_started: dict[str, str] = {}
        self._waiting = ""
        self._at_line_start = True
        self.seen_ranks: set[int] = set()

    def frame(self, frame: Frame) -> None:
        if frame.kind == "log":
            self._log(frame)
        elif frame.kind == "build":
            self._end_line()
            sys.stderr.buffer.write(frame.content)
            sys.stderr.buffer.flush()
        elif frame.kind == "stage":
            self._stage(frame.fields)
        elif frame.kind == "notice":
            self.line(f"Notice: {frame.fields.get('message', '')}")
        elif frame.kind == "waiting":
            message = str(frame.fields.get("message") or "")
            if message and message != self._waiting:
                self.line(f"Queued: {message}")
            self._waiting = message
        elif frame.kind == "status" and frame.fields.get("status") in _SAID_STATUSES:
            self.line(_SAID_STATUSES[frame.fields["status"]])

    def line(self, text: str) -> None:
        """Say something about the job, never in the middle of the job's own line."""
        self._end_line()
        self._say(text)

    def finish(self) -> None:
        """Write what ranks left without a last line feed."""
        for lines in self._lines.values():
            if lines.held:
                self._write(lines.prefix + b"".join(lines.held) + b"\n")
                lines.held.clear()
        self._end_line()

    def _log(self, frame: Frame) -> None:
        path = str(frame.fields["path"])
        match = _RANK_LOG.match(path)
        if match is None:
            return
        digits = match[1]
        rank = int(digits or 0)
        self.seen_ranks.add(rank)
        if self._rank is not None and rank != self._rank:
            return
        if digits is None or self._rank is not None:
            self._write(frame.content)
            return
        key = (int(frame.fields["attempt"]), path)
        lines = self._lines.get(key)
        if lines is None:
            lines = self._lines[key] = _Lines(b"[%*d] " % (len(digits), rank))
        whole, line_feed, rest = frame.content.rpartition(b"\n")
        if not line_feed:
            lines.held.append(rest)
            return
        text = b"".join(lines.held) + whole
        lines.held = [rest] if rest else []
        self._write(lines.prefix + text.replace(b"\n", b"\n" + lines.prefix) + b"\n")

    def _write(self, content: bytes) -> None:
        if not content:
            return
        self._out.write(content)
        self._out.flush()
        self._at_line_start = content.endswith(b"\n")

    def _end_line(self) -> None:
        """At a terminal, where both streams meet, move on from a line the job left open."""
        if not self._at_line_start and sys.stdout.isatty() and sys.stderr.isatty():
            click.echo(err=True)
            self._at_line_start = True

    def _stage(self, fields: dict[str, Any]) -> None:
        stage, at = str(fields.get("stage")), str(fields.get("at"))
        if fields.get("state") == "start":
            self._stage_started[stage] = at
            waits = fields.get("waited_for")
            self.line(f"{stage}…" + (f" ({waits})" if waits else ""))
            return
        took = tables.seconds_between(self._stage_started.get(stage), at)
        if took is not None:
            self.line(f"{stage} took {tables.duration(took)}")


def stream(client: Client, name: str, rank: int | None = None) -> Job:
    """Follow job `name` to its end; returns the job as it ended.

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
    printer = Printer(sys.stdout.buffer, say, rank)
    say(f"RunId: {name}\n")
    frames = client.jobs.follow(name, on_lost=on_lost)
    job = _print(frames, printer)
    if rank is not None and rank not in printer.seen_ranks:
        known = ", ".join(str(seen) for seen in sorted(printer.seen_ranks)) or "none"
        printer.line(f"Rank {rank} wrote nothing; ranks that did: {known}")
    say(f"\n{summary(job)}")
    return job


def _print(frames: Iterator[Frame], printer: Printer) -> Job:
    ended: Job | None = None
    try:
        for frame in frames:
            if frame.kind == "end":
                ended = frame.fields["job"]
            else:
                printer.frame(frame)
    finally:
        printer.finish()
    assert ended is not None, "follow() ends with the frame `end`"
    return ended


def leave(name: str) -> None:
    """Say how to come back to a job that goes on."""
    click.echo(
        f"\nJob `{name}` keeps running.\n"
        f"hint: come back with `yard job stream {name}`, end it with `yard job cancel {name}`",
        err=True,
    )


def summary(job: Job) -> str:
    """Azure ML's `Execution Summary`, with metrics, where the outputs are, and what went wrong."""
    name = job["name"]
    started = job.get("started_at") or job["created_at"]
    pairs: list[tuple[str, Any]] = [
        ("RunId:", name),
        ("Status:", tables.status(job["status"])),
        ("Took:", tables.duration(tables.seconds_between(started, job.get("ended_at")))),
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


def error_text(job: Job) -> str:
    """What went wrong, in the shape of every error; empty when nothing did."""
    error = job.get("error")
    if not error:
        return ""
    text = click.style("error:", fg="red", bold=True) + f" {error['message']}"
    if error.get("hint"):
        text += "\n" + click.style("hint:", fg="yellow", bold=True) + f" {error['hint']}"
    return text


def exit_code(job: Job) -> int:
    """The job's own exit code; 1 for a job that did not complete and has none."""
    if job["status"] == "Completed":
        return 0
    code = job.get("exit_code") or 1
    # A negative one is the number of a signal, which shells show as 128 + number.
    return code if 0 < code < 256 else 128 - code if -128 < code < 0 else 1
