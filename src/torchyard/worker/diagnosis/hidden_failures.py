"""Tell of failures that did not end a rank: what failed inside of it while it went on.

Owns: the notices about commands of the shell that failed, programs that it did not find, Pythons
that failed.
Leaves: recording them to launch/failed_commands.py and in_rank/rank_hook.py, reading the records to
artifacts.py, why a rank failed to diagnosis.py.
Always: a command whose failure is a common answer (`test`, `grep`, `diff`) is not told, nor one
whose `$?` the next command reads, nor what the shell said of a program that a `||` stands in for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torchyard.worker.diagnosis import artifacts, diagnosis, line_endings, programs
from torchyard.worker.diagnosis.artifacts import FailedCommand, FailedSteps, Record
from torchyard.worker.diagnosis.context import DiagnosisContext
from torchyard.worker.launch import failed_commands, shell_lists
from torchyard.worker.launch.ranks import RankExit

_MOST_COMMANDS = 5
_NOT_FOUND = 127
_LONGEST_SCRIPT = 200_000
# Told to end, or their reader has ended: what a shell's `kill` and `head` do.
_ENDED_BY_SIGNAL = (141, 143)
# How programs end whose reader wants no more.
_READER_LEFT: Mapping[str, Sequence[int]] = {"python": (120,), "curl": (23,)}
# Their exit code 1 is an answer: no, nothing, different.
_ANSWERS = (
    "[", "[[", "((", "test", "let", "expr", "grep", "egrep", "fgrep", "zgrep", "pgrep", "diff",
    "cmp", "read", "which", "type", "command", "hash",
)  # fmt: skip
_EXITS_ON_ERROR = re.compile(r"^[ \t]*set[ \t]+(?:-\w*e|-o[ \t]+errexit)", re.MULTILINE)
_SCRIPT = re.compile(r"\bscript[ \t][^\n]*")
_RETURNS = re.compile(r"[ \t](?:-[a-bd-z]{0,9}e|--return)")
_SHELL_MESSAGE = re.compile(
    r"^(?P<script>(?:/\S{0,200}/)?(?:ba|da)?sh|environment|\S{1,200}\.(?:ba)?sh): "
    r"(?:(?:line )?(?P<line>\d{1,9}): )?(?P<name>[^\s:]{1,200}): (?:command )?not found$",
    re.MULTILINE,
)


# What Python and shells say of a script that does not exist.
_NO_SCRIPT = re.compile(
    r"^(?:/\S{0,300}/)?(?:"
    r"python[\d.]{0,9}: can't open file '(?P<python>[^'\n]{1,400})': \[Errno 2\]"
    r"|(?:ba|da)?sh: (?:\d{1,9}: cannot open )?(?P<shell>[^\s:]{1,200}): No such file)",
    re.MULTILINE,
)


def notices(exits: Iterable[RankExit], context: DiagnosisContext, command: str) -> Iterator[str]:
    """One sentence each.

    Args:
        command: what the ranks' shells ran.
    """
    command = failed_commands.inner(command)
    ranks: dict[FailedCommand, list[int]] = {}
    errors: dict[FailedCommand, str] = {}
    others: list[str] = []
    for exit in exits:
        if exit.stop_requested:
            continue  # what was told to end may have failed because of that
        folder = context.records_folder(exit.rank.rank)
        failures = _commands(exit, folder, context, command)
        record = _failed_python(exit, folder)
        if record is not None and record.trace and record.trace.type == "BrokenPipeError":
            # Its reader wanted no more, as `head` does.
            failures = [
                step for step in failures if not (step.operator and _could_be(step, record))
            ]
            record = None
        for failure in failures:
            ranks.setdefault(failure, []).append(exit.rank.rank)
        if exit.exit_code or exit.aborted_late:
            continue
        pythons = [failure for failure in failures if _could_be(failure, record)]
        if record is not None and len(pythons) == 1:
            errors[pythons[0]] = _description(record, context)
        else:
            others += _python_notices(exit, record, failures, context, command)
        records = artifacts.records(folder)
        for failure in failures:
            matches = [each for each in records if _could_be(failure, each)]
            if failure.script and failure not in errors and len(matches) == 1:
                errors[failure] = _description(matches[0], context)
        log = artifacts.log_ends(exit.rank.log)
        others += _missing_programs(exit, log, failures, context, command)
        others += map(line_endings.advice, line_endings.scripts(command, log, context.work))
    shown = list(ranks)[:_MOST_COMMANDS]
    for failure in shown:
        yield _command_notice(failure, ranks[failure], errors.get(failure, ""), context, command)
    if len(ranks) > len(shown):
        yield f"{len(ranks) - len(shown)} more commands failed, and the job went on"
    yield from dict.fromkeys(others)


def _commands(
    exit: RankExit, folder: Path, context: DiagnosisContext, command: str
) -> list[FailedCommand]:
    """Each command of the job that failed while the shell went on, once."""
    recorded = artifacts.failed_commands(folder)
    failures = _innermost([_with_call(failure, command) for failure in recorded], context)
    if failures and (exit.aborted_late or failures[-1].exit_code == exit.exit_code):
        failures.pop()  # that is how the rank ended
    steps = list(_steps(folder, command))
    lasts = {(step.line, step.last) for step in artifacts.failed_steps(folder) if _is_before(step)}
    if steps:  # with `pipefail`, the shell names the last step, which did not fail
        failures = [each for each in failures if (each.line, each.command) not in lasts]
    failures += [
        step
        for step in steps
        if not any(inner.line == step.line and inner.command in step.command for inner in failures)
    ]
    return list(
        dict.fromkeys(
            failure
            for failure in failures
            if not _is_answer(failure)
            and not _is_read(failure, _text_around(failure, context, command))
            and _is_of_job(failure.script, context)
        )
    )


def _steps(folder: Path, command: str) -> list[FailedCommand]:
    """Steps of pipes and lists that failed before the last one."""
    steps = artifacts.failed_steps(folder)
    if "pipefail" in command:  # the pipe fails as a whole, and the shell names its last step
        steps = [step for step in steps if len(step.codes) == 1 or _is_before(step)]
    return [
        FailedCommand(code, step.line, "", 0, step.command, step.operator.replace("|&", "|"))
        for failure in steps
        for step, code in shell_lists.passed_over(
            command, failure.codes, failure.line, failure.last
        )
    ]


def _is_before(step: FailedSteps) -> bool:
    """Whether a pipe's last step succeeded while one before it failed."""
    return len(step.codes) > 1 and step.codes[-1] == 0


