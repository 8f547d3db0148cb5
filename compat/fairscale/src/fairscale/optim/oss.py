"""fairscale's place of OSS."""

from __future__ import annotations

from fairscale.optim import OSS

__all__ = ["OSS"]
