"""How fast a client has to be.

Owns: the least rate of bodies and of the reading of answers.
Leaves: what happens to a client that is slower to client_side.py.
Always: the rate is an average, and a lead lasts for the grace.
"""

from __future__ import annotations

LEAST_BYTES_PER_S = 1000.0


class Pace:
    """Whether bytes come, or go, at the least rate."""

    __slots__ = ("_at", "_grace_s", "_lead_s")

    def __init__(self, grace_s: float, now: float) -> None:
        self._grace_s = self._lead_s = grace_s
        self._at = now

    def is_kept(self, now: float, new_bytes: int) -> bool:
        """
        Args:
            new_bytes: since the last call.
        """
        lead_s = self._lead_s - (now - self._at) + new_bytes / LEAST_BYTES_PER_S
        self._lead_s, self._at = min(lead_s, self._grace_s), now
        return lead_s > 0

    def pause(self, now: float) -> None:
        """The time since the last call was not the client's."""
        self._at = now
