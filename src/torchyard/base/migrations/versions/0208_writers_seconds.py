"""Record which job wrote a file of a datastore, and how long a node ran the command.

Of what is there nobody knows either.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0208"
down_revision = "0207"


def upgrade() -> None:
    op.add_column("checksums", sa.Column("job", sa.String(256), nullable=False, server_default=""))
    op.add_column("checksums", sa.Column("written_at", sa.BigInteger()))
    op.add_column("attempt_nodes", sa.Column("ran_s", sa.Float()))
