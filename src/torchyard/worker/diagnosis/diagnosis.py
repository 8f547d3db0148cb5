"""Why the ranks of this node ended, and which of them first.

Owns: from exits and what ranks left behind to one failure in words.
Leaves: patterns and hints to causes.py, reading files to artifacts.py, the order of several nodes
to the server.
Always: the earliest cause is named, and a consequence only when no cause is found; a rank that
was told to end is blamed for nothing it did after that.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.shared.failures import Failure
from torchyard.worker.diagnosis import artifacts, causes
from torchyard.worker.diagnosis.artifacts import Frame, Record, Trace
from torchyard.worker.diagnosis.context import Scene
from torchyard.worker.launch.ranks import RankExit

_LOG_LINES, _LINE_LENGTH = 12, 400
_SEARCHED_LINES = 40
_TITLE = 300
_FRAMES = 3
_TRACEBACK = 32_000
_SHELL_SIGNAL = 128
_KILL = 9
# Signals that a rank which was told to end may still die of by its own fault.
_CRASHES = ("segmentation_fault", "bus_error", "arithmetic_fault", "illegal_instruction")
# Codes that count even if another error was raised on top.
_DEEP = ("cuda_out_of_memory", "disk_full", "io_error", "out_of_memory", "shared_memory_full",
         "too_many_files")  # fmt: skip
_DUMPED = (*_CRASHES, "aborted")


@dataclass(frozen=True)
class Verdict:
    """`at` counts seconds since 1970."""

    failure: Failure
    at: float
    consequence: bool


def culprit(exits: Sequence[RankExit], scene: Scene, ending_at: float) -> Failure | None:
    """What brought this node down; None when all that ended badly had been told to end.

    Args:
        ending_at: when the others were told to end, in seconds since 1970.
    """
    verdicts = []
    for exit in exits:
        if not exit.ordered:
            verdicts += [look(exit, scene)] if exit.exit_code else []
        else:
            verdicts += _before_the_order(exit, scene, ending_at)
    if not verdicts:
        return None
    return min(verdicts, key=lambda found: (found.consequence, found.at)).failure


def is_consequence(exit: RankExit, scene: Scene) -> bool:
    """Whether another rank's end seems to be behind this one."""
    return scene.together and look(exit, scene).consequence


def look(exit: RankExit, scene: Scene) -> Verdict:
    """One rank that ended badly."""
    folder = scene.folder(exit.rank.rank)
    found = artifacts.records(folder)
    record = artifacts.blamed(found, exit.exit_code, exit.signal, exit.at)
    tail = artifacts.log_tail(exit.rank.log)
    finding = _finding(exit, scene, folder, record, tail)
    return _verdict(exit, scene, finding, record, tail)


def hidden_failure(exit: RankExit, scene: Scene) -> str:
    """A notice about a Python that failed in a rank that ended well; empty when there is none."""
    own = exit.pid
    for record in reversed(artifacts.records(scene.folder(exit.rank.rank))):
        if record.kind == "exception" and record.trace and own in (record.parent, record.pid):
            return (
                f"rank {exit.rank.rank} ended well, though a program in it failed: "
                f"{_title(record.trace)}{_place(artifacts.where(record.trace.frames), scene)}; a "
                "shell pipe hides that unless the command begins with `set -o pipefail`"
            )
    return ""


@dataclass(frozen=True)
class _Finding:
    """What is known of an end; `what` follows the exit code or signal in the message."""

    code: str
    what: str = ""
    hint: str = ""
    consequence: bool = False
    frames: tuple[Frame, ...] = ()
    text: str = ""
    error: str = ""


def _finding(
    exit: RankExit, scene: Scene, folder: Path, record: Record | None, tail: str
) -> _Finding:
    signum = exit.signal
    if record is not None and record.kind == "exit":
        return _ended_itself(exit, scene, folder, record, tail)
    trace = record.trace if record is not None else _printed(folder, tail, signum)
    printed = artifacts.last_trace(tail) if trace is not None and not trace.frames else None
    if trace is not None and printed is not None and printed.title == trace.title:
        trace = printed  # the record was cut short
    if trace is not None:
        return _from_trace(exit, scene, trace)
    if signum:
        return _from_signal(exit, scene, folder, signum, exit.pid)
    by_shell = exit.exit_code - _SHELL_SIGNAL
    if by_shell in causes.SIGNALS:
        return _of_a_program_in_it(exit, scene, folder, by_shell)
    return _from_output(exit, scene, folder, tail)


