"""What `Signals` calls the news that wake the keeper."""

from __future__ import annotations

ENDPOINTS = "endpoints"
"""An endpoint or a deployment is new, has changed, or is to be deleted."""
