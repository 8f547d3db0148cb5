"""One tunnel, and the channels in it, as the server has them.

Owns: what is sent to the node and read from it, the credit of both directions.
Leaves: which tunnels there are to registry.py, HTTP to jobs/http/tunnel_routes.py, the node's end
to worker/interactive/tunnel.py.
Always: used in the event loop's thread only; a channel keeps no more than its window of what its
node sent; a node that sends more than that loses its tunnel.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any

from torchyard.base.errors import Conflict, Unreachable
from torchyard.shared import channels
from torchyard.shared.channels import BadFrames, Decoder, Frame

_IDLE_S = 60.0
_BATCH_BYTES = 256 << 10


class ChannelClosed(Exception):
    """The other end is gone; the message says why, if it said."""


class Channel:
    """A stream of bytes to and from a node; `end` and `close` are final."""

    def __init__(self, tunnel: Tunnel, number: int) -> None:
        self._tunnel = tunnel
        self._number = number
        self._pieces: deque[bytes] = deque()
        self._unread_bytes = self._unacknowledged_bytes = 0
        self._credit_bytes = channels.WINDOW_BYTES
        self._is_ended = self._is_over = False
        self._why = ""
        self._changed = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return self._is_over

    async def read(self) -> bytes:
        """What came, at least one byte; empty when no more will come.

        Raises:
            ChannelClosed: it was cut off.
        """
        while not self._pieces:
            if self._is_ended:
                return b""
            if self._is_over:
                raise ChannelClosed(self._why)
            await self._change()
        piece = self._pieces.popleft()
        self._unread_bytes -= len(piece)
        self._unacknowledged_bytes += len(piece)
        if self._unacknowledged_bytes >= channels.WINDOW_BYTES // 4 and not self._is_over:
            self._send(channels.CREDIT, channels.credit(self._unacknowledged_bytes))
            self._unacknowledged_bytes = 0
        return piece

    async def write(self, data: bytes) -> None:
        """Returns when the node may have all of it.

        Raises:
            ChannelClosed: the node's end is gone.
        """
        at = 0
        while at < len(data):
            if self._is_over:
                raise ChannelClosed(self._why)
            size_bytes = min(len(data) - at, self._credit_bytes, channels.PIECE_BYTES)
            if not size_bytes:
                await self._change()
                continue
            self._credit_bytes -= size_bytes
            self._send(channels.DATA, data[at : at + size_bytes])
            at += size_bytes

    def end(self) -> None:
        """Nothing more will be written."""
        if not self._is_over:
            self._send(channels.END)

    def close(self) -> None:
        """Drop it, with what is under way."""
        if not self._is_over:
            self._send(channels.CLOSE)
            self._over("it was closed")
        self._tunnel.forget(self._number)

    def receive(self, frame: Frame) -> None:
        """
        Raises:
            BadFrames: more than was allowed.
        """
        if frame.kind == channels.DATA:
            self._unread_bytes += len(frame.payload)
            if self._unread_bytes > channels.WINDOW_BYTES or self._is_ended:
                raise BadFrames("more bytes than the channel has credit for")
            if frame.payload:
                self._pieces.append(frame.payload)
        elif frame.kind == channels.END:
            self._is_ended = True
        elif frame.kind == channels.CREDIT:
            more_bytes = channels.credited(frame.payload)
            self._credit_bytes = min(self._credit_bytes + more_bytes, channels.WINDOW_BYTES)
        elif frame.kind == channels.CLOSE:
            self._over(_reason(frame.payload))
        self._wake()

    def cut(self, why: str) -> None:
        """The tunnel is gone."""
        if not self._is_over:
            self._over(why)

    def _over(self, why: str) -> None:
        self._is_over, self._why = True, why
        self._wake()

    def _send(self, kind: int, payload: bytes = b"") -> None:
        self._tunnel.send(Frame(self._number, kind, payload))

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()


class Tunnel:
    """What one node has opened; `name` is a secret between it and the server."""

    def __init__(self) -> None:
        self.name = secrets.token_hex(16)
        self._channels: dict[int, Channel] = {}
        self._following = 1
        self._decoder = Decoder()
        self._unsent: deque[bytes] = deque()
        self._news = asyncio.Event()
        self.is_over = False
        self.send(Frame(0, channels.HELLO, self.name.encode()))

    def open(self, request: Mapping[str, Any]) -> Channel:
        """
        Raises:
            Conflict: it has as many channels as there may be.
            Unreachable: it is gone.
        """
        if self.is_over:
            raise Unreachable("the node's connection was lost", "try again")
        if len(self._channels) >= channels.MOST_CHANNELS:
            raise Conflict(
                f"{channels.MOST_CHANNELS} connections to this node are open",
                "close some of them",
                code="too_many_channels",
            )
        number, self._following = self._following, self._following + 1
        channel = self._channels[number] = Channel(self, number)
        self.send(Frame(number, channels.OPEN, json.dumps(dict(request)).encode()))
        return channel

    def receive(self, data: bytes) -> None:
        """What the node sent.

        Raises:
            BadFrames: they are none; the tunnel is over.
        """
        try:
            for frame in self._decoder.feed(data):
                channel = self._channels.get(frame.channel)
                if channel is not None:
                    channel.receive(frame)
        except BadFrames:
            self.end("the node sent what no worker sends")
            raise

    async def outgoing(self) -> AsyncIterator[bytes]:
        """What goes to the node, until the tunnel is over or was not needed for a while."""
        idle_s = 0.0
        try:
            while not self.is_over:
                if not self._unsent:
                    self._news.clear()
                    try:
                        await asyncio.wait_for(self._news.wait(), channels.BEAT_EVERY_S)
                    except asyncio.TimeoutError:
                        idle_s = 0.0 if self._channels else idle_s + channels.BEAT_EVERY_S
                        if idle_s >= _IDLE_S:
                            return
                        yield Frame(0, channels.BEAT).to_bytes()
                    continue
                idle_s = 0.0
                yield self._batch()
        finally:
            self.end("the connection to the node was lost")

    def send(self, frame: Frame) -> None:
        self._unsent.append(frame.to_bytes())
        self._news.set()

    def forget(self, number: int) -> None:
        self._channels.pop(number, None)

    def end(self, why: str) -> None:
        self.is_over = True
        self._news.set()
        for channel in self._channels.values():
            channel.cut(why)

    def _batch(self) -> bytes:
        pieces, size_bytes = [], 0
        while self._unsent and size_bytes < _BATCH_BYTES:
            pieces.append(self._unsent.popleft())
            size_bytes += len(pieces[-1])
        return b"".join(pieces)


def _reason(payload: bytes) -> str:
    try:
        body = json.loads(payload or b"{}")
        return str(body.get("message", ""))[:1000] if isinstance(body, dict) else ""
    except (ValueError, RecursionError):
        return ""
