"""The node's end of a tunnel: opened when the server asks, over two requests of the worker's own.

Owns: the requests, the channels in the tunnel, the credit of both directions.
Leaves: what a channel is for to node_access.py, the server's end to tunnels/tunnel.py.
Always: the node listens at no port for this; what the server sends beyond a channel's credit ends
the tunnel; when the tunnel ends, every channel in it does.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from torchyard.shared import channels
from torchyard.shared.channels import BadFrames, Decoder, Frame
from torchyard.shared.connection import AttemptOver, Connection, Refused

_BATCH_BYTES = 1 << 20
_READ_BYTES = 1 << 16


class ChannelClosed(Exception):
    """The other end is gone."""


class Channel:
    """A stream of bytes to and from the server, for any two threads: one reads, one writes."""

    def __init__(self, number: int, send: Callable[[Frame], None]) -> None:
        self._number = number
        self._send = send
        self._pieces: deque[bytes] = deque()
        self._unread_bytes = self._unacknowledged_bytes = 0
        self._credit_bytes = channels.WINDOW_BYTES
        self._is_ended = self._is_over = False
        self._changed = threading.Condition()

    @property
    def is_over(self) -> bool:
        return self._is_over

    def read(self) -> bytes:
        """What came, at least one byte; empty when no more will come.

        Raises:
            ChannelClosed: it was cut off.
        """
        with self._changed:
            while not self._pieces and not self._is_ended and not self._is_over:
                self._changed.wait()
            if not self._pieces:
                if self._is_over:
                    raise ChannelClosed
                return b""
            piece = self._pieces.popleft()
            self._unread_bytes -= len(piece)
            self._unacknowledged_bytes += len(piece)
            credit_bytes = 0
            if self._unacknowledged_bytes >= channels.WINDOW_BYTES // 4:
                credit_bytes, self._unacknowledged_bytes = self._unacknowledged_bytes, 0
        if credit_bytes:
            self._send(Frame(self._number, channels.CREDIT, channels.credit(credit_bytes)))
        return piece

    def write(self, data: bytes) -> None:
        """Returns when all of it may be sent.

        Raises:
            ChannelClosed: the server's end is gone.
        """
        at = 0
        while at < len(data):
            with self._changed:
                while not self._credit_bytes and not self._is_over:
                    self._changed.wait()
                if self._is_over:
                    raise ChannelClosed
                size_bytes = min(len(data) - at, self._credit_bytes, channels.PIECE_BYTES)
                self._credit_bytes -= size_bytes
            self._send(Frame(self._number, channels.DATA, data[at : at + size_bytes]))
            at += size_bytes

    def end(self) -> None:
        """Nothing more will be written."""
        if not self._is_over:
            self._send(Frame(self._number, channels.END))

    def close(self, message: str = "") -> None:
        """Drop it; the server is told why."""
        if not self._is_over:
            body = json.dumps({"message": message[:1000]}).encode()
            self._send(Frame(self._number, channels.CLOSE, body))
            self.cut()

    def receive(self, frame: Frame) -> None:
        """
        Raises:
            BadFrames: more than was allowed.
        """
        with self._changed:
            if frame.kind == channels.DATA:
                self._unread_bytes += len(frame.payload)
                if self._unread_bytes > channels.WINDOW_BYTES:
                    raise BadFrames("more bytes than the channel has credit for")
                if frame.payload:
                    self._pieces.append(frame.payload)
            elif frame.kind == channels.END:
                self._is_ended = True
            elif frame.kind == channels.CREDIT:
                self._credit_bytes += channels.credited(frame.payload)
            elif frame.kind == channels.CLOSE:
                self._is_over = True
            self._changed.notify_all()

    def cut(self) -> None:
        """The other end is gone."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


class Tunnel:
    """Opened again whenever the server asks, until `close`.

    Args:
        accept: serves a channel, in a thread of its own, and ends or closes it.
    """

    def __init__(
        self, link: Connection, node: int, accept: Callable[[Channel, dict[str, Any]], None]
    ) -> None:
        self._link = link
        self._node = node
        self._accept = accept
        self._lock = threading.Lock()
        self._running: _Running | None = None

    def open(self) -> None:
        """Open it, if it is not open."""
        with self._lock:
            if self._running is None or self._running.is_over:
                self._running = _Running(self._link, self._node, self._accept)
                self._running.start()


class _Running:
    """One tunnel from its opening to its end."""

    def __init__(
        self, link: Connection, node: int, accept: Callable[[Channel, dict[str, Any]], None]
    ) -> None:
        self._link = link
        self._node = node
        self._accept = accept
        self._channels: dict[int, Channel] = {}
        self._unsent: deque[bytes] = deque()
        self._news = threading.Condition()
        self.is_over = False

    def start(self) -> None:
        threading.Thread(target=self._run, name="tunnel", daemon=True).start()

    def _run(self) -> None:
        try:
            response = self._link.forward(
                "GET", f"/tunnel?node={self._node}", {}, [], 0, channels.SILENCE_LIMIT_S
            )
            with response:
                if response.status == 200:
                    self._read(response)
        except (OSError, http.client.HTTPException, BadFrames) as error:
            print(f"the tunnel to the server ended: {error}", file=sys.stderr, flush=True)
        finally:
            self._end()

    def _read(self, response: http.client.HTTPResponse) -> None:
        decoder = Decoder()
        while not self.is_over:
            data = response.read1(_READ_BYTES)
            if not data:
                return
            for frame in decoder.feed(data):
                self._receive(frame)

    def _receive(self, frame: Frame) -> None:
        if frame.kind == channels.HELLO:
            name = frame.payload.decode("ascii", "replace")
            threading.Thread(
                target=self._write, args=(name,), name="tunnel-writer", daemon=True
            ).start()
        elif frame.kind == channels.OPEN:
            channel = self._channels[frame.channel] = Channel(frame.channel, self._send)
            request = json.loads(frame.payload)
            threading.Thread(
                target=self._serve, args=(frame.channel, channel, request), daemon=True
            ).start()
        else:
            channel_or_none = self._channels.get(frame.channel)
            if channel_or_none is not None:
                channel_or_none.receive(frame)

    def _serve(self, number: int, channel: Channel, request: dict[str, Any]) -> None:
        try:
            self._accept(channel, request)
        except ChannelClosed:
            pass
        except Exception as error:
            channel.close(f"the node failed: {error!r}")
        finally:
            self._channels.pop(number, None)

    def _send(self, frame: Frame) -> None:
        with self._news:
            if not self.is_over:
                self._unsent.append(frame.to_bytes())
                self._news.notify_all()

    def _write(self, name: str) -> None:
        """Deliver what is to be sent, in order, a batch a request."""
        try:
            while True:
                with self._news:
                    while not self._unsent and not self.is_over:
                        self._news.wait()
                    if self.is_over:
                        return
                    pieces, size_bytes = [], 0
                    while self._unsent and size_bytes < _BATCH_BYTES:
                        pieces.append(self._unsent.popleft())
                        size_bytes += len(pieces[-1])
                self._link.send(
                    "POST", f"/tunnel/{name}", b"".join(pieces), query={"node": self._node}
                )
        except (OSError, Refused, AttemptOver) as error:
            print(f"the tunnel to the server ended: {error!r}", file=sys.stderr, flush=True)
        finally:
            self._end()
            self._link.close()

    def _end(self) -> None:
        with self._news:
            self.is_over = True
            self._unsent.clear()
            self._news.notify_all()
        for channel in list(self._channels.values()):
            channel.cut()
