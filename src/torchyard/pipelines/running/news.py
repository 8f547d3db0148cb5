"""What `Signals` calls the news that wake the keeper."""

from __future__ import annotations

PIPELINES = "pipelines"
"""A pipeline is new, or is to end."""
