"""Bring a database's schema forward.

Owns: calling Alembic from code, without an ini file.
Leaves: when to base/db.py, what to the files in `versions/`.
Always: one server at a time migrates; the others wait and find it done.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine


def upgrade(engine: Engine, version: str) -> None:
    """Run every step up to `version` in one transaction."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    with engine.execution_options(writes=True).begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, version)
