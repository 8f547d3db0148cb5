"""The schema of torchyard 0.1.0, as the code's tables declared it.

Nothing is done here: a new database gets the tables of its day by `run.create`, and this version.
"""

from __future__ import annotations

revision = "0200"
down_revision = None


def upgrade() -> None:
    raise AssertionError("no database is older than this")
