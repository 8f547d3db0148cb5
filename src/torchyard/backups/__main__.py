"""`python -m torchyard.backups`: what `yard server backup` and its neighbours run.

A program of its own, because the command imports nothing of the server's; and so that a server's
scheduled backup takes nothing of the time of its requests.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torchyard.backups import actions, key_rotation, proving
from torchyard.base import settings
from torchyard.base.errors import InvalidInput, TorchyardError
from torchyard.base.home import home_database, process_secrets, secrets_keys
from torchyard.base.home.home_database import Choice
from torchyard.base.home.passphrases import passphrase_in
from torchyard.base.settings import Settings

_LOWEST_PRIORITY = 19


def main() -> None:
    parser = argparse.ArgumentParser("python -m torchyard.backups")
    parser.add_argument("action", choices=("backup", "restore", "prove", "rotate-key"))
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--database", default="")
    parser.add_argument("--database-file", type=Path, default=None)
    parser.add_argument("--passphrase-file", type=Path, default=None)
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--low-priority", action="store_true")
    parser.add_argument("place", type=Path, nargs="?", default=Path())
    parser.add_argument("--to", type=Path, default=None)
    options = parser.parse_intermixed_args()
    if options.low_priority:
        os.nice(_LOWEST_PRIORITY)  # of the disk, too: ioprio_set(2) derives it from this one
    try:
        result = _act(options)
    except TorchyardError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    except OSError as error:
        print(f"error: `{error.filename or options.place}`: {error.strerror}", file=sys.stderr)
        print("hint: see whether there is space, and who may read and write there", file=sys.stderr)
        raise SystemExit(2) from error
    print(json.dumps(result))


def _act(options: argparse.Namespace) -> dict[str, Any]:
    home, place = options.home.absolute(), options.place.absolute()
    passphrase = passphrase_in(options.passphrase_file)
    if options.action == "prove":
        return asdict(proving.prove(home, place, passphrase))
    if options.database:
        home_database.refuse_password(options.database)
    configured = _configured()
    choice, given = _choice(options, configured), secrets_keys.given_by(configured)
    database = home_database.resolve(home, choice)
    if options.action == "rotate-key":
        to = options.to.absolute() if options.to else None
        return asdict(key_rotation.rotate(home, database, given, to))
    if options.action == "backup":
        result = asdict(actions.backup(home, database, place, passphrase, given))
        return result | ({"proof": _prove(home, place, passphrase)} if options.prove else {})
    result = asdict(actions.restore(home, database, place, passphrase))
    if choice.file is not None and not choice.url:
        home_database.remember_file(home, choice.file)
    return result


def _prove(home: Path, target: Path, passphrase: str) -> dict[str, Any]:
    """What was proved of a backup that was just written."""
    try:
        return asdict(proving.prove(home, target, passphrase))
    except TorchyardError as error:
        # The message must say that a backup was written all the same.
        message = f"the backup is written, but not proved: {error.message}"
        raise InvalidInput(message, error.hint, code=error.code) from error


def _configured() -> Settings:
    """The settings, whose secrets leave this process's environment."""
    taken = process_secrets.take(settings.SECRETS)
    return replace(
        settings.read(),
        database=taken.get("TORCHYARD_DATABASE", ""),
        database_password=taken.get("PGPASSWORD", ""),
        secrets_key=taken.get("TORCHYARD_SECRETS_KEY", ""),
    )


def _choice(options: argparse.Namespace, configured: Settings) -> Choice:
    if options.database:
        return Choice(options.database, password=configured.database_password)
    if options.database_file:
        return Choice(file=options.database_file.absolute())
    return Choice(
        configured.database, configured.database_file, password=configured.database_password
    )


if __name__ == "__main__":
    main()
