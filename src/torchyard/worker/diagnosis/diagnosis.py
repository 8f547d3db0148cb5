"""Diagnose why a rank died: the module that handles "a rank died" on a node.

Owns: finding the root cause among the ranks of this node, from their exit codes, tracebacks, crash
stacks and logs, and turning it into one failure with a message and a hint.
Leaves: known causes and their hints to causes.py and cause_rules.py, reading files to artifacts.py,
Pythons that did not end their rank to hidden_failures.py, ranks that hang to watches.py, the root
cause among several nodes to the server's jobs/attempts/root_cause.py.
Always: the earliest cause is reported, and a consequence only if no cause is found; what a rank
does after it was told to stop is never the cause.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchyard.shared import disk, failures
from torchyard.shared.failures import Failure
from torchyard.worker.diagnosis import (
    artifacts,
    causes,
    launched_ranks,
    programs,
    unlike_ranks,
)
from torchyard.worker.diagnosis.artifacts import Frame, Record, Trace
from torchyard.worker.diagnosis.cause_rules import (
    ARGUMENTS_REFUSED,
    CANNOT_BE_REBUILT,
    MEETING_FAILED,
)
from torchyard.worker.diagnosis.context import DiagnosisContext, iso_time
from torchyard.worker.diagnosis.launched_ranks import LaunchedRank
from torchyard.worker.launch.ranks import RankExit

_LOG_LINES, _LINE_LENGTH = 12, 400
_SEARCHED_LINES = 40
_TITLE = 300
_FRAMES = 3
_TRACEBACK = 32_000
_SHELL_SIGNAL = 128
_BUDGET_S = 10.0
_KILL = 9
# Signals that are a rank's own fault even after it was told to stop.
_CRASHES = ("segmentation_fault", "bus_error", "arithmetic_fault", "illegal_instruction")
# Codes that take precedence over an error that was raised because of them.
_DECISIVE = ("cuda_out_of_memory", "disk_full", "io_error", "out_of_memory", "shared_memory_full",
             "too_many_files")  # fmt: skip
# Python's own exit code for it.
_UNWRITTEN = 120
_SHARED_MEMORY = Path("/dev/shm")
# That of shells for a program that does not exist.
_NOT_FOUND = 127
_JUST_NOW_S = 1.0
# As `argparse` introduces why it ends a script.
_PARSER_SAID = ": error: "
# What a shell says where it goes on: a program that does not exist, or a folder.
_SHELL_SAID = re.compile(
    r"^(?:\S{1,200}: line \d{1,6}: (?:[^\s:]{1,200}: command not found|cd: [^\n]{1,300})"
    r"|(?:(?:\S{1,200}/)?(?:da)?sh|\S{1,200}\.sh): \d{1,6}: (?:[^\s:]{1,200}: not found"
    r"|cd: [^\n]{1,300}))$",
    re.MULTILINE,
)
# Of these causes that may be why.
_OF_CONNECTIONS = ("connection_failed", "peer_lost")
_OF_SURROUNDINGS = ("exited", "file_missing", "import_failed", "not_distributed", "rank_failed",
                    "script_missing", "usage_error")  # fmt: skip
# Of these the value that an error quotes may be one that a file gives to the script.
_OF_VALUES = ("command_not_found", "file_missing", "script_missing", "usage_error")
# As torch.multiprocessing names the one of its processes that failed.
_SPAWNED = re.compile(
    r"\.Process(?:Raised|Exited)Exception:\s{1,9}(?:-- Process|process) (\d{1,9}) terminated"
)
_LONGEST_RANK = 10
_PORT = re.compile(r"(?<![\w.])\d{1,5}(?![\w.])")
# What Python says of an error in a destructor, before its traceback.
_IGNORED = re.compile(r"^Exception ignored in:? [^\n]{1,1000}\n\Z", re.MULTILINE)
_WITH_STACK = (*_CRASHES, "aborted")


@dataclass(frozen=True)
class Diagnosis:
    """Why one rank failed; `at` counts seconds since 1970.

    `rank` is the one that the script saw, `parent` started the Python that failed, 0 if no Python
    recorded that.
    """

    failure: Failure
    at: float
    consequence: bool
    rank: int
    parent: int


def root_cause(
    exits: Sequence[RankExit], context: DiagnosisContext, ending_at: float
) -> Failure | None:
    """The failure that came first; None if ranks failed only after they were told to stop.

    Args:
        ending_at: when running ranks were told to stop, in seconds since 1970.
    """
    diagnoses: list[Diagnosis] = []
    until = time.monotonic() + _BUDGET_S
    for exit in exits:
        if diagnoses and time.monotonic() > until:
            break  # what ranks left may be long, and the node's report must not wait for it
        if not exit.stop_requested:
            diagnoses += [diagnose(exit, context)] if exit.exit_code else []
        else:
            diagnoses += _diagnose_stopped(exit, context, ending_at)
    if not diagnoses:
        return None
    first = min(
        diagnoses,
        key=lambda each: (
            _is_after_effect(each, diagnoses), failures.vagueness(each.failure.code), each.at
        ),
    )  # fmt: skip
    failure = _with_early_exit(first, exits, context)
    errors = [(each.rank, str(each.failure.details["exception"])) for each in diagnoses]
    if unlike := unlike_ranks.other_model(errors, str(failure.details["exception"])):
        message = f"{unlike}; then: {failure.message}"
        return Failure(failure.code, message, failure.hint, failure.exit_code, failure.details)
    return failure


def _with_early_exit(
    diagnosis: Diagnosis, exits: Sequence[RankExit], context: DiagnosisContext
) -> Failure:
    """The failure, naming the rank that had exited with code 0 while this one waited for it."""
    failure = diagnosis.failure
    if failure.code not in failures.WAITED_IN_VAIN or not diagnosis.consequence:
        return failure
    early = first_early_exit(exits, context, diagnosis.at, diagnosis)
    return failure if early is None else failures.with_early_exit(failure, early)


def first_early_exit(
    exits: Sequence[RankExit],
    context: DiagnosisContext,
    until: float,
    failed: Diagnosis | None = None,
) -> dict[str, Any] | None:
    """The rank of this node that left first with code 0: its rank, node, exit code and time.

    What its Python told counts, since a process takes a while to end after it has closed its
    connections; below a launcher, only that tells of a rank.

    Args:
        until: in seconds since 1970.
        failed: of a launcher's ranks only its siblings count.
    """
    early: list[tuple[float, int, int]] = []
    for exit in exits:
        rank = exit.rank.rank
        if not exit.exit_code and not exit.stop_requested:
            early.append((exit.at, rank, exit.pid))
        if exit.exit_code and not exit.stop_requested and failed is None:
            continue
        for leaving in artifacts.leavings(context.records_folder(rank)):
            is_of_rank = exit.pid in (leaving.pid, leaving.parent) and not exit.exit_code
            is_sibling = failed is None or leaving.parent == failed.parent
            if is_of_rank or is_sibling or (exit.stop_requested and leaving.rank == rank):
                early.append((leaving.at, leaving.rank, leaving.pid))
    early = [each for each in early if each[0] <= until]
    if failed is not None:
        early = [each for each in early if each[1] != failed.rank]
    if not early:
        return None
    at, rank, pid = min(early)
    left = {"rank": rank, "node": context.node, "exit_code": 0, "at": iso_time(at)}
    if place := artifacts.place_of_exit(context.records_folder(rank), pid):
        left["where"] = location_of(place, context)
    hidden = [
        record.trace
        for record in artifacts.records(context.records_folder(rank))
        if record.kind == "exception" and abs(at - record.at) < _JUST_NOW_S
    ]
    if hidden and (trace := hidden[-1]) is not None:
        frame = artifacts.user_frame(trace.frames)
        left["error"] = short_title(trace) + location_of(frame, context)
    return left


def _is_after_effect(diagnosis: Diagnosis, diagnoses: Sequence[Diagnosis]) -> bool:
    """Whether another rank's failure explains it."""
    return diagnosis.consequence or any(
        not other.consequence
        and failures.may_have_terminated(
            diagnosis.failure.code, other.failure.code, other.at - diagnosis.at
        )
        for other in diagnoses
    )


