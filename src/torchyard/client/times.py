"""Lengths of time for people."""

from __future__ import annotations

from torchyard.base import clock


def seconds_between(start: str | None, end: str | None) -> float | None:
    """None when one of them is missing."""
    if not start or not end:
        return None
    return (clock.from_text(end) - clock.from_text(start)).total_seconds()


def duration(seconds: float | None) -> str:
    """A length of time for people: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
