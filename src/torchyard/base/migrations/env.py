"""What Alembic runs: the migrations on the connection that `run.upgrade` made."""

from __future__ import annotations

from alembic import context

from torchyard.base.db import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=False,
)
context.run_migrations()
