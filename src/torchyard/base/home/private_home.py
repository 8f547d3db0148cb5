"""Keep what the server knows to its own user.

Owns: the umask of the server, the mode of the home folder.
Leaves: modes of single files to those who write them, what jobs reach to node_folder.py.
Always: nothing in a home is readable by another user: the home's own mode keeps them out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from torchyard.base.errors import InvalidInput

# Workers and builds begin with the umask that the server was started with.
JOB_UMASK = "TORCHYARD_UMASK"
_UMASK = 0o077
_OTHERS = 0o077
# One of these is in every home that was served.
_SIGNS = ("torchyard.db", "database.json", "served.lock", "server.id")
# In one that was not, `yard` may have left these; earlier versions left such a home open.
_OF_COMMANDS = frozenset({"cache", "server.lock", "server.log"})


def restrict_umask(environ: Mapping[str, str]) -> dict[str, str]:
    """Set the umask of this process; what it starts for users gets the one of before.

    Returns the environment of workers and builds.
    """
    return {**environ, JOB_UMASK: f"{os.umask(_UMASK):03o}"}


def ensure(home: Path, mend: bool) -> None:
    """Create the home, or check that no other user can read or enter it.

    Args:
        mend: take the rights of others away from a home that was served before, or that holds
            what `yard` left there alone, instead of refusing it: for a person's own server, which
            nobody types a command for.

    Raises:
        InvalidInput: others can read or enter it; the hint is what to type.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = home.stat()
    if not status.st_mode & _OTHERS:
        return
    names = {entry.name for entry in home.iterdir()}
    is_ours = not names.isdisjoint(_SIGNS) or names <= _OF_COMMANDS
    if (not names or (mend and is_ours)) and status.st_uid == os.geteuid():
        home.chmod(0o700)
        return
    raise InvalidInput(
        f"the home folder `{home}` is open to other users (mode {status.st_mode & 0o777:04o}): it "
        "holds keys, tokens and passwords",
        f"type `chmod 700 {home}`, then start the server again",
        code="home_not_private",
    )
