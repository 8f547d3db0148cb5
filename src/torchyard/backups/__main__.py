"""`python -m torchyard.backups`: what `yard server backup` and `yard server restore` run.

A program of its own, because the command imports nothing of the server's.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from torchyard.backups import actions
from torchyard.base import home_database, settings
from torchyard.base.errors import TorchyardError


def main() -> None:
    parser = argparse.ArgumentParser("python -m torchyard.backups")
    parser.add_argument("action", choices=("backup", "restore"))
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--database", default="")
    parser.add_argument("place", type=Path)
    options = parser.parse_args()
    try:
        if options.database:
            home_database.refuse_password(options.database)
        database = options.database or settings.read().database
        action = actions.backup if options.action == "backup" else actions.restore
        result = action(options.home.absolute(), database, options.place.absolute())
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


if __name__ == "__main__":
    main()
