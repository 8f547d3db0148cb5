"""One request on its way to one instance, from a client or not.

Owns: what a connection to an instance has to know of a request, and whom it tells of the answer.
Leaves: where requests come from to client_side.py, mirroring.py and batching.py.
Always: a call that was given to a deployment is answered, begun and ended, or refused, once; unless
its sender has canceled it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from torchyard.endpoints.router.errors import Refusal

Headers = Sequence[tuple[bytes, bytes]]


class Queue(Protocol):
    """Where calls wait for an instance."""

    def forget(self, call: Call) -> None:
        """A call waits no longer."""


class InstanceEnd(Protocol):
    """The connection that a call was sent on."""

    def send_body(self, data: bytes) -> None: ...

    def end_body(self) -> None: ...

    def send_tunnel(self, data: bytes) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def abort(self) -> None: ...


class Call:
    """
    Attributes:
        head: request line and headers without the body's framing, each line with its end.
        parts: of the body, what has come and is not sent yet.
        length: of the body; None when it is chunked.
        is_whole: the body's last byte is in `parts`, or sent.
        upgrade: the protocol that the client wants to change to.
        tried: instances that took no connection in time.
    """

    def __init__(self) -> None:
        self.head = b""
        self.parts: list[bytes] = []
        self.length: int | None = 0
        self.is_whole = True
        self.is_head_request = False
        self.upgrade = b""
        self.deployment: Queue | None = None
        self.instance: object | None = None
        self.connection: InstanceEnd | None = None
        self.tried: set[str] = set()
        self.is_done = False
        self.sent_at = 0.0
        self.timer: asyncio.TimerHandle | None = None

    def answered(self, status: int, reason: bytes, headers: Headers, body: bytes) -> None:
        """The whole answer has come."""
        raise NotImplementedError

    def begun(self, status: int, reason: bytes, headers: Headers, length: int | None) -> None:
        """An answer comes in pieces.

        Args:
            length: of its body; None when only its end tells.
        """
        raise NotImplementedError

    def piece(self, data: bytes) -> None:
        raise NotImplementedError

    def ended(self) -> None:
        """The last piece has come."""
        raise NotImplementedError

    def upgraded(self, reason: bytes, headers: Headers, data: bytes) -> None:
        """The instance has changed the protocol.

        Args:
            data: its first bytes in the new one.
        """
        raise NotImplementedError

    def refused(self, refusal: Refusal) -> None:
        """No answer comes, or no more of it."""
        raise NotImplementedError

    def body_paused(self) -> None:
        """The instance takes no more of the body just now."""

    def body_resumed(self) -> None:
        """It does again."""

    def sent(self) -> None:
        """What was in `parts` is on its way."""

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def cancel(self) -> None:
        """Nobody wants the answer any more."""
        if self.is_done:
            return
        self.is_done = True
        self.stop_timer()
        self.leave()

    def leave(self) -> None:
        """Go from the instance's connection, or from the queue for one."""
        if self.connection is not None:
            self.connection.abort()
        elif self.deployment is not None:
            self.deployment.forget(self)
