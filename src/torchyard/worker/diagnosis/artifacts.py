"""What a rank left behind: records of its Pythons, stacks of crashes, the end of its log.

Owns: reading these files, Python tracebacks as text, which record explains the rank's end.
Leaves: what an error means to causes.py, whose end came first to diagnosis.py.
Always: a file that is missing, cut or strange is as good as no file; what is read is bounded.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LOG_TAIL_BYTES = 64 << 10
_MOST_RECORDS = 200
_MOST_BYTES = 128 << 10
# A record older than this at the rank's end, of another exit code, was of something overcome.
_RECENT_S = 5.0

_FRAME = re.compile(r'^\s*File "(?P<file>.+?)", line (?P<line>\d+)(?:,? in (?P<function>.+))?$')
_CRASH = "Fatal Python error"
_START = "Traceback (most recent call last):"
_ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.]*?(?:Error|Exception|Warning|Interrupt|Exit|Iteration"
                    r"|Group|Timeout|[A-Z]\w*))(?:: (?P<message>.*))?$")  # fmt: skip
_RANK_PREFIX = re.compile(r"^(?:\[rank\d+\]:? ?|\[default\d*\]:|\d+: )")
# Of no use to who wants to know where in the script it was.
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ", "<string>")


@dataclass(frozen=True)
class Frame:
    """One line of a stack; `code` is the source line, empty when it is not there."""

    file: str
    line: int
    function: str
    code: str = ""

    @property
    def is_library(self) -> bool:
        return any(part in self.file for part in _LIBRARIES)


@dataclass(frozen=True)
class Trace:
    """An error as Python prints it; frames are outermost first."""

    type: str
    message: str
    frames: tuple[Frame, ...]
    text: str

    @property
    def title(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


@dataclass(frozen=True)
class Record:
    """What a Python of the rank wrote about its own end; see in_rank/rank_record.py for the
    fields."""

    kind: str
    at: float
    started: float
    pid: int
    parent: int
    trace: Trace | None
    status: int | None = None
    said: str = ""
    place: tuple[str, int, str] | None = None

    @property
    def exit_code(self) -> int:
        if self.kind == "exit" and self.status is not None:
            return self.status & 0xFF
        return 1


def records(folder: Path) -> list[Record]:
    """All of them, oldest first."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError:
        return []
    found = (_record(folder / name) for name in names[-_MOST_RECORDS:])
    return sorted((one for one in found if one is not None), key=lambda one: one.at)


def blamed(found: Sequence[Record], exit_code: int, signum: int, ended_at: float) -> Record | None:
    """The record that explains an end, None when there is none.

    The last one does, as a shell goes on after most errors. One that only tells that a process it
    had started failed gives way to that one's own.
    """
    fatal = [one for one in found if one.kind != "thread"]
    if signum:
        # A process that is killed writes nothing; what was written is of another one.
        fatal = [one for one in fatal if one.trace and one.trace.type == "KeyboardInterrupt"]
    elif fatal and fatal[-1].exit_code != exit_code and ended_at - fatal[-1].at > _RECENT_S:
        fatal = []
    last = fatal[-1] if fatal else None
    if last is not None and last.trace is not None and not _only_reports(last.trace):
        return last
    threads = [one for one in found if one.kind == "thread" and not signum]
    if last is None:
        return threads[-1] if threads and ended_at - threads[-1].at < _RECENT_S else None
    below = [one for one in found if one is not last and one.at >= last.started and one.trace]
    return below[0] if below else last


def crash_stack(folder: Path, pid: int) -> str:
    """What faulthandler wrote when a process crashed: this one, else the one that did so last."""
    own = _text(folder / f"{pid}.stack")
    if _CRASH in own:
        return own
    try:
        others = sorted(folder.glob("*.stack"), key=lambda file: file.stat().st_mtime)
    except OSError:
        return ""
    crashed = [text for text in map(_text, others) if _CRASH in text]
    return crashed[-1] if crashed else ""


def printed_stack(text: str) -> str:
    """The same, where the script has faulthandler write to its own output; empty without one."""
    place = text.rfind(_CRASH)
    return text[place:] if place >= 0 else ""


def was_cut_off(folder: Path, pid: int) -> bool:
    """Whether this process was a Python that ended without Python's own end."""
    return (folder / f"{pid}.stack").exists()


def stack_frames(text: str, *, of_main: bool = False) -> tuple[Frame, ...]:
    """The frames of the thread that crashed, or of the main one; outermost first."""
    threads: list[list[Frame]] = []
    current = 0
    for line in text.splitlines():
        if line.startswith(("Current thread", "Thread ")):
            if line.startswith("C"):
                current = len(threads)
            threads.append([])
        match = _FRAME.match(line)
        if match and threads:
            threads[-1].append(_frame(match))
    if not threads:
        return ()
    # The main thread is the first that was made, and the last that faulthandler lists.
    return tuple(reversed(threads[-1 if of_main else current]))


