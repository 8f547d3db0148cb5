"""Connections that live on, ended when who opened them may have them no longer.

Owns: how often that is asked, and what is ended then.
Leaves: who may have a connection, and what is said at its end, to its caller.
Always: a connection whose question can't be answered goes on, and is asked about again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

CHECK_EVERY_S = 5.0


async def serve_while(
    is_allowed: Callable[[], Awaitable[bool]], serving: Coroutine[Any, Any, None]
) -> bool:
    """Serve a connection to its end, or until it is no longer allowed; whether to its end.

    Args:
        serving: is canceled where it waits.
    """
    task = asyncio.ensure_future(serving)
    try:
        while True:
            ended, _ = await asyncio.wait([task], timeout=CHECK_EVERY_S)
            if ended:
                task.result()
                return True
            if not await is_allowed():
                return False
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # also of one that failed while it was canceled
