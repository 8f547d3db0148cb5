"""`python -m torchyard.endpoints.router`: started by the server, which it outlives.

Owns: the command line, the log's file.
Leaves: all else to program.py.
Always: what is wrong is said in one line on stderr, with a hint, and the exit code is 2.
"""

from __future__ import annotations

import argparse
import logging
import logging.handlers
import sys
from collections.abc import Sequence
from pathlib import Path

from torchyard.endpoints.router.program import CannotStart, Options, run

_LOG = "router.log"
_LOG_BYTES = 10_000_000
_LOGS_KEPT = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 after a stop, 2 when it can't start."""
    options = _options(arguments)
    try:
        options.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(
            options.folder / _LOG, maxBytes=_LOG_BYTES, backupCount=_LOGS_KEPT
        )
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        run(options)
    except CannotStart as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return 2
    except OSError as error:
        print(
            f"error: the router can't use `{options.folder}`: {error}\n"
            "hint: check that the folder can be written",
            file=sys.stderr,
        )
        return 2
    return 0


def _options(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m torchyard.endpoints.router")
    parser.add_argument("--home", required=True, type=Path, help="the home; uses `router/` in it")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="exactly this one")
    parser.add_argument("--default-port", type=int, default=0, help="if it is free")
    parser.add_argument("--certificate", type=Path, help="PEM file; with it, TLS")
    parser.add_argument("--key", type=Path, help="PEM file; the certificate's if left out")
    parser.add_argument("--replace", action="store_true", help="take over from one that runs")
    parsed = parser.parse_args(arguments)
    for port in (parsed.port, parsed.default_port):
        if not 0 <= port <= 65535:
            parser.error(f"port {port} is not between 0 and 65535")
    return Options(
        (parsed.home / "router").absolute(),
        parsed.host,
        parsed.port,
        parsed.default_port,
        parsed.certificate,
        parsed.key,
        parsed.replace,
    )


if __name__ == "__main__":
    sys.exit(main())
