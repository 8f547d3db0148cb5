"""Tell the platform from where a run goes on.

Owns: the note that a job's worker reads: the step, when it was saved, when this process began.
Leaves: what becomes of metrics that are logged again to the platform.
Always: the first load of a process decides; later ones only look at other checkpoints. What can't
be written is left out, and training goes on.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from torchyard.train import run

VARIABLE, ATTEMPT = "TORCHYARD_RESUMED", "TORCHYARD_ATTEMPT_NUMBER"
_began_at = time.time_ns() // 1_000_000
_is_told = False


def tell(step: int, saved_at: int) -> None:
    """Write the note, where there is a platform that asked for one.

    Args:
        saved_at: when the state was copied, in ms since 1970.
    """
    if not _is_told:
        run.set_resumed(step)
    _tell(step, saved_at)


def tell_beginning() -> None:
    """Write that the run begins again, where an attempt before this one saved no checkpoint."""
    if os.environ.get(ATTEMPT, "1") != "1":
        _tell(0, 0)


def _tell(step: int, saved_at: int) -> None:
    global _is_told
    if _is_told:
        return
    _is_told = True
    file = os.environ.get(VARIABLE)
    if not file:
        return
    note = {"step": step, "saved_at": saved_at, "began_at": _began_at}
    draft = Path(f"{file}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(note))
        os.rename(draft, file)
    except OSError:
        pass
