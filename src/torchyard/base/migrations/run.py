"""Bring a database's schema forward.

Owns: calling Alembic from code, without an ini file.
Leaves: when to base/db.py, what to the files in `versions/`.
Always: a schema is brought forward whole or not at all, in its caller's transaction.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def upgrade(connection: Connection, version: str) -> None:
    """Run every step up to `version` in the transaction of `connection`."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    command.upgrade(config, version)
