"""Building an environment without a server, as `make curated` does.

Owns: a room of one process over a home folder.
Leaves: everything else to services.py.
Always: what is built lies where a server of that home finds it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torchyard.base import home_database
from torchyard.base.clock import SystemClock
from torchyard.environments.services import Environments


def built(home: Path, asked: Any) -> Path:
    """The folder of an environment, a reference or inline, built now unless it is there."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    db = home_database.open_for(home, home_database.chosen(home, ""))
    try:
        environments = Environments(home, db, SystemClock(), os.environ)
        return environments.builds.run(environments.resolver.resolve(asked))
    finally:
        db.close()