def _printed(folder: Path, tail: str, signum: int) -> Trace | None:
    """The traceback that ends the log, if no record of it says that it was overcome."""
    trace = artifacts.last_trace(tail)
    if trace is None or (signum and trace.type != "KeyboardInterrupt"):
        return None
    known = {one.trace.title for one in artifacts.records(folder) if one.trace is not None}
    return None if trace.title in known else trace


def _from_trace(exit: RankExit, scene: Scene, trace: Trace) -> _Finding:
    inner = artifacts.original(trace)
    match = causes.of_text(f"{inner.title}", together=scene.together, exit_code=exit.exit_code)
    if match is None and inner is not trace:
        match = causes.of_text(trace.title, together=scene.together, exit_code=exit.exit_code)
    if all(file in trace.text for file in causes.DATA_LOADER_FILES):
        match = causes.of_text(causes.DATA_WORKER_LOST, together=False)
    what = _title(inner) + _place(artifacts.where(inner.frames or trace.frames), scene)
    if match is None:
        match, why = _behind(trace)
        what += f", after {why}" if why else ""
    return _Finding(
        match.code if match else "exception",
        what,
        match.hint if match else "",
        match.consequence if match else False,
        inner.frames or trace.frames,
        trace.text,
        inner.title[:_TITLE],
    )


def _of_a_program_in_it(exit: RankExit, scene: Scene, folder: Path, signum: int) -> _Finding:
    found = _from_signal(exit, scene, folder, signum, 0)
    name = causes.signal_name(signum)
    what = f"a program in it was killed by signal {signum} ({name}): {found.what}"
    return _replaced(found, what=what)


def _behind(trace: Trace) -> tuple[causes.Match | None, str]:
    """An error that led to the one that was raised last, where that says nothing by itself."""
    for error in artifacts.earlier(trace):
        match = causes.of_text(error.title, together=False)
        if match is not None and match.code in _DEEP:
            return match, _title(error)
    return None, ""


def _ended_itself(
    exit: RankExit, scene: Scene, folder: Path, record: Record, tail: str
) -> _Finding:
    """`sys.exit` with a code or a text."""
    if record.status is not None and -record.status in causes.SIGNALS:
        # As subprocess tells of a child's end.
        return _of_a_program_in_it(exit, scene, folder, -record.status)
    place = ""
    frames: tuple[Frame, ...] = ()
    if record.place is not None and not Frame(*record.place).is_library:
        at = Frame(*record.place)
        frames = (at,)
        place = _place(at, scene)
    said = f": {_first_line(record.said)}" if record.said else ""
    if record.trace is not None and not record.trace.type.startswith("runpy."):
        found = _from_trace(exit, scene, record.trace)
        code = "exited" if found.code == "exception" else found.code
        what = f"{_title(record.trace)}{_place(artifacts.where(found.frames), scene)}"
        return _replaced(found, code=code, what=f"{what}, then sys.exit{place}{said}")
    last = "\n".join(tail.splitlines()[-_SEARCHED_LINES:])
    trace = artifacts.last_trace(last)
    if trace is not None:
        found = _from_trace(exit, scene, trace)
        code = "exited" if found.code == "exception" else found.code
        return _replaced(found, code=code, what=f"{found.what}, then sys.exit{place}{said}")
    # What an argument parser or `python -m` says goes to the log, and what is said here as well.
    text = f"{record.said}\n{last}" if record.said else last
    match = causes.of_text(text, together=scene.together, exit_code=exit.exit_code)
    what = f"sys.exit{place}{said}" + (f": {match.line[:_TITLE]}" if match and not said else "")
    if not place and (said or match):
        # A library's own way to end a script, as an argument parser's.
        what = what.partition(": ")[2]
    return _Finding(
        match.code if match else "exited",
        what,
        match.hint if match else "",
        match.consequence if match else False,
        frames,
    )


def _from_signal(exit: RankExit, scene: Scene, folder: Path, signum: int, pid: int) -> _Finding:
    code, what, hint = causes.SIGNALS.get(signum, ("signaled", "", ""))
    if signum == _KILL and scene.memory.happened():
        used = f"; it had used {exit.memory_bytes / 2**30:.1f} GiB" if exit.memory_bytes else ""
        match = causes.of_text("MemoryError", together=False)
        hint = match.hint if match else ""
        return _Finding("out_of_memory", f"there was no memory left on its machine{used}", hint)
    if signum == _KILL and not hint:
        hint = "if memory was short, `dmesg` on that machine says so"
    text = artifacts.crash_stack(folder, pid)
    if not text and code in _DUMPED:
        text = artifacts.printed_stack(artifacts.log_tail(exit.rank.log))
    frames = artifacts.stack_frames(text)
    place = _place(artifacts.where(frames), scene)
    return _Finding(code, what + place, hint, False, frames, text)


