"""Read what a failed rank left: records of its Pythons, crash stacks, the end of its log.

Owns: reading these files, parsing tracebacks, which record explains the rank's exit.
Leaves: what an error means to causes.py, which rank failed first to diagnosis.py.
Always: a file that is truncated or invalid counts as missing; the amount read is limited.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from torchyard.worker.in_rank.collectives_hook import ENDING

_LOG_TAIL_BYTES = 64 << 10
_MAX_RECORDS = 200
_MAX_CALLERS = 100
_MAX_RECORDS_BYTES = 4 << 20
_MAX_STACKS = 20
_MAX_BYTES = 128 << 10
# An older record with another exit code is of an error that the rank handled.
_RECENT_S = 5.0
# The year 2100.
_LATEST_S = 4_102_444_800.0

# Loguru marks the frame that caught the error.
_FRAME = re.compile(
    r'^(?:> |\s*)File "(?P<file>.+?)", line (?P<line>\d{1,9})(?:,? in (?P<function>.+))?$'
)
_NUMBER = re.compile(r"[0-9]{1,9}")
_LONGEST_PATH, _LONGEST_CODE = 1_000, 400
_CRASH = "Fatal Python error"
_TERMINATE = "terminate called after throwing an instance of "
_GROUP_START, _GROUP_BAR = "+---------------- 1 ----------------", re.compile(r"^ {2,40}\| ?")
# How `concurrent.futures` ends the traceback of a child.
_END_OF_TEXT = re.compile("\n(?:\"\"\"|''')")
_CHILD = re.compile(r"^Process [\w-]{1,60}(?::\d{1,9}){0,4}:\n(?=Traceback )", re.MULTILINE)
# `error` in small letters is often a figure: `test error 0.3`.
_WARNS = re.compile(
    r"^(?:.{0,60}\b(?:WARNING|CRITICAL|(?-i:ERROR))|\W{0,3}error)\b.{0,200}"
    r"(?<!\b0 )(?<!\bno )\b(?:fail\w{0,5}|could not|couldn't|cannot|can't|unable|no such"
    r"|\w{0,40}(?:error|exception)s?)\b"
    r"(?!\W{0,3}(?:\d|(?:none|no|false)\s{0,3}(?:[,;.)]|$)))",
    re.IGNORECASE,
)
# A line that a script or a program marks as an error of its own; `level=ERROR` is a setting.
_IS_ERROR = re.compile(
    r"^(?:.{0,60}(?<![\w=:'\"-])(?<![=:'\"]\s)(?:ERROR|CRITICAL|FATAL)(?![\w-])(?!\W*$)"
    r"|\W{0,3}(?i:(?:fatal )?error|fatal|abort(?:ed|ing)?):)"
    r"(?!\W{0,3}(?:\d|(?i:rate\b|(?:none|no|false)\s{0,3}(?:[,;.)]|$))))"
)
# As programs begin what they say on stderr: `tar: `, `cp: `, `bash: line 1: `.
_OF_PROGRAM = re.compile(
    r"^(?!(?:warn(?:ing)?|info|not(?:e|ice)|debug|epoch|step|iter(?:ation)?|batch|loss|train|e?val):)"
    r"(?:\S{0,200}/)?[a-z][\w.+-]{0,40}: (?=[^\d\s])"
)
_REMARK = re.compile(r"\b(?:warning|note|info)\b|: Removing leading ", re.IGNORECASE)
_MOST_OF_PROGRAM = 4
# As faulthandler begins the stacks of a process that had no end in time.
_TIMEOUT = re.compile(r"^Timeout \((?P<limit>\d{1,4}:\d\d:\d\d(?:\.\d{1,6})?)\)!\n", re.MULTILINE)
_OF_STACK = re.compile(r"(?:Current t|T)hread 0x|  File \"|  \.\.\.|$")
TRACEBACK_START = "Traceback (most recent call last):"
_TRACEBACK_IN_JSON = rf"{TRACEBACK_START}\n"
# The last part of an error's name has a capital letter behind its first character.
_ERROR = re.compile(r"^(?P<type>[A-Za-z_](?:\w*\.)*[^\WA-Z]*[A-Z]\w*)(?:: (?P<message>.*))?$")
_RANK_PREFIX = re.compile(r"^(?:\[rank\d+\]:? ?|\[default\d*\]:|\d+: )")
# Frames of libraries do not show where in the user's script an error occurred.
_TEXT = "<string>"
# Errors that only say that a child process failed.
_REPORTS = ("ChildFailedError", "CalledProcessError", "ProcessExitedException",
            "BrokenProcessPool", "SystemExit")  # fmt: skip
_WORKERS_LOST = re.compile(r"DataLoader worker \(pid\(s\) ([\d, ]{1,2000})\) exited unexpectedly")
_PIPES = "/multiprocessing/"
_PROGRAMS = "/bin/"
_PARSER, _REFUSED = "/argparse.py", ["exit", "error"]
_COLLECTIVES = "/torch/distributed/distributed_c10d.py"
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ", _TEXT)


@dataclass(frozen=True)
class Frame:
    """One line of a stack; `code` is the source line, empty if it is not available."""

    file: str
    line: int
    function: str
    code: str = ""

    @property
    def is_library(self) -> bool:
        return any(part in self.file for part in _LIBRARIES)


@dataclass(frozen=True)
class Trace:
    """A printed Python error; frames are outermost first."""

    type: str
    message: str
    frames: tuple[Frame, ...]
    text: str

    @property
    def title(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


@dataclass(frozen=True)
class Record:
    """What a Python of the rank recorded about its exit; in_rank/rank_record.py has the fields.

    `callers` are where it called `sys.exit`, then who called that function, and so on. `rank` is
    RANK as that Python saw it, which a launcher such as torchrun may have set, and `has_peers`
    whether its WORLD_SIZE was more than 1. `address` is the one that it could not connect to.
    """

    kind: str
    at: float
    started: float
    pid: int
    parent: int
    trace: Trace | None
    status: int | None = None
    message: str = ""
    callers: tuple[Frame, ...] = ()
    rank: str = ""
    has_peers: bool = False
    address: str = ""

    @property
    def exit_code(self) -> int:
        if self.kind == "exit" and self.status is not None:
            return self.status & 0xFF
        return 1

    @property
    def is_of_script(self) -> bool:
        """Whether the user's own code ended it by `sys.exit`, not a library such as a launcher."""
        return bool(self.callers) and not self.callers[0].is_library

    @property
    def is_exit_of_thread(self) -> bool:
        """Whether only a thread ended, by `sys.exit`."""
        return self.kind == "thread" and self.trace is not None and self.trace.type == "SystemExit"

    @property
    def exit_frame(self) -> Frame | None:
        """The user's line that called `sys.exit`, or the library that did; of what a package
        installs as a program there is none.
        """
        if self.is_of_script:
            return self.callers[0]
        users = (frame for frame in self.callers if not frame.is_library)
        return next((frame for frame in users if _PROGRAMS not in frame.file), None)

    @property
    def refused_arguments(self) -> bool:
        """Whether a parser of arguments ended it, or its caller by that, as they are wrong."""
        return [frame.function for frame in self.callers[:2] if _PARSER in frame.file] == _REFUSED


