"""A restored home starts nothing until its owner says so.

Owns: the file in the home that says it is held, and since which backup.
Leaves: starting nothing to app/application.py, refusing changes to workspaces/access.py.
Always: a server that began with a held home stays so until it is started again.
"""

from __future__ import annotations

from pathlib import Path

from torchyard.base.errors import Conflict
from torchyard.base.files import write_atomically

_FILE = "restored-from"
TROUBLE = (
    "this home was restored from a backup; it can be read, and starts nothing beside the server "
    "that it is a copy of"
)
HINT = "if that one has ended for good, type `yard server resume`"


def hold(home: Path, source: Path) -> None:
    with write_atomically(home / _FILE, mode=0o600) as file:
        file.write(f"{source}\n".encode())


def is_held(home: Path) -> bool:
    return (home / _FILE).exists()


def resume(home: Path) -> bool:
    """Let the next server of this home start what it has; False where it isn't held."""
    try:
        (home / _FILE).unlink()
    except FileNotFoundError:
        return False
    return True


def refusal() -> Conflict:
    return Conflict(TROUBLE, HINT, code="restored")
