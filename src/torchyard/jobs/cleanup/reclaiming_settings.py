"""What `yard gc` is to keep when nobody says: the home's own settings.

Owns: the file `gc.json` in the home, which wishes there are and what each may be.
Leaves: acting on them to reclaiming.py.
Always: what is asked comes before what is stored, and that before the default; a wish that is not
known is refused by name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from torchyard.base import files
from torchyard.base.errors import InvalidInput, nearest
from torchyard.jobs.cleanup.reclaiming import GcOptions

KEYS = tuple(field.name for field in fields(GcOptions))
_AGE = "older_than_s"
_MOST = 1 << 60


def read(home: Path) -> dict[str, Any]:
    """What is stored; empty when nothing is.

    Raises:
        InvalidInput: the file was changed by hand into something that is no wish.
    """
    try:
        stored = json.loads(_file(home).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise InvalidInput(
            f"`{_file(home).name}` in the server's home is no JSON: {error}",
            "remove it, or store the budgets anew: `yard gc --save`",
        ) from error
    if not isinstance(stored, dict):
        raise InvalidInput("`gc.json` in the server's home is no JSON object", "remove it")
    _check(stored)
    return stored


def save(home: Path, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Store these as well; None goes back to the default. The answer is all that is stored."""
    _check(changes)
    stored = {key: value for key, value in {**read(home), **changes}.items() if value is not None}
    with files.whole(_file(home)) as writing:
        writing.write(json.dumps(stored, indent=2).encode() + b"\n")
    return stored


def options(home: Path, overrides: Mapping[str, Any]) -> GcOptions:
    """What holds for one `yard gc`; a budget that is asked to be None bounds nothing."""
    _check(overrides)
    if overrides.get(_AGE, 0) is None:
        raise InvalidInput(f"`{_AGE}` is no time", "write a number of seconds from 0 on")
    return GcOptions(**{**read(home), **overrides})


def _check(values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if key not in KEYS:
            near = nearest(key, KEYS)
            raise InvalidInput(
                f"`{key[:80]}` is nothing that `yard gc` is told",
                f"did you mean `{near}`?" if near else f"there are: {', '.join(KEYS)}",
            )
        if value is None:
            continue
        kinds = (int, float) if key == _AGE else (int,)
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not 0 <= value <= _MOST:
            raise InvalidInput(f"`{key}` is out of range", "write a number from 0 on")


def _file(home: Path) -> Path:
    return home / "gc.json"