@dataclass(frozen=True)
class Leaving:
    """A Python that left with code 0; `rank` as that Python saw it, `alone` if it used torch as one
    of several ranks and called no collective.
    """

    rank: int
    pid: int
    parent: int
    at: float
    alone: bool = False


def records(folder: Path) -> list[Record]:
    """All records in `folder`, oldest first."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError:
        return []
    texts: list[str] = []
    budget = _MAX_RECORDS_BYTES
    for name in names[: -_MAX_RECORDS - 1 : -1]:
        text = text_of(folder / name) if budget > 0 else ""
        texts.append(text)
        budget -= len(text)
    parsed = (_record(text) for text in reversed(texts))
    return sorted((record for record in parsed if record is not None), key=lambda record: record.at)


def decisive_record(
    candidates: Sequence[Record], exit_code: int, signum: int, ended_at: float
) -> Record | None:
    """The record that explains a rank's exit, if any.

    This is the last one, because a shell continues after most errors. If it only reports that a
    child process failed, the child's own record is used; so is that of a data-loader worker that
    the message names by its pid.
    """
    fatal = [record for record in candidates if record.kind != "thread"]
    if signum:
        # A killed process writes nothing, so the records are of other processes.
        fatal = [
            record for record in fatal if record.trace and record.trace.type == "KeyboardInterrupt"
        ]
    elif fatal and fatal[-1].exit_code != exit_code and ended_at - fatal[-1].at > _RECENT_S:
        fatal = []
    last = fatal[-1] if fatal else None
    if last is not None and last.trace is not None and not _is_report(last.trace):
        lost_pids = _lost_workers(last.trace)
        workers = (record for record in candidates if record.pid in lost_pids and record.trace)
        return next((record for record in workers if record.at >= last.started), last)
    threads = [record for record in candidates if record.kind == "thread" and not signum]
    threads.sort(key=lambda record: not record.is_exit_of_thread)
    if last is None:
        return threads[-1] if threads and ended_at - threads[-1].at < _RECENT_S else None
    children = [
        record
        for record in candidates
        if record is not last
        and record.at >= last.started
        and (record.trace or (record.is_of_script and not last.is_of_script))
    ]
    return children[0] if children else last


def leavings(folder: Path) -> list[Leaving]:
    """The Pythons of a rank that left with code 0."""
    pythons = []
    try:
        files = [(file, file.stat().st_mtime) for file in folder.glob("*.left")]
    except OSError:
        return []
    for file, at in files:
        rank, parent, alone = (*text_of(file).split(" "), "", "", "")[:3]
        numbers = (rank, file.stem, parent)
        if all(_NUMBER.fullmatch(number) for number in numbers):
            leaving = Leaving(int(rank), int(file.stem), int(parent), at, alone == "alone")
            pythons.append(leaving)
    return pythons


def crash_stack(folder: Path, pid: int) -> str:
    """The stack that faulthandler wrote for this process, otherwise for the last crashed one."""
    stack = text_of(folder / f"{pid}.stack")
    if _CRASH in stack:
        return stack
    try:
        files = sorted(folder.glob("*.stack"), key=lambda file: file.stat().st_mtime)
    except OSError:
        return ""
    crash_stacks = (text for text in map(text_of, files[: -_MAX_STACKS - 1 : -1]) if _CRASH in text)
    return next(crash_stacks, "")


def printed_stack(text: str) -> str:
    """The stack that faulthandler wrote to the script's own output; empty without one."""
    start = text.rfind(_CRASH)
    return text[start:] if start >= 0 else ""