def is_consequence(exit: RankExit, context: DiagnosisContext) -> bool:
    """Whether a rank seems to have failed because of another one."""
    return context.has_peers and diagnose(exit, context).consequence


def diagnose(exit: RankExit, context: DiagnosisContext) -> Diagnosis:
    """Diagnose one rank that failed."""
    folder = context.records_folder(exit.rank.rank)
    records = artifacts.records(folder)
    record = artifacts.decisive_record(records, exit.exit_code, exit.signal, exit.at)
    if exit.signal == signal.SIGABRT and not artifacts.ended_abruptly(folder, exit.pid):
        # It was aborted at its end, after it had failed.
        own_records = [record for record in records if record.pid == exit.pid]
        record = artifacts.decisive_record(own_records, 1, 0, exit.at) or record
    tail = artifacts.log_tail(exit.rank.log)
    launched = _launched_rank(exit, record, context, tail)
    has_launcher = record is not None and record.has_peers and not context.has_peers
    if has_launcher:
        context = replace(context, has_peers=True)
    if launched is not None and (launched.signal or launched.exit_code):
        return _diagnose_launched(launched, exit, context, record, tail)
    finding = _finding(exit, context, folder, record, tail)
    if finding.code == "exited" and finding.what.startswith("sys.exit"):
        # It gave no reason, unless it printed one; what a launcher prints is none.
        is_last = not has_launcher and launched_ranks.listed(tail, True) is None
        is_silent = record is not None and not record.message
        if is_last and is_silent:
            finding = _replaced(finding, what=finding.what + _after_last_line(tail))
    last_lines = "\n".join(tail.splitlines()[-_SEARCHED_LINES:])
    said = _SHELL_SAID.findall(last_lines) if finding.code in _OF_SURROUNDINGS else []
    if said and said[-1] not in finding.what:
        after = f", after the shell said `{said[-1][:_TITLE]}`"
        finding = _replaced(finding, what=finding.what + after)
    address = record.address if record is not None and finding.code in _OF_CONNECTIONS else ""
    if address and address not in finding.what:
        finding = _replaced(finding, what=f"{finding.what}, while connecting to {address}")
    finding = _with_own_settings(finding, exit, context)
    return _diagnosis(exit, context, finding, record, tail, launched)


