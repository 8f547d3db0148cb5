"""Clusters that scale, sizes of one's own, priorities and preemption."""

from __future__ import annotations

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    pass
