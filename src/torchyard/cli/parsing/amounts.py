"""Durations, times and sizes as people write them.

Owns: parsing `30d`, `2h`, `2027-01-31`, `50GB`.
Leaves: what they mean to the commands.
Always: invalid input is refused with an example.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from torchyard.base.clock import from_text, to_text
from torchyard.base.errors import InvalidInput

_TIMES_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SIZES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def seconds(text: str) -> int:
    """`90`, `30m`, `2h`, `7d`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", text.strip())
    if match is None:
        raise InvalidInput(f"`{text}` is not a duration", "write `30m`, `2h` or `7d`")
    return _integer(float(match[1]) * _TIMES_S[match[2] or "s"], text)


def size_bytes(text: str) -> int:
    """`500MB`, `20GiB`, `1000`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise InvalidInput(f"`{text}` is not a size", "write `500MB`, `20GB` or `1TB`")
    unit = match[2].upper()
    scale = 1024 ** " KMGT".index(unit or " ") if match[3] else _SIZES[unit]
    return _integer(float(match[1]) * scale, text)


def number(text: str) -> int:
    if not text.strip().isdecimal():
        raise InvalidInput(f"`{text}` is not a whole number", "write `4`, or `none`")
    return int(text)


def _integer(value: float, text: str) -> int:
    """As an integer that fits 64 bits, as in databases and JSON."""
    if value >= 2**63:
        raise InvalidInput(f"`{text[:40]}` is too large", "write a smaller value")
    return int(value)


def later(text: str, now: datetime | None = None) -> str | None:
    """A future time in the server's format: `90d` from now, a date, or None for `never`."""
    if text.lower() in ("never", "none"):
        return None
    now = now or datetime.now(timezone.utc)
    try:
        return to_text(_moment(text) or now + timedelta(seconds=seconds(text)))
    except (InvalidInput, OverflowError):
        raise InvalidInput(
            f"`{text}` is not a time in the future", "write `90d`, `2027-01-31` or `never`"
        ) from None


def earlier(text: str, now: datetime | None = None) -> str:
    """A past time in the server's format: `2h` ago, or a date."""
    now = now or datetime.now(timezone.utc)
    try:
        return to_text(_moment(text) or now - timedelta(seconds=seconds(text)))
    except (InvalidInput, OverflowError):
        raise InvalidInput(
            f"`{text}` is not a time in the past", "write `2h`, `7d` or `2026-12-31`"
        ) from None


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return from_text(text)
        except ValueError:
            return None
    # A date without a zone is in this machine's.
    return moment.astimezone(timezone.utc)
