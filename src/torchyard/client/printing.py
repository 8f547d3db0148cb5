"""Print a job's stream.

Owns: which bytes go where: the ranks' output to `out`, everything about the job to `say`.
Leaves: connections and cursors to streams.py.
Always: bytes are never decoded. One rank's bytes are written as they come; of several ranks each
whole line is written with its rank in front, in the last state that its carriage returns left it
in, and nothing is between a line's first and last byte.
"""

from __future__ import annotations

import codecs
import io
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Protocol, TextIO

from torchyard.base.terminal_text import ColouredBytes, plain
from torchyard.client.streams import Frame
from torchyard.client.times import duration, seconds_between

# The own log of a sweep or a pipeline counts as the output of its only rank.
_RANK_LOG = re.compile(
    r"^(?:user_logs/std_log(?:_process_(\d+))?|azureml-logs/hyperdrive"
    r"|logs/azureml/executionlogs)\.txt\Z"
)
_SAID_STATUSES = {
    "CancelRequested": "Cancel requested: the job is ending",
    "NotResponding": "Not responding: no sign of life from a node, waiting for it",
}


class LiveArea(Protocol):
    """Where lines that are still being written are seen; cli/terminal/live_area.py has one."""

    def show(self, lines: Sequence[bytes]) -> None:
        """Show these in place of those before."""

    def clear(self) -> None:
        """Show none, so that something else can be written."""


@dataclass
class _Lines:
    """What one rank has written behind its last whole line."""

    prefix: bytes
    held: list[bytes] = field(default_factory=list)

    def take(self, content: bytes) -> bytes:
        """The lines that `content` completes, each behind the prefix."""
        complete, line_feed, rest = content.rpartition(b"\n")
        if not line_feed:
            self._hold(rest)
            return b""
        lines = b"".join([*self.held, complete]).split(b"\n")
        self.held.clear()
        self._hold(rest)
        return b"".join(self.prefix + last_state(line) + b"\n" for line in lines)

    def _hold(self, content: bytes) -> None:
        if b"\r" in content:
            # A progress bar rewrites its line without end; only its last state is of interest.
            text = b"".join([*self.held, content])
            self.held[:] = [last_state(text) + (b"\r" if text.endswith(b"\r") else b"")]
        elif content:
            self.held.append(content)

    @property
    def open_line(self) -> bytes:
        return last_state(b"".join(self.held))


