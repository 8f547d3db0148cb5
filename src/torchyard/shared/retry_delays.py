"""Waiting for a server that is away.

Owns: trying again.
Leaves: how long to the caller.
Always: only OSError is tried again; an answer, be it a refusal, is an answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from torchyard.shared import disk

Result = TypeVar("Result")
_LONGEST_PAUSE_S = 2.0


def patiently(call: Callable[[], Result], give_up: Callable[[], bool]) -> Result:
    """Call until it succeeds.

    Raises:
        OSError: the last one, when `give_up` said so or this node's disk is full.
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
        pause_s = min(_LONGEST_PAUSE_S, pause_s * 1.6 or 0.1)
