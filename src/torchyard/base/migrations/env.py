"""What Alembic runs: the migrations on the connection that `run.upgrade` made."""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    transactional_ddl=False,
)
context.run_migrations()