def _launched_rank(
    exit: RankExit, record: Record | None, context: DiagnosisContext, tail: str
) -> LaunchedRank | None:
    """A rank of a launcher within the command that left by `sys.exit`, or that the launcher names
    where the rank itself recorded nothing.
    """
    if record is not None and record.trace is not None:
        is_list = launched_ranks.is_list(record.trace.type)
        return launched_ranks.listed(record.trace.message, False) if is_list else None
    if record is not None and record.is_of_script:
        is_launched = record.has_peers and not context.has_peers and record.rank.isdecimal()
        return LaunchedRank(int(record.rank), record.exit_code) if is_launched else None
    if exit.signal:
        return None
    return launched_ranks.listed(tail, context.node == 0 and not context.has_peers)


def _diagnose_launched(
    launched: LaunchedRank,
    exit: RankExit,
    context: DiagnosisContext,
    record: Record | None,
    tail: str,
) -> Diagnosis:
    """How the launched rank ended, instead of how its launcher did."""
    folder = context.records_folder(exit.rank.rank)
    code = launched.exit_code or _SHELL_SIGNAL + launched.signal
    ended = replace(exit, exit_code=code, signal=launched.signal, pid=0)
    script_exit = record if record is not None and record.is_of_script else None
    finding = _finding(ended, context, folder, script_exit, tail)
    report = record.trace if record is not None else None
    if finding.code in ("rank_failed", "child_failed") and report is not None:
        finding = _replaced(_from_trace(exit, context, report), what="", frames=())
    diagnosis = _diagnosis(ended, context, finding, record, tail, launched)
    diagnosis.failure.exit_code = exit.exit_code  # the job's is its command's
    return diagnosis


