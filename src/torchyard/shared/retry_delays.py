"""Waiting for a server that is unreachable.

Owns: trying again, and the growing pauses between two tries.
Leaves: how long to the caller.
Always: only OSError is tried again; a response is a response, a refusal too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from torchyard.shared import disk

Result = TypeVar("Result")
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_GROWTH = 1.6


def retry(call: Callable[[], Result], give_up: Callable[[], bool]) -> Result:
    """Call until it succeeds.

    Raises:
        OSError: the last one, when `give_up` returned true or this node's disk is full.
    """
    # A kept connection that the server closed meanwhile fails once: the first retry is at once.
    pause_s = 0.0
    while True:
        try:
            return call()
        except OSError as error:
            if give_up() or disk.is_to_blame(error):
                raise
        time.sleep(pause_s)
        pause_s = next_pause_s(pause_s)


def next_pause_s(pause_s: float) -> float:
    """How long to wait after a pause of `pause_s`, 0 before the first."""
    return min(_LONGEST_PAUSE_S, pause_s * _GROWTH or _FIRST_PAUSE_S)


def after(seconds: float) -> Callable[[], bool]:
    """For `retry`: give up once so many seconds have passed from now."""
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline
