"""As the tests of pipelines have it."""

from __future__ import annotations

from pipelines.running.conftest import lab

__all__ = ["lab"]
