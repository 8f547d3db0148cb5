"""The failure of a node: stopped, a fault of the worker, or a failed rank.

Owns: failures of a stopped node and of the worker itself, also of one that was told to end; calling
the diagnosis of the ranks.
Leaves: the diagnosis of ranks to diagnosis.py, which outcome takes precedence to node/node.py.
Always: an error in the diagnosis never hides a rank's failure.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from torchyard.shared import disk
from torchyard.shared.failures import STOPPED_EXIT, Failure
from torchyard.worker.diagnosis.context import DiagnosisContext, DoneWork, iso_time
from torchyard.worker.launch.ranks import Gang, Rank, RankExit
from torchyard.worker.server.control import OVER, PEER_LOST, SIGNAL, TIMEOUT, Control

# `diagnosis` is imported where it is needed, because most jobs succeed.

_STOP_REASONS = {
    "cancel": ("canceled", "the job was canceled"),
    "release": ("stopped", "the job was released"),
    "preempted": ("preempted", "another job needs its nodes"),
    "resized": ("resized", "the job goes on with another number of nodes"),
    "failed": ("stopped", "another node failed"),
    "marked_failed": ("stopped", "the job was marked as failed"),
    PEER_LOST: ("stopped", "another node failed"),
    SIGNAL: ("stopped", "its executor was asked to stop it"),
    OVER: ("stopped", "the attempt is over"),
}


def stopped(reason: str, node: int) -> Failure:
    """The failure of a node that was told to stop."""
    if reason == TIMEOUT:
        message = "the job ran longer than its limit"
        return Failure(TIMEOUT, message, "raise `limits.timeout`", STOPPED_EXIT)
    code, reason_text = _STOP_REASONS.get(reason, ("stopped", reason))
    return Failure(code, f"node {node} was stopped: {reason_text}", "", STOPPED_EXIT)


def told_to_end(cause: str, control: Control, node: int) -> Failure:
    """The failure of a node whose worker something else than torchyard told to end.

    Args:
        cause: such as "it received SIGTERM from pid 12 (kill, user root)".
    """
    details: dict[str, object] = {"node": node, "at": iso_time(control.signaled_at)}
    if control.signal is not None:
        details["signal"] = control.signal.to_dict()
    return Failure(
        "worker_lost",
        f"the worker of node {node} was told to end: {cause}",
        "torchyard did not ask for that: a machine that shuts down does, and so does `kill`; see "
        f"`journalctl` on that machine and `system_logs/node-{node}.log` among the job's files",
        STOPPED_EXIT,
        details,
    )


def worker_failure(error: Exception) -> Failure:
    """The failure of a worker that met a full disk or an error of its own."""
    return disk.failure(error) or Failure(
        "worker_failed",
        f"the worker failed: {type(error).__name__}: {error}",
        "its traceback is in worker.log on the node",
    )


def is_consequence(exit: RankExit, context: DiagnosisContext) -> bool:
    """Whether a rank failed because of another one."""
    from torchyard.worker.diagnosis import diagnosis

    try:
        return diagnosis.is_consequence(exit, context)
    except Exception:
        traceback.print_exc()
        return False


def forgive(exit: RankExit, context: DiagnosisContext, command: str) -> RankExit:
    """The exit to record for a rank that failed: a success if it was aborted after its end."""
    from torchyard.worker.diagnosis import late_aborts

    try:
        return late_aborts.forgive(exit, context.records_folder(exit.rank.rank), command)
    except Exception:
        traceback.print_exc()
        return exit


def listeners(gang: Gang) -> dict[int, int]:
    """The running rank that listens, by port."""
    from torchyard.worker.diagnosis import joined_ranks

    return joined_ranks.listeners(gang.rank_numbers())


def late_abort_notice(exit: RankExit) -> str:
    from torchyard.worker.diagnosis import late_aborts

    return late_aborts.notice(exit)


def root_cause(gang: Gang, context: DiagnosisContext, node: int, work: Path) -> Failure | None:
    """The failure of the rank that failed first, if any."""
    from torchyard.worker.diagnosis import diagnosis

    try:
        failure = diagnosis.root_cause(gang.exits, context, gang.ending_at)
        return failure and disk.suspected(failure, work)
    except Exception as error:
        # An error in the diagnosis must not hide that a rank failed.
        traceback.print_exc()
        failed = [exit for exit in gang.exits if exit.exit_code and not exit.stop_requested]
        return _plain_failure(failed[0], node, error) if failed else None


def first_early_exit(gang: Gang, context: DiagnosisContext) -> dict[str, object] | None:
    """The rank of this node that left first with code 0, before any was told to stop."""
    from torchyard.worker.diagnosis import diagnosis

    try:
        return diagnosis.first_early_exit(gang.exits, context, gang.ending_at)
    except Exception:
        traceback.print_exc()
        return None


def hidden_failures(
    exits: Iterable[RankExit], context: DiagnosisContext, command: str
) -> list[str]:
    """Failures that did not end their rank, one sentence each."""
    exits = list(exits)
    if not any(any(context.records_folder(exit.rank.rank).glob("*.json")) for exit in exits):
        return []
    from torchyard.worker.diagnosis import hidden_failures

    try:
        return list(hidden_failures.notices(exits, context, command))
    except Exception:
        traceback.print_exc()
        return []


def silent_faults(ranks: Sequence[Rank], context: DiagnosisContext, work: DoneWork) -> list[str]:
    """What may be wrong with the work of ranks that succeeded; as silent_faults.notices."""
    from torchyard.worker.diagnosis import silent_faults

    try:
        return silent_faults.notices(ranks, context, work)
    except Exception:
        traceback.print_exc()
        return []


def _plain_failure(exit: RankExit, node: int, error: Exception) -> Failure:
    message = f"rank {exit.rank.rank} on node {node} exited with code {exit.exit_code}"
    hint = f"see {exit.rank.log_name}; the cause could not be determined: {error!r}"
    return Failure("rank_failed", message, hint, exit.exit_code)
