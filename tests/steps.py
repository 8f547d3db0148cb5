"""How much work a call does, counted: no test depends on how fast a machine is.

Owns: counting the lines of Python that run; what C code does inside one line does not count, and
regular expressions have tests of their own (hostile_input/test_regular_expressions.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class TooManySteps(Exception):
    """The call was interrupted."""


def at_most(limit: int, call: Callable[[], object]) -> int:
    """Make a call; return how many lines ran.

    Raises:
        TooManySteps: more than the limit.
    """
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        if count > limit:
            raise TooManySteps(f"more than {limit} lines ran")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