def thrown(text: str) -> str:
    """What the C++ exception said that ended a process by std::terminate; empty without one."""
    start = text.rfind(_TERMINATE)
    _, found, said = text[start:].partition("what():") if start >= 0 else ("", "", "")
    return said.strip().partition("\n")[0] if found else ""


def ended_abruptly(folder: Path, pid: int) -> bool:
    """Whether this process was a Python that exited without Python's own shutdown."""
    return (folder / f"{pid}.stack").exists()


def has_collectives(folder: Path) -> bool:
    """Whether a Python of the rank had imported torch.distributed."""
    return any(folder.glob(f"*{ENDING}*"))


def place_of_exit(folder: Path, pid: int) -> Frame | None:
    """Where this process called `os._exit` or raised SystemExit; None if that isn't known."""
    line, _, rest = text_of(folder / f"{pid}.place").partition(" ")
    function, _, file = rest.partition(" ")
    if not _NUMBER.fullmatch(line) or not file:
        return None
    return Frame(file[-_LONGEST_PATH:], int(line), function[:_LONGEST_CODE])


def ended_orderly(folder: Path, pid: int) -> bool:
    """Whether this process was a Python that came to its end without an error."""
    return ended_well(folder, pid) or (folder / f"{pid}.quit").exists()


def ended_well(folder: Path, pid: int) -> bool:
    """Whether it would have exited with 0 as well."""
    return (folder / f"{pid}.end").exists() and not ended_abruptly(folder, pid)


