"""What `init` was called with, and how much memory a process may take.

Owns: `Settings`, their checks, and the share of NEBULA_MEMORY_BUFFER_SIZE.
Leaves: what is done with them to checkpoints.
Always: a value that can't be used is refused by its name, before anything is written.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.train.checkpoint.errors import CheckpointError

_BUFFER = "NEBULA_MEMORY_BUFFER_SIZE"


@dataclass(frozen=True)
class Settings:
    """`interval_s`: how often checkpoints go to storage; `retention`: how many stay in memory."""

    root: Path
    interval_s: float
    retention: int


def parse(path: Any, interval_s: Any, retention: Any) -> Settings:
    """
    Raises:
        CheckpointError: names the argument.
    """
    if not _is_number(interval_s) or interval_s < 0:
        raise CheckpointError(
            f"`persistent_time_interval` must be a number of seconds >= 0, not {interval_s!r}",
            "0 writes every checkpoint to storage",
        )
    if isinstance(retention, bool) or not isinstance(retention, int) or retention < 1:
        raise CheckpointError(
            f"`num_of_version_in_retention` must be an integer >= 1, not {retention!r}",
            "2 is the default",
        )
    return Settings(parse_path("persistent_storage_path", path), float(interval_s), retention)


def parse_path(name: str, value: Any) -> Path:
    """
    Raises:
        CheckpointError: names the argument.
    """
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]  # Nebula's own example ends the line that sets it with a comma
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise CheckpointError(
            f"`{name}` must be the path of a folder, not {value!r}",
            "name a folder that all nodes share, such as one below ./outputs",
        )
    return Path(value).absolute()


def memory_limit_bytes(variables: Mapping[str, str]) -> int | None:
    """What this process may take: half of the node's limit over its processes; None for all.

    Raises:
        CheckpointError: the variable is not a number of bytes.
    """
    text = variables.get(_BUFFER, "").strip()
    if not text:
        return None
    if not text.isdigit() or int(text) == 0:
        raise CheckpointError(
            f"{_BUFFER} must be a number of bytes > 0, not {text!r}",
            "200000000 allows a node about 200 MB",
        )
    processes = (
        variables.get("LOCAL_WORLD_SIZE") or variables.get("OMPI_COMM_WORLD_LOCAL_SIZE") or ""
    )
    return int(text) // 2 // max(1, int(processes) if processes.isdigit() else 1)


def history_file(variables: Mapping[str, str]) -> Path:
    """`Nebula/checkpointHistories.csv` in the job's outputs, or in ./outputs without a job."""
    outputs = Path(variables.get("AZUREML_OUTPUT_DIRECTORY") or "outputs").absolute()
    return outputs / "Nebula" / "checkpointHistories.csv"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
