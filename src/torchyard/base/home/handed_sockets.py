"""Where the sockets are that the server hands to jobs, and that at which it takes files itself;
programs of its own user alone reach them.

Owns: their folder, their names.
Leaves: making and handing them in to executors/, connecting to whose job it is.
Always: the folder is the server's user's alone, as the home is; an attempt has its own names.
"""

from __future__ import annotations

from pathlib import Path

_FOLDER, _OF_FILES = "sockets", "handover"


def path(home: Path, attempt: str, service: str) -> Path:
    """The socket of a service of an attempt."""
    return home / _FOLDER / f"{attempt}-{service}"


def of_files(home: Path, server_pid: int) -> Path:
    """The socket at which a server of this machine takes open files."""
    # In a folder of their own: a server removes the sockets beside its own that nobody answers.
    return home / _OF_FILES / f"{server_pid}"