def has_abrupt_ends(folder: Path) -> bool:
    """Whether any Python of the rank exited without Python's own shutdown, or runs."""
    return any(folder.glob("*.stack"))


def lifetimes(folder: Path) -> list[tuple[float, float]]:
    """When each Python that came to its end had started and ended, in seconds since 1970."""
    try:
        stats = [file.stat() for file in (*folder.glob("*.end"), *folder.glob("*.quit"))]
    except OSError:
        return []
    # The file was made at its start, and renamed at its end; with stacks in it, the start is lost.
    return [(stat.st_mtime, stat.st_ctime) for stat in stats if not stat.st_size]


def last_orderly_end(folder: Path) -> float:
    """When the last Python came to its end, in seconds since 1970; 0 if none did."""
    try:
        files = [*folder.glob("*.end"), *folder.glob("*.quit")]
        return max((file.stat().st_ctime for file in files), default=0.0)
    except OSError:
        return 0.0


def stack_frames(text: str, *, of_main: bool = False) -> tuple[Frame, ...]:
    """The frames of the thread that crashed, or of the main thread; outermost first."""
    threads, current = _threads(text)
    if not threads:
        return ()
    # faulthandler lists threads in reverse order of creation, so the main thread is the last one.
    return threads[-1 if of_main else current]


def other_threads(text: str) -> list[tuple[Frame, ...]]:
    """The frames of all threads but the main one, the first started first."""
    return _threads(text)[0][-2::-1]


def _threads(text: str) -> tuple[list[tuple[Frame, ...]], int]:
    """The frames of each thread, and which of them wrote this or crashed."""
    threads: list[list[Frame]] = []
    # Without Python frames of its own, as one of a library's threads, it is listed nowhere.
    current = -1
    for line in text.splitlines():
        if line.startswith(("Current thread", "Thread ")):
            if line.startswith("C"):
                current = len(threads)
            threads.append([])
        match = _FRAME.match(line)
        if match and threads:
            threads[-1].append(_frame(match))
    return [tuple(reversed(thread)) for thread in threads], current


def log_tail(log: Path) -> str:
    """The end of a rank's log, in whole lines, without carriage returns and rank prefixes, and with
    the tracebacks that a script logs as JSON, or with a time before each line, as Python prints
    them.
    """
    content = _read(log, _LOG_TAIL_BYTES, from_end=True)
    lines = content.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    plain = [_RANK_PREFIX.sub("", line.rpartition("\r")[2]) for line in lines]
    return "\n".join(_with_plain_tracebacks(plain))


def _with_plain_tracebacks(lines: Sequence[str]) -> Iterator[str]:
    # How long what a logger writes before each line of a traceback is; 0 outside of one.
    prefix = 0
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if _TRACEBACK_IN_JSON in line and line.lstrip().startswith("{"):
            yield line
            yield from _traceback_in_json(line)
        elif prefix:
            yield line[prefix:]
            # Its last line is the error, which alone begins at the margin.
            prefix *= line[prefix : prefix + 1].isspace() or line.endswith(TRACEBACK_START)
        else:
            start = line.find(TRACEBACK_START)
            is_prefixed = start > 0 and _FRAME.match(following[start:]) is not None
            prefix = start if is_prefixed and following[:start].strip() else 0
            yield line[prefix:]


def _traceback_in_json(line: str) -> list[str]:
    """The last lines of text in a JSON object that hold a traceback."""
    try:
        values = json.loads(line).values()
    except (ValueError, AttributeError, RecursionError):
        return []
    texts = [each for each in values if isinstance(each, str) and TRACEBACK_START in each]
    return texts[-1].splitlines() if texts else []


def warnings(lines: Iterable[str]) -> list[str]:
    """The lines by which a script logs that something failed."""
    return [line for line in lines if _WARNS.search(line)]


def errors(lines: Iterable[str]) -> list[str]:
    """The lines that say of themselves that they tell of an error."""
    return [line for line in lines if _IS_ERROR.search(line)]