def _with_own_settings(finding: _Finding, exit: RankExit, context: DiagnosisContext) -> _Finding:
    """The finding with a hint at what the job sets itself, where that is the likelier cause."""
    is_killed = exit.signal == _KILL or exit.exit_code == _SHELL_SIGNAL + _KILL
    if finding.code == "out_of_memory" and not is_killed and causes.limits_memory(context.command):
        return _replaced(finding, hint=causes.OWN_MEMORY_LIMIT)
    if finding.code == "port_in_use":
        for number in _PORT.findall(f"{finding.error}\n{finding.text}"):
            if (rank := context.listeners.get(int(number))) is not None:
                return _replaced(finding, hint=causes.RANKS_ON_ONE_PORT.format(rank, number))
    return finding


@dataclass(frozen=True)
class _Finding:
    """How a rank failed; `what` follows the exit code or signal in the message."""

    code: str
    what: str = ""
    hint: str = ""
    consequence: bool = False
    frames: tuple[Frame, ...] = ()
    text: str = ""
    error: str = ""


def _finding(
    exit: RankExit, context: DiagnosisContext, folder: Path, record: Record | None, tail: str
) -> _Finding:
    signum = exit.signal
    if record is not None and record.kind == "exit":
        return _from_sys_exit(exit, context, folder, record, tail)
    trace = record.trace if record is not None else _printed_trace(folder, tail, signum)
    printed = artifacts.last_trace(tail) if trace is not None and not trace.frames else None
    if trace is not None and printed is not None and printed.title == trace.title:
        trace = printed  # the record was truncated
    if trace is not None:
        finding = _from_trace(exit, context, trace)
        if finding.code != "exception":
            return finding
        return _replaced(
            finding, what=finding.what + _what_came_before(trace, context, folder, tail)
        )
    if signum:
        return _from_signal(exit, context, folder, signum, exit.pid)
    shell_signal = exit.exit_code - _SHELL_SIGNAL
    if shell_signal in causes.SIGNALS:
        return _from_program_signal(exit, context, folder, shell_signal)
    return _from_output(exit, context, folder, tail)


def _what_came_before(trace: Trace, context: DiagnosisContext, folder: Path, tail: str) -> str:
    """An error that may have led to one without a known cause: chained to it, of a thread, printed
    or logged before it.
    """
    chained = artifacts.chained_errors(trace)
    threads = [each.trace for each in artifacts.records(folder) if each.kind == "thread"]
    own = trace.text.strip().rpartition("\n")[2]
    start = tail.rfind(own) if own else -1
    start = tail.rfind(artifacts.TRACEBACK_START, 0, start) if start >= 0 else len(tail)
    earlier = "\n".join(tail[: max(0, start)].splitlines()[-_SEARCHED_LINES:])
    begin = earlier.rfind(artifacts.TRACEBACK_START)
    is_ignored = _IGNORED.search(earlier[: max(0, begin)]) is not None
    printed = artifacts.last_trace(earlier) if not is_ignored else None
    # Other threads may have failed as this one did, all because of one that failed otherwise.
    candidates = ((chained[0] if chained else None, ""),
                  *((thread, " in a thread") for thread in reversed(threads)),
                  (printed, ", which it printed"))  # fmt: skip
    for error, how in candidates:
        if error is not None and short_title(error) != short_title(trace):
            frame = artifacts.user_frame(error.frames)
            return f", after {short_title(error)}{location_of(frame, context)}{how}"
    name = trace.type.rpartition(".")[2]
    logged = [line for line in artifacts.warnings(earlier.splitlines()) if name not in line]
    return f", after it logged `{logged[-1].strip()[:_TITLE]}`" if logged else ""


def _printed_trace(folder: Path, tail: str, signum: int) -> Trace | None:
    """The last traceback in the log, unless a record shows that it was handled."""
    trace = artifacts.last_trace(tail)
    if trace is None or (signum and trace.type != "KeyboardInterrupt"):
        return None
    children = artifacts.child_traces(tail)
    if children and children[-1].title == trace.title:
        # Processes of the script's own are ranks: one that failed first breaks the others' links.
        trace = next((child for child in children if not _is_peers_fault(child)), trace)
    recorded_titles = {
        record.trace.title for record in artifacts.records(folder) if record.trace is not None
    }
    return None if trace.title in recorded_titles else trace


def _is_peers_fault(trace: Trace) -> bool:
    match = causes.match_text(trace.title, has_peers=True)
    return match is not None and match.consequence


