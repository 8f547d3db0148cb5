"""Keys with points from several sources: MLflow, SDK v1's `run.log`, the worker's sampling.

Owns: the keys for the points of the other sources, the notice about them.
Leaves: which points those are, and moving them, to history_store.py.
Always: MLflow's points keep the key, or else those of `run.log`, in whatever order they arrive;
sampled points never take a key that the script logs.
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
    """The key for points that the worker samples, where the script logs this one."""
    return key[: KEY_MAX_LENGTH - len(SAMPLED_APART)] + SAMPLED_APART