def programs_message(lines: Sequence[str]) -> str:
    """The first line of what one or a few programs said at the end, one line each, such as
    `gzip: stdin: not in gzip format` before `tar: Child returned status 1`; the last line if none
    did.

    Args:
        lines: at least one, none of them empty.
    """
    last = takewhile(_OF_PROGRAM.match, lines[: -_MOST_OF_PROGRAM - 1 : -1])
    said = [line for line in last if not _REMARK.search(line)]
    return said[-1] if said else lines[-1]


def timeout_stack(text: str) -> tuple[str, tuple[Frame, ...]] | None:
    """The limit after which faulthandler wrote the stacks at the end of this text, and the frames
    of the main thread; None if the process went on to print something else.
    """
    *_, last = (None, *_TIMEOUT.finditer(text))
    if last is None:
        return None
    stacks = text[last.end() :]
    if not all(map(_OF_STACK.match, stacks.splitlines())):
        return None
    return last["limit"], stack_frames(stacks, of_main=True)


def last_trace(text: str) -> Trace | None:
    """The last traceback in a text, including its chained errors."""
    start = text.rfind(TRACEBACK_START)
    if start < 0:
        return _syntax_error_trace(text)
    return _trace(text[start:])


def child_traces(text: str) -> list[Trace]:
    """The tracebacks that processes of Python's multiprocessing printed, in that order."""
    _, *blocks = _CHILD.split(text)
    traces = (_trace(block) for block in blocks)
    return [trace for trace in traces if trace is not None]


def original_error(trace: Trace) -> Trace:
    """The child's error if the message contains one, otherwise the error itself.

    DataLoader and torch.multiprocessing pass a child's traceback on as text, and an ExceptionGroup
    has those of its errors behind bars.
    """
    if _GROUP_START in trace.text:
        inner_lines = trace.text.split(_GROUP_START, 1)[1].splitlines()[1:]
        ends = takewhile(lambda line: not line.lstrip().startswith("+-"), inner_lines)
        error = _trace("\n".join(_GROUP_BAR.sub("", line) for line in ends))
        if error is not None and error.frames:
            return error
    for marker in (
        "Original Traceback",
        "terminated with the following error:",
        f'"""\n{TRACEBACK_START}',
        f"'''\n{TRACEBACK_START}",
    ):
        position = trace.text.rfind(marker)
        if position >= 0:
            start = trace.text.find("Traceback", position)
            inner = _trace(_END_OF_TEXT.split(trace.text[start:], 1)[0])
            if inner is not None and inner.frames:
                return inner
    return trace


def chained_errors(trace: Trace) -> list[Trace]:
    """The chained errors that a traceback prints before its own, first one first."""
    blocks = trace.text.split(TRACEBACK_START)[1:-1]
    errors = (_trace(f"{TRACEBACK_START}{block}") for block in blocks)
    return [error for error in errors if error is not None]


def is_of_unpickling(trace: Trace) -> bool:
    """Whether what another process of Python's multiprocessing sent can't be made from its parts:
    the call itself fails, not what it calls.
    """
    last = trace.frames[-1] if trace.frames else None
    is_reading = last is not None and _PIPES in last.file and ".loads(" in last.code
    return is_reading and trace.type == "TypeError"


def user_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's code, otherwise the innermost one with a file."""
    chosen = user_frames(frames) or [f for f in frames if not f.file.startswith("<frozen ")]
    return chosen[-1] if chosen else frames[-1] if frames else None


def called(frames: Sequence[Frame]) -> str:
    """The function of torch.distributed that the user's code called; empty without one."""
    return next((f.function for f in frames if f.file.endswith(_COLLECTIVES)), "")


def user_frames(frames: Sequence[Frame]) -> list[Frame]:
    """The frames of the user's code; of `python -c` that is the text itself, too."""
    is_text = bool(frames) and frames[0].file == _TEXT
    return [f for f in frames if not f.is_library or (is_text and f.file == _TEXT)]