def _from_trace(exit: RankExit, context: DiagnosisContext, trace: Trace) -> _Finding:
    folder = context.records_folder(exit.rank.rank)
    original = artifacts.original_error(trace)
    match = causes.match_text(
        f"{original.title}", has_peers=context.has_peers, exit_code=exit.exit_code
    )
    if match is None and original is not trace:
        match = causes.match_text(
            trace.title, has_peers=context.has_peers, exit_code=exit.exit_code
        )
    if match is not None and match.code == failures.PEER_LOST and _is_of_a_server(original, folder):
        match = causes.match_text(causes.CONNECTION_FAILED, has_peers=False)
    if match is not None and match.code == failures.PEER_LOST and causes.MEETING_FILE in trace.text:
        match = causes.match_rule(MEETING_FAILED, context.has_peers)
    if all(file in trace.text for file in causes.DATA_LOADER_FILES):
        match = causes.match_text(causes.DATA_WORKER_LOST, has_peers=False)
    elif original.type == causes.FORK_ERROR and "fork" in trace.text:
        match = causes.match_text(f": {causes.FORK_REFUSED}", has_peers=False)
    elif original.type in causes.SYNTAX_ERRORS:
        match = causes.match_syntax_error([frame.file for frame in original.frames]) or match
    elif (
        (match is None or match.code == CANNOT_BE_REBUILT.code)
        and original is not trace
        and artifacts.is_of_unpickling(original)
    ):
        match = causes.match_rule(CANNOT_BE_REBUILT)
    elif program := _missing_program(original):
        line = f": {program}: command not found"
        match = causes.match_text(line, has_peers=False, exit_code=_NOT_FOUND) or match
    frames = original.frames
    if not artifacts.user_frames(frames):
        # A library's function ran in a worker of the data loader: the loop is the script's.
        frames = tuple(artifacts.user_frames(trace.frames)) or frames or trace.frames
    frame = artifacts.user_frame(frames)
    description = short_title(original)
    if frame is None or not description.endswith(f", line {frame.line})"):
        # A syntax error has its own.
        description += location_of(frame, context)
    if match is None:
        match, underlying = _underlying_cause(trace)
        description += f", after {underlying}" if underlying else ""
    return _Finding(
        match.code if match else "exception",
        description,
        match.hint if match else "",
        match.consequence if match else False,
        frames,
        trace.text,
        original.title[:_TITLE],
    )


def _is_of_a_server(error: Trace, folder: Path) -> bool:
    """Whether a connection was lost outside of torch in a rank whose peers it reaches by torch."""
    is_plain = error.type in causes.CONNECTION_ERRORS
    is_of_torch = any("/torch/" in frame.file for frame in error.frames)
    return is_plain and not is_of_torch and artifacts.has_collectives(folder)


def _missing_program(error: Trace) -> str:
    """The program that the script could not start, by `subprocess`; empty for other errors."""
    is_start = bool(error.frames) and error.frames[-1].function == "_execute_child"
    program = error.message.rpartition(": ")[2].strip("'")
    return program if is_start and "FileNotFound" in error.type and "/" not in program else ""


def _from_program_signal(
    exit: RankExit, context: DiagnosisContext, folder: Path, signum: int
) -> _Finding:
    finding = _from_signal(exit, context, folder, signum, 0)
    name = causes.signal_name(signum)
    description = f"a program in it was killed by signal {signum} ({name}): {finding.what}"
    return _replaced(finding, what=description)


def _underlying_cause(trace: Trace) -> tuple[causes.Match | None, str]:
    """A chained error that explains the last one, if that has no known cause itself."""
    for error in artifacts.chained_errors(trace):
        match = causes.match_text(error.title, has_peers=False)
        if match is not None and match.code in _DECISIVE:
            return match, short_title(error)
    return None, ""


