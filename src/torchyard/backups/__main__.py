"""`python -m torchyard.backups`: what `yard server backup` and `yard server restore` run.

A program of its own, because the command imports nothing of the server's.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from torchyard.backups import actions, secrets
from torchyard.base import settings
from torchyard.base.errors import TorchyardError
from torchyard.base.home import home_database
from torchyard.base.home.home_database import Choice


def main() -> None:
    parser = argparse.ArgumentParser("python -m torchyard.backups")
    parser.add_argument("action", choices=("backup", "restore"))
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--database", default="")
    parser.add_argument("--database-file", type=Path, default=None)
    parser.add_argument("--passphrase-file", type=Path, default=None)
    parser.add_argument("place", type=Path)
    options = parser.parse_args()
    try:
        if options.database:
            home_database.refuse_password(options.database)
        home = options.home.absolute()
        choice = _choice(options)
        database = home_database.resolve(home, choice)
        passphrase = secrets.passphrase_in(options.passphrase_file)
        folder = options.place.absolute()
        if options.action == "backup":
            result = actions.backup(home, database, folder, passphrase)
        else:
            result = actions.restore(home, database, folder, passphrase)
            if choice.file is not None and not choice.url:
                home_database.remember_file(home, choice.file)
    except TorchyardError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    except OSError as error:
        print(f"error: `{error.filename or options.place}`: {error.strerror}", file=sys.stderr)
        print("hint: see whether there is space, and who may read and write there", file=sys.stderr)
        raise SystemExit(2) from error
    print(json.dumps(asdict(result)))


def _choice(options: argparse.Namespace) -> Choice:
    configured = settings.read()
    if options.database:
        return Choice(options.database, password=configured.database_password)
    if options.database_file:
        return Choice(file=options.database_file.absolute())
    return Choice(
        configured.database, configured.database_file, password=configured.database_password
    )


if __name__ == "__main__":
    main()
