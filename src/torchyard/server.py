"""`yard-server`: one process over one home folder.

Owns: the home's lock, the port, the owner's token, the order in which things start and stop.
Leaves: the routes to app.py, everything else to the rooms.
Always: the port stays the same over restarts; a server that is killed loses nothing.
"""

from __future__ import annotations

import argparse
import fcntl
import getpass
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import IO, Any

import uvicorn

import torchyard
from torchyard import listening
from torchyard.app import Parts, build, create_app
from torchyard.base import home_database, settings
from torchyard.base.errors import Conflict, TorchyardError
from torchyard.base.files import whole
from torchyard.doors import LOOPBACK_NAMES
from torchyard.jobs.signals import Signals
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces import people

_log = logging.getLogger(__name__)
_DEFAULT_PORT = 8765
_DEFAULT_TLS_PORT = 8766


def ensure_token(parts: Parts, token_file: Path) -> None:
    """The owner's token in a file that only the owner reads; a lost or foreign one is replaced."""
    room = parts.room
    if token_file.exists() and workspaces.is_known(
        room.db, room.clock, token_file.read_text().strip()
    ):
        return
    with room.db.write() as connection:
        token = people.home_token(connection, getpass.getuser(), room.clock.now())
    with whole(token_file, mode=0o600) as writing:
        writing.write(token.encode() + b"\n")


def hold_home(home: Path) -> IO[bytes]:
    """Lock the home folder for one server; let go by closing the file, or by dying.

    Raises:
        Conflict: another server serves it.
    """
    held = open(home / "served.lock", "ab")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held.close()
        raise Conflict(
            f"another server serves `{home}`", "see it with `yard server status`"
        ) from None
    return held


def listen(
    home: Path, host: str, port: int | None, known_as: str = "port", default: int = _DEFAULT_PORT
) -> socket.socket:
    """A listening socket on the port asked for, else the one used last, else a free one.

    Args:
        known_as: the file of the home folder that remembers the port.

    Raises:
        Conflict: the port asked for is taken.
    """
    remembered = home / known_as
    wanted = [port] if port is not None else [_remembered(remembered) or default, 0]
    for number in wanted:
        # asyncio turns Nagle's delay off only for sockets that name their protocol.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
        except OSError:
            listener.close()
            continue
        listener.listen(1024)
        if _remembered(remembered) != listener.getsockname()[1]:
            with whole(remembered) as writing:
                writing.write(str(listener.getsockname()[1]).encode())
        return listener
    raise Conflict(f"port {port} of `{host}` is taken", "choose another with `--port`")


def _remembered(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0


def run(
    home: Path,
    host: str,
    port: int | None,
    ready_fd: int | None,
    tls: listening.Tls | None = None,
    database: str = "",
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        tls: `host` and `port` are the listener's that has it; workers and commands of this machine
            go on using a plain one on loopback.
        database: its URL; empty for the one that the home had last.
    """
    context = listening.context_of(tls) if tls is not None else None
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    configured = settings.Settings(home)
    held = hold_home(home)
    secure = None
    if context is not None:
        secure = (listen(home, host, port, "tls-port", _DEFAULT_TLS_PORT), context)
        host, port = LOOPBACK_NAMES[0], None
    listener = listen(home, host, port)
    url = f"http://{host}:{listener.getsockname()[1]}"
    parts = build(home, url, settings.for_jobs(os.environ), database=database)
    ensure_token(parts, configured.token_file)
    app = create_app(parts, (*LOOPBACK_NAMES, host) if listening.is_loopback(host) else ())
    server = _Server(
        uvicorn.Config(
            app,
            http=listening.PacedProtocol,
            log_level="warning",
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=5,
        ),
        secure,
    )
    server.signals = parts.room.signals
    _write_server_file(configured.server_file, url)
    if ready_fd is not None:
        os.write(ready_fd, f"{url}\n".encode())
        os.close(ready_fd)
    _log.warning("torchyard %s serves %s at %s", torchyard.__version__, home, url)
    try:
        server.run(sockets=[listener])
    finally:
        configured.server_file.unlink(missing_ok=True)
        held.close()


class _Server(listening.Server):
    """Lets the streams go as soon as a signal comes, so that the shutdown need not wait."""

    signals: Signals

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.signals.close()
        super().handle_exit(sig, frame)


def _write_server_file(file: Path, url: str) -> None:
    start_time = 0
    if sys.platform == "linux":
        stat = Path("/proc/self/stat").read_text()
        start_time = int(stat.rpartition(")")[2].split()[19])
    body = {
        "url": url,
        "pid": os.getpid(),
        "start_time": start_time,
        "version": torchyard.__version__,
    }
    with whole(file, mode=0o600) as writing:
        writing.write(json.dumps(body).encode())


def main() -> None:
    parser = argparse.ArgumentParser("yard-server", description="Serve a torchyard home folder.")
    parser.add_argument("--home", type=Path, default=None, help="default: TORCHYARD_HOME")
    parser.add_argument("--host", default="127.0.0.1", help="beyond loopback it needs TLS")
    parser.add_argument("--tls-cert", type=Path, default=None, help="PEM file, with its chain")
    parser.add_argument("--tls-key", type=Path, default=None, help="PEM file, without a password")
    parser.add_argument(
        "--insecure", action="store_true", help="listen beyond loopback without TLS"
    )
    parser.add_argument("--port", type=int, default=None, help="default: the one used last")
    parser.add_argument(
        "--database",
        default="",
        metavar="URL",
        help="postgresql://user@host/name; default: TORCHYARD_DATABASE, then the one used last",
    )
    parser.add_argument("--ready-fd", type=int, default=None, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # The terminal's Ctrl-C is for the command that started an embedded server.
    if asked.ready_fd is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        tls = listening.tls_of(asked.host, asked.tls_cert, asked.tls_key, asked.insecure)
        configured = settings.read()
        home = asked.home.absolute() if asked.home else configured.home
        if asked.database:
            home_database.refuse_password(asked.database)
        database = asked.database or configured.database
        run(home, asked.host, asked.port, asked.ready_fd, tls, database)
    except TorchyardError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error


if __name__ == "__main__":
    main()
