"""The file with the passphrase of a backup's secrets.

Owns: refusing one that is soon guessed.
Leaves: reading the file to private_files.py, encrypting with it to backups/secrets.py.
Always: a passphrase is never an argument, which everyone on a machine can read.
"""

from __future__ import annotations

from pathlib import Path

from torchyard.base.errors import InvalidInput
from torchyard.base.home import private_files

_SHORTEST_PASSPHRASE = 12


def passphrase_in(file: Path | None) -> str:
    """The first line of a file that nobody else reads; empty without a file.

    Raises:
        InvalidInput: it is missing, too short, or others can read it.
    """
    if file is None:
        return ""
    what, hint = "the passphrase file", "name one that you can read"
    passphrase = (
        private_files.read_text(file, what, hint, of_service=False).partition("\n")[0].strip()
    )
    if len(passphrase) < _SHORTEST_PASSPHRASE:
        raise InvalidInput(
            f"the passphrase in `{file}` is shorter than {_SHORTEST_PASSPHRASE} characters",
            f"make one with `openssl rand -base64 24 > {file}`",
        )
    return passphrase