def _from_sys_exit(
    exit: RankExit, context: DiagnosisContext, folder: Path, record: Record, tail: str
) -> _Finding:
    """`sys.exit` with a code or a text."""
    if record.status is not None and -record.status in causes.SIGNALS:
        # A child's return code as subprocess reports it.
        return _from_program_signal(exit, context, folder, -record.status)
    frames: tuple[Frame, ...] = (record.exit_frame,) if record.exit_frame is not None else ()
    location = location_of(record.exit_frame, context)
    message = f": {_first_line(record.message)}" if record.message else ""
    # A program that the script ran; what the script did then ended it.
    is_handled = record.refused_arguments and record.exit_code != exit.exit_code
    if record.trace is not None and not is_handled and not record.trace.type.startswith("runpy."):
        finding = _from_trace(exit, context, record.trace)
        code = "exited" if finding.code == "exception" else finding.code
        description = short_title(record.trace)
        if artifacts.user_frames(finding.frames) or not frames:
            frames = finding.frames
            description += location_of(artifacts.user_frame(frames), context)
        return _replaced(
            finding,
            code=code,
            what=f"{description}, then sys.exit{location}{message}",
            frames=frames,
        )
    last_lines = "\n".join(tail.splitlines()[-_SEARCHED_LINES:])
    trace = artifacts.last_trace(last_lines)
    if trace is not None and not launched_ranks.is_list(trace.type):
        finding = _from_trace(exit, context, trace)
        code = "exited" if finding.code == "exception" else finding.code
        return _replaced(
            finding, code=code, what=f"{finding.what}, then sys.exit{location}{message}"
        )
    # Argument parsers and `python -m` print their message to the log; sys.exit prints its own.
    text = f"{record.message}\n{last_lines}" if record.message else last_lines
    if record.refused_arguments:
        errors = [line.strip() for line in last_lines.splitlines() if _PARSER_SAID in line]
        text = errors[-1] if errors else ""
    match = causes.match_text(text, has_peers=context.has_peers, exit_code=exit.exit_code)
    if is_handled or (match is not None and match.code == "child_failed"):
        match = None  # its launcher says so of this script
    elif match is None and record.refused_arguments:
        match = replace(causes.match_rule(ARGUMENTS_REFUSED), line=text)
    reason = message or (f": {match.line[:_TITLE]}" if match and match.line else "")
    description = f"sys.exit{location}{reason}"
    if reason and not record.is_of_script:
        # A library ended the script, such as an argument parser.
        description = reason.removeprefix(": ") + location
    return _Finding(
        match.code if match else "exited",
        description,
        match.hint if match else "",
        match.consequence if match else False,
        frames,
    )


def _from_signal(
    exit: RankExit, context: DiagnosisContext, folder: Path, signum: int, pid: int
) -> _Finding:
    code, description, hint = causes.SIGNALS.get(signum, ("signaled", "", ""))
    if signum == _KILL and context.memory_kills.happened():
        usage = f"; it had used {exit.memory_bytes / 2**30:.1f} GiB" if exit.memory_bytes else ""
        match = causes.match_text("MemoryError", has_peers=False)
        hint = match.hint if match else ""
        return _Finding("out_of_memory", f"its machine ran out of memory{usage}", hint)
    if signum == _KILL and not hint:
        hint = "if memory ran out, `dmesg` on that machine shows it"
    if signum == signal.SIGBUS and disk.is_nearly_full(_SHARED_MEMORY):
        hint = causes.SHARED_MEMORY_FULL
    text = artifacts.crash_stack(folder, pid)
    if not text and code in _WITH_STACK:
        text = artifacts.printed_stack(artifacts.log_tail(exit.rank.log))
    frames = artifacts.stack_frames(text)
    location = location_of(artifacts.user_frame(frames), context)
    thrown = artifacts.thrown(artifacts.log_tail(exit.rank.log)) if signum == signal.SIGABRT else ""
    match = causes.match_text(thrown, has_peers=context.has_peers) if thrown else None
    if match is None:
        return _Finding(code, description + location, hint, False, frames, text)
    return _Finding(
        match.code,
        f"{thrown[:_TITLE]}{location}",
        match.hint,
        match.consequence,
        frames,
        text,
        thrown[:_TITLE],
    )


