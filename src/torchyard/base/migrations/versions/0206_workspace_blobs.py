"""Each workspace has blobs of its own: no older server, which would find none, serves the home.

The files are divided when a server starts: see base/blob_folders.py.
"""

from __future__ import annotations

revision = "0206"
down_revision = "0205"


def upgrade() -> None:
    """Change no table."""
