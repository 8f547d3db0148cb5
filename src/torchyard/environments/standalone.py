"""Build an environment without a server, as `make curated` does.

Owns: opening the database of a home folder for one process.
Leaves: everything else to services.py.
Always: a server of that home finds the environment.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torchyard.base import home_database
from torchyard.base.clock import SystemClock
from torchyard.environments.services import Environments


def build(home: Path, environment: Any) -> Path:
    """The folder of an environment, a reference or inline, built now unless it exists."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    db = home_database.open_for(home, home_database.chosen(home, ""))
    try:
        environments = Environments(home, db, SystemClock(), os.environ)
        return environments.builds.run(environments.resolver.resolve(environment))
    finally:
        db.close()
