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
_TOKEN = re.compile(rb"yard_[par]_[A-Za-z0-9_-]{43}")
_START = re.compile(rb"yard_[par]_[A-Za-z0-9_-]{0,42}\Z")
_PREFIXES = (b"yard_p_", b"yard_a_", b"yard_r_", b"yard_m_")
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
        places = _tokens(data) if _MARK in data else []
        if _JWT_HEAD in data:
            places += _jwts(data)
        for secret in self._secrets:
            place = data.find(secret)
            while place >= 0:
                places.append((place, len(secret)))
                # Every place is tried, also inside a match: the answer must not depend on the cut.
                place = data.find(secret, place + 1)
        if not places:
            return data
        masked = bytearray(data)
        for place, size in places:
            masked[place : place + size] = b"*" * size
        return bytes(masked)

    def unfinished(self, data: bytes) -> int:
        """How many bytes at the end may be the start of a token or secret that goes on."""
        held = _unfinished_token(data)
        tail = data[-(self.longest - 1) :]
        for first in self._firsts:
            place = tail.find(first)
            while 0 <= place < len(tail) - held:
                rest = tail[place:]
                if any(
                    len(secret) > len(rest) and secret.startswith(rest) for secret in self._secrets
                ):
                    held = len(rest)
                    break
                place = tail.find(first, place + 1)
        return held

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
    places = []
    place = data.find(_MARK)
    while place >= 0:
        if _TOKEN.match(data, place):
            places.append((place, _TOKEN_BYTES))
        place = data.find(_MARK, place + 1)
    return places


def _jwts(data: bytes) -> list[tuple[int, int]]:
    places = []
    place = data.find(_JWT_HEAD)
    while place >= 0:
        match = _JWT.match(data, place)
        if match is not None:
            places.append((place, len(match[0])))
        place = data.find(_JWT_HEAD, place + 1)
    return places


def _unfinished_token(data: bytes) -> int:
    tail = data[-(LONGEST - 1) :]
    place = tail.find(_JWT_HEAD)
    while place >= 0:
        if _JWT_START.match(tail, place):
            return len(tail) - place
        place = tail.find(_JWT_HEAD, place + 1)
    tail = data[-(len(_JWT_HEAD) - 1) :]
    place = tail.find(_JWT_HEAD[:1])
    while place >= 0:
        if _JWT_HEAD.startswith(tail[place:]):
            return max(len(tail) - place, _unfinished_short(data))
        place = tail.find(_JWT_HEAD[:1], place + 1)
    return _unfinished_short(data)


def _unfinished_short(data: bytes) -> int:
    tail = data[-(_TOKEN_BYTES - 1) :]
    place = tail.find(b"y")
    while place >= 0:
        rest = tail[place:]
        if _START.match(rest) or any(prefix.startswith(rest) for prefix in _PREFIXES):
            return len(rest)
        place = tail.find(b"y", place + 1)
    return 0


TOKENS = Masker()
"""What knows no secret but this server's own tokens."""


def mask(data: bytes) -> bytes:
    """The data with every whole token replaced by stars."""
    return TOKENS.mask(data)


def unfinished(data: bytes) -> int:
    """How many bytes at the end may be the start of a token that goes on; 0 when none."""
    return TOKENS.unfinished(data)
