"""What `Signals` calls the news that wake the keeper."""

from __future__ import annotations

SWEEPS = "sweeps"
"""A sweep is new, is to end, or goes on."""
