"""How a node ended, where it did not end well.

Owns: the failure of a node that was stopped, or whose worker is at fault; asking for the inquest.
Leaves: what ranks left behind to diagnosis.py, the order in which is asked to node/node.py.
Always: an inquest that itself fails hides no failure.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchyard.shared import disk
from torchyard.shared.failures import STOPPED_EXIT, Failure
from torchyard.worker.diagnosis.context import Scene
from torchyard.worker.launch.ranks import Gang, RankExit
from torchyard.worker.server.control import OVER, PEER_LOST, TIMEOUT

# `inquest` is imported where it is needed: most jobs end well.

_STOPS = {
    "cancel": ("canceled", "the job was canceled"),
    "preempted": ("preempted", "another job needs its nodes"),
    "failed": ("stopped", "another node failed"),
    PEER_LOST: ("stopped", "another node failed"),
    "signal": ("stopped", "its worker was told to end"),
    OVER: ("stopped", "the attempt is over"),
}


def stopped(reason: str, node: int) -> Failure:
    """Of a node that was told to stop."""
    if reason == TIMEOUT:
        message = "the job ran longer than its limit"
        return Failure(TIMEOUT, message, "raise `limits.timeout`", STOPPED_EXIT)
    code, why = _STOPS.get(reason, ("stopped", reason))
    return Failure(code, f"node {node} was stopped: {why}", "", STOPPED_EXIT)


def unexpected(error: Exception) -> Failure:
    """Of a full disk, or of a fault of the worker's own."""
    return disk.failure(error) or Failure(
        "worker_failed",
        f"the worker failed: {type(error).__name__}: {error}",
        "its traceback is in worker.log on the node",
    )


def is_consequence(exit: RankExit, scene: Scene) -> bool:
    """Whether a rank failed only because another one did."""
    from torchyard.worker.diagnosis import diagnosis

    try:
        return diagnosis.is_consequence(exit, scene)
    except Exception:
        traceback.print_exc()
        return False


def culprit(gang: Gang, scene: Scene, node: int, work: Path) -> Failure | None:
    """The failure of the rank that failed first, if one did."""
    from torchyard.worker.diagnosis import diagnosis as inquest

    try:
        found = inquest.culprit(gang.exits, scene, gang.ending_at)
        return found and disk.suspected(found, work)
    except Exception as error:
        # Whatever ranks may have written: that one failed is told all the same.
        traceback.print_exc()
        failed = [exit for exit in gang.exits if exit.exit_code and not exit.ordered]
        return _plain(failed[0], node, error) if failed else None


def hidden_failures(exits: Iterable[RankExit], scene: Scene) -> Iterator[str]:
    """What failed inside of ranks that ended well, a sentence each."""
    for exit in exits:
        if any(scene.folder(exit.rank.rank).glob("*.json")):
            from torchyard.worker.diagnosis import diagnosis as inquest

            message = inquest.hidden_failure(exit, scene)
            if message:
                yield message


def _plain(exit: RankExit, node: int, error: Exception) -> Failure:
    message = f"rank {exit.rank.rank} on node {node} exited with code {exit.exit_code}"
    hint = f"see {exit.rank.log_name}; why could not be found out: {error!r}"
    return Failure("rank_failed", message, hint, exit.exit_code)
