"""Keys that MLflow and SDK v1's `run.log` both log.

Owns: the name under which the points of `run.log` are kept, what the job's people are told.
Leaves: which points that concerns, and moving them, to history_store.py.
Always: MLflow's points own such a key, whichever of the two wrote first.
"""

from __future__ import annotations

from torchyard.shared.record_rules import KEY_MAX_LENGTH

_SUFFIX = " (run.log)"
NOTICE = (
    "MLflow and SDK v1's `run.log` log metrics of the same name; what `run.log` logs is kept as "
    f"`NAME{_SUFFIX}`"
)


def of_run_log(key: str) -> str:
    """Under which key the points of `run.log` are kept."""
    return key[: KEY_MAX_LENGTH - len(_SUFFIX)] + _SUFFIX
