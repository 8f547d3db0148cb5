"""End long connections of people who may no longer have them.

Owns: how often the right to a connection is checked, and ending it.
Leaves: who has that right, and the last message, to the caller.
Always: while the right can't be checked, the connection stays open; the next check comes.
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
