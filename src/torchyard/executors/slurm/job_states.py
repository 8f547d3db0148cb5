"""What the state of a job in Slurm means for an attempt.

Owns: Slurm's states as states of nodes, why an attempt lost its nodes.
Leaves: asking Slurm to polling.py, reasons for waiting to pending_reasons.py.
Always: Slurm knows states of jobs, not of workers: nodes of a running job are running until they
report otherwise.
"""

from __future__ import annotations

import time
from datetime import datetime, timezone

from torchyard.executors.executor import EngineCause, NodeState, Status
from torchyard.executors.slurm import pending_reasons
from torchyard.executors.slurm.commands import JobRow
from torchyard.executors.slurm.durations import UNLIMITED, seconds

_WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT")
OVER = (
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "PREEMPTED",
    "NODE_FAIL",
    "BOOT_FAIL",
    "OUT_OF_MEMORY",
    "DEADLINE",
    "REVOKED",
)
_STARTING = {
    "CONFIGURING": "its nodes are being started",
    "POWER_UP_NODE": "its nodes are being started",
}
# A node that is down keeps a job in this state for minutes.
_COMPLETING_S = 30.0
# Slurm counts time limits in minutes, and looks at them every half.
_LIMIT_PRECISION_S = 65.0
# As executors/bootstrap_program.py and worker/node/starter.py say it, in one line.
_ERROR, _HINT = "error: node ", " hint: "
_CAUSES = {
    "NODE_FAIL": ("node_lost", "a node of Slurm job {id} failed", "see `sinfo -R`"),
    "BOOT_FAIL": ("node_lost", "a node of Slurm job {id} did not start", "see `sinfo -R`"),
    "OUT_OF_MEMORY": (
        "out_of_memory",
        "Slurm ended job {id}: it used more memory than it was given",
        "choose a size with more memory",
    ),
    "DEADLINE": ("time_limit", "Slurm job {id} reached its deadline", "see `--deadline`"),
    "CANCELLED": (
        "canceled_in_slurm",
        "Slurm job {id} was canceled outside of torchyard",
        "see `sacct -j {id}`; submit the job again",
    ),
    "REVOKED": ("canceled_in_slurm", "Slurm job {id} was revoked", "see `sacct -j {id}`"),
    "FAILED": ("node_lost", "Slurm job {id} ended with exit code {code}", "see `sacct -j {id}`"),
}


def status(row: JobRow | None, nodes: int, signal_s: float) -> Status:
    """
    Args:
        row: None when Slurm does not know the job any more.
        signal_s: how long before its time limit Slurm asks a job to end.
    """
    lost, pending = all_nodes("lost", nodes), all_nodes("pending", nodes)
    if row is None:
        forgotten = "Slurm does not know its job any more"
        return Status(lost, lost_because=dict.fromkeys(range(nodes), forgotten))
    if row.state in _WAITING:
        return Status(pending, reason=_waits(row))
    if row.state in _STARTING:
        return Status(pending, reason=f"waits for Slurm: {_STARTING[row.state]}")
    why = cause(row, signal_s)
    state = _node_state(row)
    lost_because = {}
    if state == "lost":
        text = why.message if why else f"Slurm says its job {row.id} is {row.state}"
        lost_because = dict.fromkeys(range(nodes), text)
    # Slurm shows the final state only when all nodes are done.
    settled = row.state != "COMPLETING" or state == "lost"
    return Status(all_nodes(state, nodes), lost_because=lost_because, cause=why, settled=settled)


def all_nodes(state: NodeState, count: int) -> tuple[NodeState, ...]:
    return (state,) * count


def cause(row: JobRow, signal_s: float) -> EngineCause | None:
    """Why Slurm ends the job, or has ended it; None while it lets it run."""
    if row.preempted_at or row.state == "PREEMPTED":
        return EngineCause("preempted", f"Slurm needs the nodes of job {row.id} for another job")
    if row.state == "TIMEOUT" or _is_at_its_limit(row, signal_s):
        limit = f" of {row.time_limit}" if row.time_limit else ""
        return EngineCause(
            "time_limit",
            f"Slurm job {row.id} reached its time limit{limit}",
            "set a longer `torchyard.time_limit`, or save checkpoints: the job then goes on from "
            "the last one",
        )
    message, hint = _said(row)
    if message:
        return EngineCause("node_unusable", f"a node could not start the worker: {message}", hint)
    if row.state not in _CAUSES:
        return None
    code, message, hint = _CAUSES[row.state]
    values = {"id": row.id, "code": row.exit_code}
    return EngineCause(code, message.format_map(values), hint.format_map(values))


def _node_state(row: JobRow) -> NodeState:
    if row.state == "COMPLETED":
        return "exited"
    if row.state == "COMPLETING":
        ended = _timestamp(row.ended_at)
        is_stuck = ended > 0 and time.time() - ended > _COMPLETING_S
        return "lost" if is_stuck else "running"
    return "lost" if row.state in (*_CAUSES, "TIMEOUT", "PREEMPTED") else "running"


def _waits(row: JobRow) -> str:
    starts = _timestamp(row.starts_at)
    expected = ""
    if starts > time.time():
        at = datetime.fromtimestamp(starts, timezone.utc)
        expected = f"; Slurm expects to start it at {at:%Y-%m-%d %H:%M} UTC"
    return f"waits for Slurm: {pending_reasons.text(row.reason)}{expected}"


def _is_at_its_limit(row: JobRow, signal_s: float) -> bool:
    limit, started = seconds(row.time_limit), _timestamp(row.starts_at)
    if not limit or limit == UNLIMITED or not started:
        return False
    is_over = row.state in ("COMPLETED", "FAILED", "COMPLETING")
    ended = _timestamp(row.ended_at) if is_over else time.time()
    return ended >= started + limit - signal_s - _LIMIT_PRECISION_S and limit > signal_s


def _said(row: JobRow) -> tuple[str, str]:
    """What the batch script left for us in the job's comment: of nodes that said why, the first's
    error and hint.
    """
    said = row.comment.partition(" | ")[2].strip()
    first = said.partition(_ERROR)[2].partition(f" {_ERROR}")[0]
    error, _, hint = first.partition(_HINT)
    return (f"node {error}", hint) if hint else (said, "")


def _timestamp(text: str) -> float:
    """Of a time as squeue writes it, in UTC; 0 where it has none."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return 0.0
