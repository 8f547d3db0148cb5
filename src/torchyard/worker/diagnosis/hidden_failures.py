"""Tell of a Python that failed while its rank succeeded, as `python train.py | tee log` does.

Owns: the notice.
Leaves: recording how Pythons end to in_rank/rank_hook.py, reading the records to artifacts.py, why
a rank failed to diagnosis.py.
Always: only what the rank's first process started counts; a Python whose reader wants no more, as
`head` does, is not told, nor an exit code of a script's own choice unless a pipe loses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from torchyard.shared import shell_commands
from torchyard.worker.diagnosis import artifacts, diagnosis
from torchyard.worker.diagnosis.artifacts import Record
from torchyard.worker.diagnosis.context import DiagnosisContext
from torchyard.worker.launch.ranks import RankExit


def notices(exits: Iterable[RankExit], context: DiagnosisContext, command: str) -> Iterator[str]:
    """One sentence each.

    Args:
        command: what the ranks' shells ran.
    """
    is_piped = shell_commands.has_lossy_pipe(command)
    advice = ""
    if is_piped:
        advice = "; shell pipes hide failures unless the command starts with `set -o pipefail`"
    for exit in exits:
        # What was told to end may have failed because of that.
        if exit.exit_code or exit.stop_requested or exit.aborted_late:
            continue
        record = _failed_python(exit, context.records_folder(exit.rank.rank))
        if record is not None and (record.kind != "exit" or is_piped):
            part = "thread" if record.kind == "thread" else "program"
            yield (
                f"rank {exit.rank.rank} succeeded, but a {part} in it failed: "
                f"{_description(record, context)}{advice if part == 'program' else ''}"
            )


def _failed_python(exit: RankExit, folder: Path) -> Record | None:
    """The last Python that the rank's first process started and that failed, or a thread of it."""
    records = artifacts.records(folder)
    # A thread that left by `sys.exit` may have done so because of another failure.
    for record in sorted(reversed(records), key=lambda record: record.is_exit_of_thread):
        is_exception = record.kind in ("exception", "thread") and record.trace is not None
        is_exit = record.kind == "exit" and bool(record.exit_code)
        if (is_exception and exit.pid in (record.parent, record.pid)) or (
            is_exit and exit.pid == record.parent
        ):
            is_cut = record.trace is not None and record.trace.type == "BrokenPipeError"
            return None if is_cut else record
    return None


def _description(record: Record, context: DiagnosisContext) -> str:
    if record.kind != "exit" and record.trace is not None:
        frame = artifacts.user_frame(record.trace.frames)
        return diagnosis.short_title(record.trace) + diagnosis.location_of(frame, context)
    location = diagnosis.location_of(record.exit_frame, context)
    return f"sys.exit with code {record.exit_code}{location}"