class Printer:
    """Prints frames.

    Args:
        rank: only this rank's bytes, without prefix; None for all ranks.
        out: where the job's bytes go.
        say: prints one line about the job.
        end_line: called where the job left a line open and something else is said; None where
            the two streams never meet.
        live: shows what several ranks have written of lines that are not whole yet, such as
            progress bars; None where they are written once they are whole.
        build_log: where the bytes of an environment's build go; standard error when None.
        cleans: leave out what could control a terminal, other than colours: of somebody else's job.
    """

    def __init__(
        self,
        out: BinaryIO,
        say: Callable[[str], None],
        rank: int | None = None,
        end_line: Callable[[], None] | None = None,
        live: LiveArea | None = None,
        build_log: BinaryIO | None = None,
        cleans: bool = False,
    ) -> None:
        self._cleaned: defaultdict[tuple[Any, ...], ColouredBytes] | None = (
            defaultdict(ColouredBytes) if cleans else None
        )
        self._out = out
        self._build_log = build_log
        self._say = say
        self._leave_line = end_line
        self._live = live
        self._rank = rank
        self._lines: dict[tuple[int, str], _Lines] = {}
        self._stage_started: dict[str, str] = {}
        self._waiting = ""
        self._at_line_start = True
        self._was_lost = False
        self.seen_ranks: set[int] = set()

    def frame(self, frame: Frame) -> None:
        if self._cleaned is not None and frame.content:
            key = (frame.kind, frame.fields.get("attempt"), frame.fields.get("path"))
            frame = replace(frame, content=self._cleaned[key].take(frame.content))
        if frame.kind == "log":
            self._log(frame)
        elif frame.kind == "build":
            self._clear_live()
            self._end_line()
            if self._build_log is None:
                self._build_log = bytes_of(sys.stderr)
            self._build_log.write(frame.content)
            self._build_log.flush()
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
        self._clear_live()
        self._end_line()
        self._say(plain(text))
        self._show_live()

    def lost(self, _pause_s: float = 0.0) -> None:
        """Say once that the server is unreachable, and what starts it."""
        if not self._was_lost:
            self.line(
                "The server is unreachable; the job keeps running. Reconnecting… "
                "`yard server start` starts one that was stopped on this machine."
            )
        self._was_lost = True

    def finish(self) -> None:
        """Write what ranks left without a last line feed."""
        self._clear_live()
        for lines in self._lines.values():
            if lines.held:
                self._write(lines.prefix + lines.open_line + b"\n")
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
        text = lines.take(frame.content)
        if text:
            self._clear_live()
            self._write(text)
        self._show_live()

    def _show_live(self) -> None:
        if self._live is not None:
            pairs = ((lines.prefix, lines.open_line) for lines in self._lines.values())
            shown = sorted(prefix + text for prefix, text in pairs if text.strip())
            if shown:
                self._live.show(shown)
            else:
                self._live.clear()

    def _clear_live(self) -> None:
        if self._live is not None:
            self._live.clear()

    def _write(self, content: bytes) -> None:
        if not content:
            return
        self._out.write(content)
        self._out.flush()
        self._at_line_start = content.endswith(b"\n")

    def _end_line(self) -> None:
        if not self._at_line_start and self._leave_line is not None:
            self._leave_line()
            self._at_line_start = True

    def _stage(self, fields: dict[str, Any]) -> None:
        stage, at = str(fields.get("stage")), str(fields.get("at"))
        if fields.get("state") == "start":
            self._stage_started[stage] = at
            waits = fields.get("waited_for")
            self.line(f"{stage}…" + (f" ({waits})" if waits else ""))
            return
        took_s = fields.get("took_s")
        if took_s is None:
            took_s = seconds_between(self._stage_started.get(stage), at)
        if took_s is not None:
            self.line(f"{stage} took {duration(took_s)}")


def last_state(line: bytes) -> bytes:
    """What a line shows in the end that carriage returns began again, as progress bars do."""
    return next((text for text in reversed(line.split(b"\r")) if text), b"")


def rank_of_log(path: str) -> int | None:
    """Whose output a file of a job holds; None for other files."""
    match = _RANK_LOG.match(path)
    return None if match is None else int(match[1] or 0)


def print_frames(frames: Iterator[Frame], printer: Printer) -> dict[str, Any]:
    """Print all of them; returns the job's JSON as it ended."""
    ended: dict[str, Any] | None = None
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


class _Decoded(io.RawIOBase):
    """Bytes for a text stream that has no bytes below it, as a notebook's."""

    def __init__(self, text: TextIO) -> None:
        self._text = text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, content: Any, /) -> int:
        self._text.write(self._decoder.decode(content))
        return len(content)

    def flush(self) -> None:
        # Its text may be closed before it, and not everything that is written to can be flushed.
        if not self.closed and not getattr(self._text, "closed", False):
            flush = getattr(self._text, "flush", None)
            if flush is not None:
                flush()


class _Nowhere(io.RawIOBase):
    """Standard output or error of a process that has none: as `print`, it drops everything."""

    def writable(self) -> bool:
        return True

    def write(self, content: Any, /) -> int:
        return len(content)


def bytes_of(stream: TextIO | None) -> BinaryIO:
    """Where bytes are written for `stream`, standard output or error as anyone may replace it.

    That is what lies below it, else its text; what was printed before is written first. Only of
    Python's own stream it is known that all of its text goes below: a copy into a file too, as
    many scripts set up, often gives away the terminal's bytes as its own.
    """
    if stream is None:
        return _Nowhere()  # type: ignore[return-value]
    if getattr(type(stream), "write", None) is not io.TextIOWrapper.write:
        return _Decoded(stream)  # type: ignore[return-value]
    stream.flush()
    return stream.buffer


def say(text: str) -> None:
    """Print a line to standard output, with `?` for what its encoding lacks.

    It is on its way when this returns: a job's bytes go past the text that is held back.
    """
    try:
        print(text, flush=True)
    except UnicodeEncodeError:
        encoding = getattr(sys.stdout, "encoding", None) or "ascii"
        print(text.encode(encoding, "replace").decode(encoding), flush=True)