def _with_call(failure: FailedCommand, command: str) -> FailedCommand:
    """With the call of a function that returned a code of its own, as the command has it."""
    lines = command.split("\n")
    if failure.command.split()[:1] != ["return"] or failure.script:
        return failure
    call = lines[failure.line - 1].strip() if failure.line <= len(lines) else ""
    return replace(failure, command=call) if call else failure


def _innermost(failures: Iterable[FailedCommand], context: DiagnosisContext) -> list[FailedCommand]:
    """Leave out functions and subshells that failed only because their last command had."""
    innermost: list[FailedCommand] = []
    for failure in failures:
        inner = innermost[-1] if innermost else None
        if (
            inner is None
            or (inner.depth <= failure.depth and not _reads_commands(failure, inner))
            or inner.exit_code != failure.exit_code
            or (inner.command not in failure.command and not _reads_file(failure, inner.script))
            or not _is_of_job(inner.script, context)
        ):
            innermost.append(failure)
    return innermost


def _reads_commands(failure: FailedCommand, inner: FailedCommand) -> bool:
    """Whether it ran the inner command from a string or a file, in the same shell or another."""
    return failure.command.startswith(("eval ", "script ")) or _reads_file(failure, inner.script)


def _reads_file(failure: FailedCommand, script: str) -> bool:
    words = failure.command.split()
    return len(words) > 1 and words[0] in (".", "source") and words[1] == script != ""


def _is_read(failure: FailedCommand, command: str) -> bool:
    """Whether the next command of the shell reads the exit code."""
    rest = "\n".join(command.split("\n")[failure.line - 1 :])
    _, _, behind = rest.partition(failure.command)
    steps = re.split(r"[;\n]", behind or rest.partition("\n")[2])
    next_step = next((step for step in steps if step.strip()), "")
    return "$?" in next_step or "PIPESTATUS" in next_step


def _text_around(failure: FailedCommand, context: DiagnosisContext, command: str) -> str:
    """What the shell was reading: the job's command or a script of its code; empty if unknown."""
    if not failure.script:
        return command
    try:
        with open(context.work / failure.script, encoding="utf-8", errors="replace") as script:
            return script.read(_LONGEST_SCRIPT)
    except (OSError, ValueError):
        return ""


def _is_answer(failure: FailedCommand) -> bool:
    first = failure.command.lstrip("( ").split(maxsplit=1)[:1]
    is_arithmetic = failure.command.startswith("((")
    codes = _READER_LEFT.get("python" if "python" in "".join(first) else "".join(first), ())
    if failure.operator == "|" and failure.exit_code in codes:
        return True
    return failure.exit_code in _ENDED_BY_SIGNAL or (
        failure.exit_code == 1 and (is_arithmetic or (bool(first) and first[0] in _ANSWERS))
    )


def _is_of_job(script: str, context: DiagnosisContext) -> bool:
    """Whether it stands in the command or the job's code, not in what `source` reads elsewhere."""
    return not script.startswith("/") or Path(script).is_relative_to(context.work)


