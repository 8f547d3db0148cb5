"""Waiting for real processes, with one limit that no machine is too slow for.

Owns: the limit; `TORCHYARD_TEST_PATIENCE` multiplies it where a machine is slower still.
Always: no test passes or fails by how long it waited, only by what became true.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = float(os.environ.get("TORCHYARD_TEST_PATIENCE", "1"))
LIMIT_S = 120.0

T = TypeVar("T")


def eventually(
    condition: Callable[[], T], goal: str, limit_s: float = LIMIT_S, every_s: float = 0.1
) -> T:
    """Return what the condition returns, once that is true.

    Args:
        what: the condition in words, for the message of the failure.
    """
    limit_s *= PATIENCE
    deadline = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {goal}"
        time.sleep(every_s)
    return value
