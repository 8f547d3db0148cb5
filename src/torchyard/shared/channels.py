"""Frames of a tunnel: many byte streams between a node and its server, over one connection.

Owns: the form of a frame, the kinds of frames, how much of a channel may be under way.
Leaves: sending them to worker/interactive/tunnel.py and tunnels/tunnel.py, the two ends.
Always: standard library; a frame that is longer than allowed is an error, so that no reader keeps
more than one; a sender sends no more than its credit, so that a slow reader slows only its channel.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

OPEN, DATA, END, CLOSE, CREDIT, HELLO, BEAT = 1, 2, 3, 4, 5, 6, 7
"""Kinds of frames of a tunnel: ask for a channel (JSON), its bytes, no more bytes will come, it is
over (JSON, why), so many bytes were read, the tunnel's name, nothing happened.
"""
OUTPUT, ERROR_OUTPUT, EXIT, REFUSED, INPUT, INPUT_END, RESIZE = 21, 22, 23, 24, 25, 26, 27
"""Kinds of frames within a shell's channel; EXIT, REFUSED and RESIZE carry JSON."""
WINDOW_BYTES = 1 << 20
"""What may be under way in one direction of a channel before its reader says that it read."""
PIECE_BYTES = 32 << 10
BEAT_EVERY_S = 15.0
SILENCE_LIMIT_S = 45.0
MOST_CHANNELS = 256
_MOST_BYTES = 64 << 10
_HEAD = struct.Struct(">IBI")


class BadFrames(ValueError):
    """These bytes are not frames."""


@dataclass(frozen=True)
class Frame:
    channel: int
    kind: int
    payload: bytes = b""

    def to_bytes(self) -> bytes:
        return _HEAD.pack(self.channel, self.kind, len(self.payload)) + self.payload


class Decoder:
    """Frames out of bytes that arrive in pieces of any size."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """
        Raises:
            BadFrames: a frame is longer than any may be.
        """
        self._bytes += data
        frames: list[Frame] = []
        start = 0
        while len(self._bytes) - start >= _HEAD.size:
            channel, kind, size_bytes = _HEAD.unpack_from(self._bytes, start)
            if size_bytes > _MOST_BYTES:
                raise BadFrames(f"a frame of {size_bytes} bytes")
            end = start + _HEAD.size + size_bytes
            if len(self._bytes) < end:
                break
            frames.append(Frame(channel, kind, bytes(self._bytes[start + _HEAD.size : end])))
            start = end
        del self._bytes[:start]
        return frames


def credit(size_bytes: int) -> bytes:
    """The payload of CREDIT."""
    return struct.pack(">I", size_bytes)


def credited(payload: bytes) -> int:
    """
    Raises:
        BadFrames: it is not what `credit` makes.
    """
    if len(payload) != 4:
        raise BadFrames("a credit of another length")
    return int(struct.unpack(">I", payload)[0])
