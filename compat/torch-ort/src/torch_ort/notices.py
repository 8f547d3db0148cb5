"""What ORTModule says of itself: each thing once.

Owns: the form of the sentences and that none comes twice.
Leaves: when there is something to say to the runners.
Always: they are Python's warnings, which scripts can filter by the prefix `torch_ort:`.
"""

from __future__ import annotations

import warnings


class Notices:
    """Those of one ORTModule, around a module of the class `name`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._said: set[str] = set()

    def say(self, message: str) -> None:
        topic = message.partition(",")[0]  # What follows is a measurement.
        if topic not in self._said:
            self._said.add(topic)
            warnings.warn(f"torch_ort: {self._name} {message}", stacklevel=2)


def reason(error: BaseException) -> str:
    """An error's class and the first line of its message, cut."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= 200 else text[:199] + "…"
