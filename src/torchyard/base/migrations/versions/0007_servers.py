"""Servers that share one home, and who looks after which attempt."""

from __future__ import annotations

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    pass