def log_tail(log: Path) -> str:
    """The end of a rank's log, in whole lines, without carriage returns and rank prefixes."""
    try:
        with open(log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_TAIL_BYTES))
            content = file.read(_LOG_TAIL_BYTES)
    except OSError:
        return ""
    lines = content.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    return "\n".join(_RANK_PREFIX.sub("", line.rpartition("\r")[2]) for line in lines)


def last_trace(text: str) -> Trace | None:
    """The last traceback in a text; what chained errors tell belongs to it."""
    start = text.rfind(_START)
    if start < 0:
        return _headless(text)
    return _trace(text[start:])


def original(trace: Trace) -> Trace:
    """The error of another process that a traceback carries in its message, else itself.

    DataLoader and torch.multiprocessing hand on a child's traceback as text.
    """
    for sign in ("Original Traceback", "terminated with the following error:", '"""\n' + _START):
        place = trace.text.rfind(sign)
        if place >= 0:
            start = trace.text.find("Traceback", place)
            inner = _trace(trace.text[start:].partition('\n"""')[0])
            if inner is not None and inner.frames:
                return inner
    return trace


def earlier(trace: Trace) -> list[Trace]:
    """The errors that a traceback tells of before its own, the first one first."""
    blocks = trace.text.split(_START)[1:-1]
    found = (_trace(f"{_START}{block}") for block in blocks)
    return [one for one in found if one is not None]


def where(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's own code, else the innermost of all."""
    own = [frame for frame in frames if not frame.is_library]
    return own[-1] if own else frames[-1] if frames else None


def _record(file: Path) -> Record | None:
    try:
        body: dict[str, Any] = json.loads(_text(file))
        text = str(body["traceback"])
        trace = None
        if body["type"]:
            trace = Trace(str(body["type"]), str(body["message"]), tuple(_frames(text)), text)
        place = body["place"]
        return Record(
            kind=str(body["kind"]),
            at=float(body["at"]),
            started=float(body["started"]),
            pid=int(body["pid"]),
            parent=int(body["parent"]),
            trace=trace,
            status=None if body["status"] is None else int(body["status"]),
            said=str(body["said"] or ""),
            place=(str(place[0]), int(place[1]), str(place[2])) if place else None,
        )
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def _only_reports(trace: Trace) -> bool:
    name = trace.type.rpartition(".")[2]
    return name in ("ChildFailedError", "CalledProcessError", "ProcessExitedException",
                    "BrokenProcessPool", "SystemExit")  # fmt: skip


def _trace(text: str) -> Trace | None:
    frames, found = [], None
    lines = text.splitlines()
    end = 0
    for number, line in enumerate(lines):
        match = _FRAME.match(line)
        if match:
            following = lines[number + 1].strip() if number + 1 < len(lines) else ""
            frames.append(_frame(match, "" if _FRAME.match(following) else following))
            found = None
        elif found is None and number and not line.startswith((" ", "\t")):
            found = _ERROR.match(line)
            end = number + 1
            if (
                found is None
                and line.strip()
                and not line.startswith(("Traceback", "During", "The"))
            ):
                break
    if found is None:
        return None
    message = [found["message"] or "", *_continued(lines[end:])]
    return Trace(found["type"], "\n".join(message).strip(), tuple(frames), "\n".join(lines[:end]))


def _continued(lines: Sequence[str]) -> Iterator[str]:
    """A message goes on over lines that are no output of something else: at most a few."""
    for line in lines[:20]:
        if not line.strip() or line.startswith(("Traceback", "During", "The above")):
            return
        yield line


def _headless(text: str) -> Trace | None:
    """A syntax error is printed without a first line."""
    lines = text.splitlines()
    for number in range(len(lines) - 1, -1, -1):
        match = re.match(
            r"^(?:\w+\.)?(SyntaxError|IndentationError|TabError): (.*)$", lines[number]
        )
        if match:
            above = lines[max(0, number - 5) : number]
            frames = [_frame(found) for found in map(_FRAME.match, above) if found]
            return Trace(match[1], match[2], tuple(frames), "\n".join([*above, lines[number]]))
    return None


def _frames(text: str) -> Iterator[Frame]:
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = _FRAME.match(line)
        if match:
            following = lines[number + 1].strip() if number + 1 < len(lines) else ""
            yield _frame(match, "" if _FRAME.match(following) else following)


def _frame(match: re.Match[str], code: str = "") -> Frame:
    return Frame(match["file"], int(match["line"]), match["function"] or "", code)


def _text(file: Path) -> str:
    try:
        with open(file, "rb") as opened:
            return opened.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
