"""Tokens and secrets in what a rank prints: masked before anything leaves the node.

Owns: what a token looks like, finding secrets by their value, stars in their place.
Leaves: which values are secret and how they may be written to secret_values.py, cutting a file
into chunks to worker/files/logs.py.
Always: as many bytes come out as went in, so offsets hold; a byte is masked exactly when it is
part of a token or a secret, wherever the text around it was cut.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

_MARK = b"yard_"
_TOKEN = re.compile(rb"yard_[parmi]_[A-Za-z0-9_-]{43}")
_START = re.compile(rb"yard_[parmi]_[A-Za-z0-9_-]{0,42}\Z")
_PREFIXES = (b"yard_p_", b"yard_a_", b"yard_r_", b"yard_m_", b"yard_i_")
_TOKEN_BYTES = len(b"yard_p_") + 43

# JWTs of this server all begin so: see workspaces/jwts.py.
_JWT_HEAD = b"eyJhbGciOiJIUzI1NiIsImtpZCI6InRvcmNoeWFyZCIsInR5cCI6IkpXVCJ9."
_CLAIMS_BYTES = 1400
_JWT = re.compile(re.escape(_JWT_HEAD) + rb"[\w-]{1,%d}\.[\w-]{43}" % _CLAIMS_BYTES)
_JWT_START = re.compile(
    re.escape(_JWT_HEAD) + rb"(?:[\w-]{0,%d}|[\w-]{1,%d}\.[\w-]{0,42})\Z" % ((_CLAIMS_BYTES,) * 2)
)

LONGEST = len(_JWT_HEAD) + _CLAIMS_BYTES + 1 + 43
"""Bytes of a token; a chunk's neighbours are looked at as far as this, less one."""


class Masker:
    """Puts stars in the place of tokens and of each of `secrets`.

    Attributes:
        longest: bytes of the longest of them; a chunk's neighbours are looked at as far as this,
            less one.
    """

    def __init__(self, secrets: Collection[bytes] = ()) -> None:
        self._secrets = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
        # Secrets mostly share few first bytes, so that the end of a chunk is looked through once.
        self._firsts = {secret[:1] for secret in self._secrets}
        self.longest = max([LONGEST, *map(len, self._secrets)])

    def mask(self, data: bytes) -> bytes:
        """The data with every whole token and secret replaced by stars."""
        spans = _tokens(data) if _MARK in data else []
        if _JWT_HEAD in data:
            spans += _jwts(data)
        for secret in self._secrets:
            position = data.find(secret)
            while position >= 0:
                spans.append((position, len(secret)))
                # Every place is tried, also inside a match: the answer must not depend on the cut.
                position = data.find(secret, position + 1)
        if not spans:
            return data
        masked = bytearray(data)
        for position, size in spans:
            masked[position : position + size] = b"*" * size
        return bytes(masked)

    def unfinished(self, data: bytes) -> int:
        """How many bytes at the end may be the start of a token or secret that goes on."""
        length = _unfinished_token(data)
        tail = data[-(self.longest - 1) :]
        for first in self._firsts:
            position = tail.find(first)
            while 0 <= position < len(tail) - length:
                rest = tail[position:]
                if any(
                    len(secret) > len(rest) and secret.startswith(rest) for secret in self._secrets
                ):
                    length = len(rest)
                    break
                position = tail.find(first, position + 1)
        return length

    def text(self, text: str) -> str:
        """The same for text."""
        data = text.encode("utf-8", "surrogatepass")
        masked = self.mask(data)
        return text if masked is data else masked.decode("utf-8", "surrogatepass")

    def json(self, body: Any) -> Any:
        """The same for every text of a JSON value, keys of objects too."""
        if isinstance(body, str):
            return self.text(body)
        if isinstance(body, dict):
            return {
                self.text(key) if isinstance(key, str) else key: self.json(value)
                for key, value in body.items()
            }
        if isinstance(body, (list, tuple)):
            return [self.json(value) for value in body]
        return body


def _tokens(data: bytes) -> list[tuple[int, int]]:
    spans = []
    position = data.find(_MARK)
    while position >= 0:
        if _TOKEN.match(data, position):
            spans.append((position, _TOKEN_BYTES))
        position = data.find(_MARK, position + 1)
    return spans


def _jwts(data: bytes) -> list[tuple[int, int]]:
    spans = []
    position = data.find(_JWT_HEAD)
    while position >= 0:
        match = _JWT.match(data, position)
        if match is not None:
            spans.append((position, len(match[0])))
        position = data.find(_JWT_HEAD, position + 1)
    return spans


def _unfinished_token(data: bytes) -> int:
    tail = data[-(LONGEST - 1) :]
    position = tail.find(_JWT_HEAD)
    while position >= 0:
        if _JWT_START.match(tail, position):
            return len(tail) - position
        position = tail.find(_JWT_HEAD, position + 1)
    tail = data[-(len(_JWT_HEAD) - 1) :]
    position = tail.find(_JWT_HEAD[:1])
    while position >= 0:
        if _JWT_HEAD.startswith(tail[position:]):
            return max(len(tail) - position, _unfinished_short(data))
        position = tail.find(_JWT_HEAD[:1], position + 1)
    return _unfinished_short(data)


def _unfinished_short(data: bytes) -> int:
    tail = data[-(_TOKEN_BYTES - 1) :]
    position = tail.find(b"y")
    while position >= 0:
        rest = tail[position:]
        if _START.match(rest) or any(prefix.startswith(rest) for prefix in _PREFIXES):
            return len(rest)
        position = tail.find(b"y", position + 1)
    return 0


TOKENS = Masker()
"""What knows no secret but this server's own tokens."""


def mask(data: bytes) -> bytes:
    """The data with every whole token replaced by stars."""
    return TOKENS.mask(data)


def unfinished(data: bytes) -> int:
    """How many bytes at the end may be the start of a token that goes on; 0 when none."""
    return TOKENS.unfinished(data)