def _record(content: str) -> Record | None:
    try:
        body: dict[str, Any] = json.loads(content)
        text = str(body["traceback"])
        trace = None
        if body["type"]:
            trace = Trace(str(body["type"]), str(body["message"]), tuple(_frames(text)), text)
        return Record(
            kind=str(body["kind"]),
            at=_moment(body["at"]),
            started=float(body["started"]),
            pid=int(body["pid"]),
            parent=int(body["parent"]),
            trace=trace,
            status=None if body["status"] is None else int(body["status"]),
            message=str(body["said"] or ""),
            callers=tuple(_called_from(*caller) for caller in body["callers"][:_MAX_CALLERS]),
            rank=str(body.get("rank") or ""),
            has_peers=str(body.get("world_size") or "1") != "1",
            address=str(body.get("address") or "")[:_LONGEST_CODE],
        )
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError):
        return None


def _called_from(file: object, line: Any, function: object) -> Frame:
    return Frame(str(file)[-_LONGEST_PATH:], int(line), str(function)[:_LONGEST_CODE])


def _moment(seconds: Any) -> float:
    """
    Raises:
        ValueError: it is not in this epoch.
    """
    at = float(seconds)
    if not 0 <= at < _LATEST_S:
        raise ValueError(at)
    return at


def _is_report(trace: Trace) -> bool:
    return trace.type.rpartition(".")[2] in _REPORTS


def _lost_workers(trace: Trace) -> list[int]:
    """The pids of the data-loader workers that a script says it has lost."""
    match = _WORKERS_LOST.search(trace.message)
    return [int(pid) for pid in _NUMBER.findall(match[1])] if match else []


def _trace(text: str) -> Trace | None:
    frames, title = [], None
    lines = text.splitlines()
    end = 0
    for number, line in enumerate(lines):
        match = _FRAME.match(line)
        if match:
            following = lines[number + 1].strip() if number + 1 < len(lines) else ""
            frames.append(_frame(match, "" if _FRAME.match(following) else following))
            title = None
        elif title is None and number and not line.startswith((" ", "\t")):
            title = _ERROR.match(line)
            end = number + 1
            if (
                title is None
                and line.strip()
                and not line.startswith(("Traceback", "During", "The"))
            ):
                break
    if title is None:
        return None
    message = [title["message"] or "", *_message_lines(lines[end:])]
    return Trace(title["type"], "\n".join(message).strip(), tuple(frames), "\n".join(lines[:end]))


def _message_lines(lines: Sequence[str]) -> Iterator[str]:
    """The further lines of a message, at most a few, up to unrelated output."""
    for line in lines[:20]:
        if not line.strip() or line.startswith(("Traceback", "During", "The above")):
            return
        yield line


def _syntax_error_trace(text: str) -> Trace | None:
    """Find a syntax error, which Python prints without the first line of a traceback."""
    lines = text.splitlines()
    for number in range(len(lines) - 1, -1, -1):
        match = re.match(
            r"^(?:\w+\.)?(SyntaxError|IndentationError|TabError): (.*)$", lines[number]
        )
        if match:
            context_lines = lines[max(0, number - 5) : number]
            frames = [
                _frame(frame_match)
                for frame_match in map(_FRAME.match, context_lines)
                if frame_match
            ]
            return Trace(
                match[1], match[2], tuple(frames), "\n".join([*context_lines, lines[number]])
            )
    return None


def _frames(text: str) -> Iterator[Frame]:
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = _FRAME.match(line)
        if match:
            following = lines[number + 1].strip() if number + 1 < len(lines) else ""
            yield _frame(match, "" if _FRAME.match(following) else following)


def _frame(match: re.Match[str], code: str = "") -> Frame:
    file = match["file"][-_LONGEST_PATH:]
    function = (match["function"] or "")[:_LONGEST_CODE]
    return Frame(file, int(match["line"]), function, code[:_LONGEST_CODE])


def text_of(file: Path) -> str:
    """The beginning of a file that a rank left; empty if it can't be read."""
    return _read(file, _MAX_BYTES).decode("utf-8", "replace")


def _read(file: Path, size_bytes: int, *, from_end: bool = False) -> bytes:
    """Empty for all but regular files: a job may put a pipe in its place, which never ends."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(descriptor, "rb") as stream:
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return b""
            if from_end:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - size_bytes))
            return stream.read(size_bytes)
        except OSError:
            return b""