def _command_notice(
    failure: FailedCommand,
    ranks: Sequence[int],
    error: str,
    context: DiagnosisContext,
    command: str,
) -> str:
    of = f"`{failure.script}`" if failure.script else "the command"
    where = ""
    if context.has_peers:
        where = f" in rank {ranks[0]}" if len(ranks) == 1 else f" in {len(ranks)} ranks"
    if failure.exit_code == _NOT_FOUND:
        name = programs.missing(failure.command.split(), context.search_path)
        error = programs.advice(name, context.search_path)
    because = f" ({error})" if error else ""
    advice = ""
    in_first_line = "in its first line, the command ends there, and the job fails"
    if failure.operator == "|":
        if not ("pipefail" in command and _EXITS_ON_ERROR.search(command)):
            advice = f"; with `set -eo pipefail` {in_first_line}"
    elif failure.operator == "&&":
        advice = "; `set -e` ignores what stands before `&&`: end the list with `|| exit 1`"
    elif _is_in_script(failure, command):
        advice = "; give `script` the option `-e`, or it hides every exit code"
    elif not _EXITS_ON_ERROR.search(_text_around(failure, context, command)):
        advice = f"; with `set -e` {in_first_line}"
    return (
        f"line {failure.line} of {of} failed with code {failure.exit_code}{where}, and the job "
        f"went on: `{failure.text}`{because}{advice}"
    )


def _is_in_script(failure: FailedCommand, command: str) -> bool:
    """Whether a `script` without `-e` ran it, which returns 0 whatever happens."""
    lines = command.split("\n")
    match = _SCRIPT.search(lines[failure.line - 1]) if failure.line <= len(lines) else None
    if match is None or failure.script or failure.command.startswith("script "):
        return False
    return failure.command in match[0] and not _RETURNS.search(match[0])


def _failed_python(exit: RankExit, folder: Path) -> Record | None:
    """The last Python that the rank's shell started and that failed."""
    for record in reversed(artifacts.records(folder)):
        is_exception = record.kind == "exception" and record.trace is not None
        is_exit = record.kind == "exit" and bool(record.exit_code)
        if (is_exception and exit.pid in (record.parent, record.pid)) or (
            is_exit and exit.pid == record.parent
        ):
            return record
    return None


def _could_be(failure: FailedCommand, record: Record | None) -> bool:
    return (
        record is not None
        and record.exit_code == failure.exit_code
        and ("python" in failure.command or ".py" in failure.command)
    )


def _description(record: Record, context: DiagnosisContext) -> str:
    if record.kind == "exception" and record.trace is not None:
        frame = artifacts.user_frame(record.trace.frames)
        return diagnosis.short_title(record.trace) + diagnosis.location_of(frame, context)
    frame = artifacts.Frame(*record.exit_frame) if record.exit_frame is not None else None
    is_library = frame is None or frame.is_library
    location = "" if is_library else diagnosis.location_of(frame, context)
    return f"sys.exit with code {record.exit_code}{location}"


def _python_notices(
    exit: RankExit,
    record: Record | None,
    failures: Sequence[FailedCommand],
    context: DiagnosisContext,
    command: str,
) -> Iterator[str]:
    is_piped = failed_commands.has_pipe(command) and not failures
    # What exits with a code of its own choice may be handled; only a pipe loses the code.
    if record is None or (record.kind == "exit" and not is_piped):
        return
    advice = ""
    if is_piped:
        advice = "; shell pipes hide failures unless the command starts with `set -o pipefail`"
    yield (
        f"rank {exit.rank.rank} succeeded, but a program in it failed: "
        f"{_description(record, context)}{advice}"
    )


def _missing_programs(
    exit: RankExit,
    log: str,
    failures: Sequence[FailedCommand],
    context: DiagnosisContext,
    command: str,
) -> Iterator[str]:
    """Programs and scripts that were not found where the shell records no failure: in a script, in
    the background.
    """
    if "||" in command:
        return
    names: dict[str, str] = {}
    for match in _SHELL_MESSAGE.finditer(log):
        script = match["script"] if match["script"].endswith((".sh", ".bash")) else ""
        where = f" in `{script}`" if script else ""
        names.setdefault(match["name"], where)
    for name, where in list(names.items())[:_MOST_COMMANDS]:
        if any(name in failure.command for failure in failures):
            continue
        advice = ""
        if not where and failed_commands.has_pipe(command):
            advice = "; shell pipes hide failures unless the command starts with `set -o pipefail`"
        hint = programs.advice(name, context.search_path) or f"`{name}` does not exist on the node"
        yield (
            f"rank {exit.rank.rank} succeeded, but a program{where} was not found: {hint}{advice}"
        )
    scripts = (Path(match["python"] or match["shell"]).name for match in _NO_SCRIPT.finditer(log))
    for name in list(dict.fromkeys(scripts))[:_MOST_COMMANDS]:
        if not any(name in failure.command for failure in failures):
            yield f"rank {exit.rank.rank} succeeded, but a script was not found: `{name}`"
