"""A rank that was aborted after its Python had come to its end.

Owns: telling such an abort from one that cut the script off, and the notice about it.
Leaves: noticing a Python's end to in_rank/rank_hook.py, what a failed rank means to diagnosis.py.
Always: the script had ended, its atexit functions had run, and it would have exited with 0; of a
launcher's ranks every one had. Where its exit code is not known, or a shell may have skipped what
follows, the abort stays a failure.
Libraries abort there: torch destroys threads of gloo that still run ("terminate called without an
active exception").
"""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from pathlib import Path

from torchyard.worker.diagnosis import artifacts
from torchyard.worker.launch.ranks import RankExit

_SHELL_ABORT = 128 + signal.SIGABRT
# What bash says of a program that it waited for, with its words; of one in a script, it names the
# script instead.
_ABORTED = re.compile(
    r"^(?:/[^\s:]{0,200}/)?bash:(?: line [0-9]{1,9}:)? {1,9}([0-9]{1,9}) Aborted"
    r"(?: {1,30}\(core dumped\))?[ \t]{0,30}(\S.*)$",
    re.MULTILINE,
)
# With these in its command, a shell may end at a program that fails, before the rest.
_CONDITIONS = re.compile(r"&&|\|\||\b(?:set|trap|if|while|until|errexit)\b|\bsh +-|\bbash +-")
# Behind a program: another one that the shell would start when it has ended.
_NEXT = re.compile(r"[;\n](?![ \t]{0,99}[)}])|\|\||(?<![<>])&(?!>)")
_WORD = re.compile(r"[^\s;&|()]")
# As torch.distributed.launch and torchrun name their script, and list the ranks that failed.
_SCRIPT = re.compile(r"^(\S{1,1000}) FAILED$", re.MULTILINE)
_CHILD = re.compile(r"exitcode {0,9}: (-?[0-9]{1,9}) \(pid: ([0-9]{1,9})\)")

_ENDED_BY_LAUNCHER = (-signal.SIGABRT, -signal.SIGTERM, -signal.SIGKILL)


def forgive(exit: RankExit, folder: Path, command: str = "") -> RankExit:
    """The exit that the rank would have had without a late abort; the same one without.

    Args:
        folder: where the rank's Pythons leave their records.
        command: what the rank's shell runs.
    """
    if not _was_late(exit, folder, command):
        return exit
    return replace(exit, exit_code=0, signal=0, aborted_late=True)


def notice(exit: RankExit) -> str:
    return (
        f"rank {exit.rank.rank} was aborted (SIGABRT) after its script had ended successfully, and "
        "counts as successful; with torch, `torch.distributed.destroy_process_group()` at the end "
        "of the script avoids it"
    )


def _was_late(exit: RankExit, folder: Path, command: str) -> bool:
    if exit.signal:
        return exit.signal == signal.SIGABRT and artifacts.ended_well(folder, exit.pid)
    if exit.exit_code == _SHELL_ABORT:
        aborted = _ABORTED.findall(artifacts.log_tail(exit.rank.log))
        return (
            bool(aborted)
            and artifacts.ended_well(folder, int(aborted[-1][0]))
            and (not _CONDITIONS.search(command) or _is_last(command, aborted[-1][1].rstrip()))
        )
    return exit.exit_code == 1 and _children_had(exit, folder, command)


def _is_last(command: str, words: str) -> bool:
    """Whether these stand in the command once, and nothing but their pipe behind them."""
    command = command.rstrip()
    parts = command.split(words)
    whole = [
        index
        for index in range(1, len(parts))
        if not _WORD.match(parts[index - 1][-1:]) and not _WORD.match(parts[index][:1])
    ]
    if len(whole) != 1:
        return False
    first, *lines = words.join(parts[whole[0] :]).split("\n")
    return not _NEXT.search("\n".join([first, *filter(None, map(str.strip, lines))]))


def _children_had(exit: RankExit, folder: Path, command: str) -> bool:
    """Whether all that a launcher of ranks says is that their Pythons were aborted late."""
    record = artifacts.decisive_record(artifacts.records(folder), 1, 0, exit.at)
    if record is None or record.trace is None or "ChildFailedError" not in record.trace.type:
        return False
    script = _SCRIPT.search(record.trace.message)
    is_last = script is not None and _is_last(command, script[1])
    if record.pid != exit.pid and not (is_last and record.parent == exit.pid):
        return False  # a shell ran the launcher, and may have skipped what follows it
    children = [(int(code), int(pid)) for code, pid in _CHILD.findall(record.trace.message)]
    # The launcher ends the ranks that still run when one fails, also those that end just then. Of
    # one that was cut off at its work, the stack file is left.
    return (
        any(code == -signal.SIGABRT for code, _ in children)
        and all(code in _ENDED_BY_LAUNCHER for code, _ in children)
        and all(artifacts.ended_well(folder, pid) for _, pid in children)
        and not artifacts.has_abrupt_ends(folder)
    )
