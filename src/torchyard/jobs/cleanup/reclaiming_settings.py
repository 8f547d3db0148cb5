"""The defaults of `yard gc` that are stored in the server's home.

Owns: the file `gc.json` in the home, which options there are and what each may be.
Leaves: acting on them to reclaiming.py.
Always: an option of the request wins over the stored one, and that over the default; an unknown
option is refused by name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from torchyard.base import files
from torchyard.base.errors import InvalidInput, did_you_mean
from torchyard.jobs.cleanup.reclaiming import GcOptions

KEYS = tuple(field.name for field in fields(GcOptions))
_AGE = "older_than_s"
_MOST = 1 << 60


def read(home: Path) -> dict[str, Any]:
    """What is stored; empty when nothing is.

    Raises:
        InvalidInput: the file was edited by hand and is not valid.
    """
    try:
        stored = json.loads(_file(home).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise InvalidInput(
            f"`{_file(home).name}` in the server's home is not valid JSON: {error}",
            "remove it, or store the budgets again: `yard gc --save`",
        ) from error
    if not isinstance(stored, dict):
        raise InvalidInput("`gc.json` in the server's home is not a JSON object", "remove it")
    _check(stored)
    return stored


def save(home: Path, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Store these as well; None restores the default. Returns all that is stored."""
    _check(changes)
    stored = {key: value for key, value in {**read(home), **changes}.items() if value is not None}
    with files.write_atomically(_file(home)) as writing:
        writing.write(json.dumps(stored, indent=2).encode() + b"\n")
    return stored


def options(home: Path, overrides: Mapping[str, Any]) -> GcOptions:
    """The options of one `yard gc`; a budget of None sets no limit."""
    _check(overrides)
    if overrides.get(_AGE, 0) is None:
        raise InvalidInput(f"`{_AGE}` must be a number", "give seconds, 0 or more")
    return GcOptions(**{**read(home), **overrides})


def _check(values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if key not in KEYS:
            raise InvalidInput(
                f"`{key[:80]}` is not an option of `yard gc`",
                did_you_mean(key, KEYS),
            )
        if value is None:
            continue
        kinds = (int, float) if key == _AGE else (int,)
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not 0 <= value <= _MOST:
            raise InvalidInput(f"`{key}` is out of range", "give a number, 0 or more")


def _file(home: Path) -> Path:
    return home / "gc.json"
