"""The checkpoints of a job that the server has.

Owns: which folders below `outputs/checkpoints` are whole, and which of them is the newest.
Leaves: delivering them to worker/node/checkpoint_delivery.py, giving them to the next attempt to
artifacts.py, what is in them to `torchyard.train`.
Always: what is found here, the next attempt finds as well; a manifest without all of its files is
no checkpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.jobs.files import artifacts
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import FileServices

_FOLDER, _MANIFEST = "outputs/checkpoints", "manifest.json"
# A row for each checkpoint that Nebula's names wrote; where they are is the script's to say.
_NEBULA = "outputs/Nebula/checkpointHistories.csv"
_LARGEST_MANIFEST_BYTES = 16 << 20
# Of a name: a step, and how often it was saved again.
_MOST_NUMBERS = 4
_MOST_DIGITS = 18


@dataclass(frozen=True)
class Checkpoint:
    """`order` is greater for newer ones of the same job."""

    name: str
    order: tuple[int, ...]


def newest(services: FileServices, job: Job) -> Checkpoint | None:
    """The newest whole checkpoint that the next attempt would find."""
    files = {file.path: file.size_bytes for file in artifacts.list_of(services, job, _FOLDER)}
    names = [path.split("/")[0] for path in files if path.count("/") == 1]
    names = sorted({name for name in names if f"{name}/{_MANIFEST}" in files}, key=_order)
    for name in reversed(names):
        if _is_whole(artifacts.file(services, job, f"{_FOLDER}/{name}/{_MANIFEST}"), name, files):
            return Checkpoint(name, (1, *_order(name)))
    for file in artifacts.list_of(services, job, str(Path(_NEBULA).parent)):
        if file.path == Path(_NEBULA).name:
            return Checkpoint("Nebula's newest", (0, file.size_bytes))
    return None


def _order(name: str) -> tuple[int, ...]:
    numbers = re.findall(r"[0-9]+", name)[:_MOST_NUMBERS]
    return tuple(int(number[-_MOST_DIGITS:]) for number in numbers)


def _is_whole(manifest: Path, name: str, sizes: Mapping[str, int]) -> bool:
    """Whether the files that the manifest names are there; one that names none vouches for all."""
    if not 0 < manifest.stat().st_size <= _LARGEST_MANIFEST_BYTES:
        return False
    listed_files: Any = None
    try:
        listed_files = json.loads(manifest.read_bytes())["checkpoint"]["files"]
        return all(
            sizes.get(f"{name}/{file}") == listed_files[file]["size_bytes"] for file in listed_files
        )
    except (ValueError, RecursionError):
        return False
    except (KeyError, TypeError):
        # A script's own, not one of `torchyard.train`.
        return listed_files is None
