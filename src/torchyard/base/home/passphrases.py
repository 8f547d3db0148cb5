"""The file with the passphrase of a backup's secrets.

Owns: reading it, refusing one that others can read or that is soon guessed.
Leaves: encrypting with it to backups/secrets.py.
Always: a passphrase is never an argument, which everyone on a machine can read.
"""

from __future__ import annotations

from pathlib import Path

from torchyard.base.errors import InvalidInput

_SHORTEST_PASSPHRASE = 12


def passphrase_in(file: Path | None) -> str:
    """The first line of a file that nobody else reads; empty without a file.

    Raises:
        InvalidInput: it is missing, too short, or others can read it.
    """
    if file is None:
        return ""
    try:
        status, lines = file.stat(), file.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise InvalidInput(f"the passphrase file `{file}` can't be read: {why}") from error
    if status.st_mode & 0o077:
        raise InvalidInput(
            f"others can read the passphrase file `{file}`", f"type `chmod 600 {file}`"
        )
    passphrase = lines[0].strip() if lines else ""
    if len(passphrase) < _SHORTEST_PASSPHRASE:
        raise InvalidInput(
            f"the passphrase in `{file}` is shorter than {_SHORTEST_PASSPHRASE} characters",
            f"make one with `openssl rand -base64 24 > {file}`",
        )
    return passphrase