def _from_output(exit: RankExit, scene: Scene, folder: Path, tail: str) -> _Finding:
    """Nothing but an exit code and what was printed."""
    last = "\n".join(line for line in tail.splitlines()[-_SEARCHED_LINES:] if line.strip())
    match = causes.of_text(last, together=scene.together, exit_code=exit.exit_code)
    if match is not None:
        return _Finding(match.code, match.line[:_TITLE], match.hint, match.consequence)
    if artifacts.was_cut_off(folder, exit.pid):
        what = "it was ended at once, by os._exit or by a library"
        return _Finding("hard_exit", what, "see the calls of `os._exit`, which says nothing")
    return _Finding("rank_failed")


def _before_the_order(exit: RankExit, scene: Scene, ending_at: float) -> list[Verdict]:
    """What had gone wrong in a rank before it was told to end, or by its own fault just then."""
    folder = scene.folder(exit.rank.rank)
    early = [one for one in artifacts.records(folder) if one.at <= ending_at and one.trace]
    record = artifacts.blamed(early, 1, 0, ending_at)
    if record is not None and record.trace is not None and record.kind == "exception":
        finding = _from_trace(exit, scene, record.trace)
        return [_verdict(exit, scene, finding, record, artifacts.log_tail(exit.rank.log))]
    if causes.SIGNALS.get(exit.signal, ("",))[0] in _CRASHES:
        return [look(exit, scene)]
    return []


def _verdict(
    exit: RankExit, scene: Scene, finding: _Finding, record: Record | None, tail: str
) -> Verdict:
    who = f"rank {exit.rank.rank} on node {scene.node}"
    if exit.ordered and finding.code not in _CRASHES:
        head = f"{who} failed"
    elif exit.signal:
        head = f"{who} was killed by signal {exit.signal} ({causes.signal_name(exit.signal)})"
    else:
        head = f"{who} exited with code {exit.exit_code}"
    at = record.at if record is not None else exit.at
    details: dict[str, Any] = {
        "rank": exit.rank.rank,
        "node": scene.node,
        "exit_code": exit.exit_code,
        "signal": exit.signal or None,
        "at": _text_of(at),
        "consequence": finding.consequence,
        "exception": finding.error,
        "frames": _user_frames(finding.frames, scene),
        "traceback": finding.text[-_TRACEBACK:],
        "log": exit.rank.log_name,
        "log_lines": _last_lines(tail),
    }
    message = f"{head}: {finding.what}" if finding.what else head
    message = message.replace(f"{scene.work}/", "").replace(f"{scene.work.parent}/", "")
    hint = finding.hint or f"see {exit.rank.log_name}"
    code = 1 if exit.ordered else exit.exit_code
    return Verdict(Failure(finding.code, message, hint, code, details), at, finding.consequence)


def _user_frames(frames: Sequence[Frame], scene: Scene) -> list[dict[str, Any]]:
    own = [frame for frame in frames if not frame.is_library] or list(frames)
    return [{**vars(frame), "file": _file(frame.file, scene)} for frame in own[-_FRAMES:]]


def _last_lines(tail: str) -> list[str]:
    lines = [line.rstrip()[:_LINE_LENGTH] for line in tail.splitlines() if line.strip()]
    return lines[-_LOG_LINES:]


def _place(frame: Frame | None, scene: Scene) -> str:
    if frame is None:
        return ""
    function = f", in {frame.function}" if frame.function not in ("", "<module>") else ""
    return f" ({_file(frame.file, scene)} line {frame.line}{function})"


def _file(path: str, scene: Scene) -> str:
    for start in (f"{scene.work}/", "./"):
        if path.startswith(start):
            return path[len(start) :]
    return path


def _title(trace: Trace) -> str:
    return _first_line(trace.title)


def _first_line(text: str) -> str:
    line = next((line for line in text.strip().splitlines() if line.strip()), "")
    return line if len(line) <= _TITLE else line[:_TITLE] + "…"


def _text_of(at: float) -> str:
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
    return f"{text}.{int(at % 1 * 1e6):06d}Z"


def _replaced(finding: _Finding, **changes: Any) -> _Finding:
    return _Finding(**{**vars(finding), **changes})