def _from_output(exit: RankExit, context: DiagnosisContext, folder: Path, tail: str) -> _Finding:
    """Diagnose from the exit code and the output alone."""
    last_lines = "\n".join(line for line in tail.splitlines()[-_SEARCHED_LINES:] if line.strip())
    match = causes.match_text(last_lines, has_peers=context.has_peers, exit_code=exit.exit_code)
    if match is not None:
        hint = match.hint
        if match.code == "command_not_found":
            nearest = programs.advice(match.subject, context.search_path)
            hint = nearest or (causes.OWN_PATH if context.own_path else hint)
        return _Finding(match.code, match.line[:_TITLE], hint, match.consequence)
    if artifacts.ended_abruptly(folder, exit.pid):
        return _from_abrupt_end(exit, context, folder, tail)
    if exit.exit_code == _UNWRITTEN and artifacts.last_orderly_end(folder):
        description = "Python could not write the rest of its output when it ended"
        hint = "the script, or what reads its output, closed stdout or stderr before"
        return _Finding("output_unwritten", description, hint)
    if artifacts.ended_orderly(folder, exit.pid):
        at = artifacts.place_of_exit(folder, exit.pid)
        what = f"the script raised SystemExit or called `exit`{location_of(at, context)}"
        what += _after_last_line(tail)
        return _Finding("exited", what, frames=(at,) if at else ())
    if exit.at - artifacts.last_orderly_end(folder) < _JUST_NOW_S:
        description = "no Python in it failed: the script raised SystemExit, or the shell exited"
        return _Finding("rank_failed", description + _after_programs(tail))
    return _Finding("rank_failed", _after_programs(tail).removeprefix(", "))


def _from_abrupt_end(
    exit: RankExit, context: DiagnosisContext, folder: Path, tail: str
) -> _Finding:
    """Python exited without its own shutdown."""
    at = artifacts.place_of_exit(folder, exit.pid)
    if at is None and (limit := artifacts.timeout_stack(tail)) is not None:
        limit_s, frames = limit
        location = location_of(artifacts.user_frame(frames), context)
        return _Finding(
            "hard_exit",
            f"`faulthandler.dump_traceback_later` ended it after {limit_s}{location}",
            "the script set that limit by `exit=True`: see the stacks in the log for what it did",
            frames=frames,
        )
    how = f"by os._exit{location_of(at, context)}" if at else "by os._exit or a library"
    return _Finding(
        "hard_exit",
        f"it exited abruptly, {how}{_after_last_line(tail)}",
        "look for calls of `os._exit`, which exits without a message",
        frames=(at,) if at else (),
    )


def _after_last_line(tail: str) -> str:
    """What a rank said last, and the error that it logged before."""
    lines = _said_last(tail)
    if not lines:
        return ""
    logged = artifacts.errors(lines)
    if logged and logged[-1] != lines[-1]:
        return f", after it logged `{logged[-1][:_TITLE]}` and printed `{lines[-1][:_TITLE]}`"
    return f", after it printed `{lines[-1][:_TITLE]}`"


def _after_programs(tail: str) -> str:
    """What the programs of a shell said last; of several lines their first and last one."""
    lines = _said_last(tail)
    begin = artifacts.programs_message(lines) if lines else ""
    if not lines or begin == lines[-1]:
        return _after_last_line(tail)
    return f", after it printed `{begin[:_TITLE]}` … `{lines[-1][:_TITLE]}`"


def _said_last(tail: str) -> list[str]:
    return [line.strip() for line in tail.splitlines()[-_SEARCHED_LINES:] if line.strip()]


def _diagnose_stopped(
    exit: RankExit, context: DiagnosisContext, ending_at: float
) -> list[Diagnosis]:
    """Failures of a stopped rank: from before the stop, or crashes of its own."""
    folder = context.records_folder(exit.rank.rank)
    early_records = [
        record for record in artifacts.records(folder) if record.at <= ending_at and record.trace
    ]
    record = artifacts.decisive_record(early_records, 1, 0, ending_at)
    if record is not None and record.trace is not None and record.kind == "exception":
        finding = _from_trace(exit, context, record.trace)
        return [_diagnosis(exit, context, finding, record, artifacts.log_tail(exit.rank.log))]
    if causes.SIGNALS.get(exit.signal, ("",))[0] in _CRASHES:
        return [diagnose(exit, context)]
    return []


