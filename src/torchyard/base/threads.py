"""Threads of the server for one kind of work.

Owns: how many of a kind run at once, and that the others wait in the order in which they came.
Leaves: what they do to their callers.
Always: work of one kind never takes the threads that all requests share.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

_T = TypeVar("_T")
_P = ParamSpec("_P")


class Threads:
    """Up to `count` threads, for the work called `name`."""

    def __init__(self, name: str, count: int) -> None:
        self._count = count
        self._limiter: RunVar[anyio.CapacityLimiter] = RunVar(f"torchyard.{name}_threads")

    async def run(self, act: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call `act` in one of them, once one is free."""
        try:
            limiter = self._limiter.get()
        except LookupError:
            limiter = anyio.CapacityLimiter(self._count)
            self._limiter.set(limiter)
        return await anyio.to_thread.run_sync(partial(act, *args, **kwargs), limiter=limiter)
