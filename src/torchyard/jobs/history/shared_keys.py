"""Keys that more than one logs: MLflow, SDK v1's `run.log`, the worker that samples.

Owns: the name under which the points of those are kept who do not own the key, what the job's
people are told.
Leaves: which points that concerns, and moving them, to history_store.py.
Always: MLflow's points own such a key, then those of `run.log`, whoever wrote first: what a script
logs is the script's.
"""

from __future__ import annotations

from torchyard.shared.record_rules import KEY_MAX_LENGTH, SAMPLED_APART

_SUFFIX = " (run.log)"
NOTICE = (
    "MLflow and SDK v1's `run.log` log metrics of the same name; what `run.log` logs is kept as "
    f"`NAME{_SUFFIX}`"
)


def of_run_log(key: str) -> str:
    """Under which key the points of `run.log` are kept."""
    return key[: KEY_MAX_LENGTH - len(_SUFFIX)] + _SUFFIX


def of_worker(key: str) -> str:
    """Under which key the points are kept that the worker samples."""
    return key[: KEY_MAX_LENGTH - len(SAMPLED_APART)] + SAMPLED_APART