def _diagnosis(
    exit: RankExit,
    context: DiagnosisContext,
    finding: _Finding,
    record: Record | None,
    tail: str,
    launched: LaunchedRank | None = None,
) -> Diagnosis:
    script_rank = launched.rank if launched else _script_rank(exit, record, context, tail)
    rank_name = f"rank {script_rank} on node {context.node}"
    if exit.stop_requested and finding.code not in _CRASHES:
        subject = f"{rank_name} failed"
    elif exit.signal:
        subject = (
            f"{rank_name} was killed by signal {exit.signal} ({causes.signal_name(exit.signal)})"
        )
    else:
        subject = f"{rank_name} exited with code {exit.exit_code}"
    at = record.at if record is not None else exit.at
    details: dict[str, Any] = {
        "rank": exit.rank.rank,
        **({"script_rank": script_rank} if script_rank != exit.rank.rank else {}),
        "node": context.node,
        "pid": exit.pid or None,
        "exit_code": exit.exit_code,
        "signal": exit.signal or None,
        "at": iso_time(at),
        "consequence": finding.consequence,
        "exception": finding.error,
        "frames": _user_frames(finding.frames, context),
        **({"called": called} if (called := artifacts.called(finding.frames)) else {}),
        "traceback": finding.text[-_TRACEBACK:],
        "log": exit.rank.log_name,
        "log_lines": _last_lines(tail),
    }
    message = f"{subject}: {finding.what}" if finding.what else subject
    message = message.replace(f"{context.work}/", "").replace(f"{context.work.parent}/", "")
    hint = finding.hint or f"see {exit.rank.log_name}"
    is_of_value = finding.code in _OF_VALUES or finding.error.startswith("ValueError: ")
    if is_of_value and causes.ends_in_carriage_return(finding.what):
        hint = causes.WINDOWS_LINES
    code = 1 if exit.stop_requested else exit.exit_code
    failure = Failure(finding.code, message, hint, code, details)
    parent = record.parent if record is not None else 0
    return Diagnosis(failure, at, finding.consequence, script_rank, parent)


def _script_rank(
    exit: RankExit, record: Record | None, context: DiagnosisContext, tail: str
) -> int:
    """The failed rank as the script numbers it: below torchrun, RANK is not the job's, and
    `torch.multiprocessing.spawn` counts on the first node as ranks do.
    """
    counts_alone = context.node == 0 and not context.has_peers
    if record is None:
        spawned_ranks = _SPAWNED.findall(tail) if counts_alone and exit.exit_code == 1 else []
        return int(spawned_ranks[-1]) if spawned_ranks else exit.rank.rank
    listed = None
    if record.trace is not None and counts_alone and not record.has_peers:
        listed = _SPAWNED.search(record.trace.text)
    rank = listed[1] if listed is not None else record.rank
    is_number = rank.isascii() and rank.isdecimal() and len(rank) < _LONGEST_RANK
    return int(rank) if is_number else exit.rank.rank


def _user_frames(frames: Sequence[Frame], context: DiagnosisContext) -> list[dict[str, Any]]:
    shown_frames = artifacts.user_frames(frames) or list(frames)
    return [
        {**vars(frame), "file": _relative_path(frame.file, context)}
        for frame in shown_frames[-_FRAMES:]
    ]


def _last_lines(tail: str) -> list[str]:
    lines = [line.rstrip()[:_LINE_LENGTH] for line in tail.splitlines() if line.strip()]
    return lines[-_LOG_LINES:]


def location_of(frame: Frame | None, context: DiagnosisContext) -> str:
    if frame is None:
        return ""
    function = f", in {frame.function}" if frame.function not in ("", "<module>") else ""
    return f" ({_relative_path(frame.file, context)} line {frame.line}{function})"


def _relative_path(path: str, context: DiagnosisContext) -> str:
    for start in (f"{context.work}/", "./"):
        if path.startswith(start):
            return path[len(start) :]
    return path


def short_title(trace: Trace) -> str:
    return _first_line(trace.title)


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    line = ""
    for each in lines:
        line = f"{line} {each}".strip()
        # One that ends in a colon says only that the next one has it.
        if not line.endswith(":") or len(line) > _TITLE:
            break
    return line if len(line) <= _TITLE else line[:_TITLE] + "…"


def _replaced(finding: _Finding, **changes: Any) -> _Finding:
    return _Finding(**{**vars(finding), **changes})
