"""The router's process: from its arguments to its end.

Owns: the lock, the listener and its port, following table and certificate, stopping gracefully.
Leaves: requests to routes.py, questions to control.py; starting the process to the server.
Always: one router a home; it outlives the server, but not the home; a stop accepts nothing new and
lets requests at work end.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torchyard
from torchyard.endpoints.router import control
from torchyard.endpoints.router.client_side import ClientConnection
from torchyard.endpoints.router.routes import Router
from torchyard.endpoints.router.table_file import LOOK_S, TableFile
from torchyard.shared import home_watch, locks

TABLE = "table.json"
LOCK = "lock"
PORT = "port"
_EMPTY_LOOKS = 3
GRACE_S = 30.0
_CHECK_S = 5.0
_CERTIFICATE_LOOK_S = 30.0
_BACKLOG = 1024
_HANDSHAKE_S = 10.0
_TAKEOVER_S = 10.0
_log = logging.getLogger(__name__)


class CannotStart(Exception):
    """
    Args:
        hint: the next step.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Options:
    """
    Attributes:
        folder: the router's folder in the home.
        port: 0 takes the port of last time, or `default_port`, or any that is free.
        certificate: chain and key in PEM; no TLS when None.
        replaces: take over from a router that runs; it ends after its requests at work.
    """

    folder: Path
    host: str = "127.0.0.1"
    port: int = 0
    default_port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    replaces: bool = False


def run(options: Options) -> None:
    """Route until a signal or the control socket says stop.

    Raises:
        CannotStart: another router runs, the port is taken, or the certificate can't be read.
    """
    options.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    context = _context(options)
    lock = locks.open_lock(options.folder / LOCK)
    taken: socket.socket | None = None
    if not locks.try_lock(lock):
        taken = control.take_over(options.folder) if options.replaces else None
        if not options.replaces or not _locked(lock, _TAKEOVER_S):
            raise CannotStart(
                f"a router of `{options.folder}` runs already",
                "start this one with `--replace`, or end the other one at its control socket",
            )
    listener = _reused(taken, options) or _listener(options)
    home_watch.watch(options.folder)
    with listener:
        asyncio.run(_Program(options, listener, context, lock).run())


class _Program:
    def __init__(
        self,
        options: Options,
        listener: socket.socket,
        context: ssl.SSLContext | None,
        lock: int,
    ) -> None:
        self._lock = lock
        self._options = options
        self._listener = listener
        self._context = context
        self._stop = asyncio.Event()
        self._grace_s = GRACE_S
        self._started_at = time.time()
        self._certificate_at = _changed_at(options.certificate)
        self._table = TableFile(options.folder / TABLE)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._router = router = Router(loop)
        self._look()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        server = await loop.create_server(
            lambda: ClientConnection(router),
            sock=self._listener,
            ssl=self._context,
            ssl_handshake_timeout=_HANDSHAKE_S if self._context else None,
            backlog=_BACKLOG,
        )
        questions = await control.listen(self._options.folder, self._answer, self._hand_over)
        port = self._listener.getsockname()[1]
        _log.info("listening at %s:%d, version %s", self._options.host, port, torchyard.__version__)
        tasks = [
            loop.create_task(_repeat(LOOK_S, self._look)),
            loop.create_task(_repeat(_CHECK_S, self._check)),
            loop.create_task(_repeat(_CERTIFICATE_LOOK_S, self._look_at_certificate)),
        ]
        await self._stop.wait()
        _log.info("stopping")
        # What was accepted a moment ago becomes a connection before the server is closed: asyncio
        # would reset it.
        loop.remove_reader(self._listener)
        await asyncio.sleep(0)
        server.close()
        with suppress(FileNotFoundError):
            (self._options.folder / control.SOCKET).unlink()
        questions.close()
        os.close(self._lock)  # the next router may start while requests at work end
        await self._finish(loop.time() + self._grace_s)
        for task in tasks:
            task.cancel()
        router.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        _log.info("stopped")

    async def _finish(self, until: float) -> None:
        """Let requests at work end."""
        router = self._router
        router.is_stopping = True
        loop = asyncio.get_running_loop()
        looks = 0
        # A connection that was accepted a moment ago is not among them yet.
        while looks < _EMPTY_LOOKS:
            looks = 0 if router.connections.all() else looks + 1
            for connection in router.connections.all():
                connection.close_if_idle()
            if loop.time() >= until:
                for connection in router.connections.all():
                    connection.abort()
                break
            await asyncio.sleep(0.02)
        await asyncio.sleep(0)

    def _look(self) -> None:
        if self._table.refresh():
            self._router.update(self._table.table)

    def _check(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in self._router.connections.all():
            connection.check(now)
        self._router.close_idle(_CHECK_S)

    def _look_at_certificate(self) -> None:
        """Go on with a renewed certificate; connections that are there keep theirs."""
        changed_at = _changed_at(self._options.certificate)
        if self._context is None or changed_at == self._certificate_at:
            return
        self._certificate_at = changed_at
        try:
            _load(self._context, self._options)
        except (OSError, ssl.SSLError) as error:
            _log.error("the renewed certificate can't be read: %s", error)

    async def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        kind = question.get("ask")
        if kind == "hello":
            return self._hello()
        if kind == "refresh":
            self._look()
            return self._hello()
        if kind == "statistics":
            return {
                **self._hello(),
                "endpoints": self._router.statistics(),
                "connections": len(self._router.connections),
                "connections_refused": self._router.connections.refused,
                "held_bytes": self._router.held_bytes,
            }
        if kind == "demand":
            return {"waiting": await self._demand(_seconds(question, "timeout_s", 20.0))}
        if kind == "stop":
            self._grace_s = _seconds(question, "grace_s", GRACE_S)
            # Behind the answer to this.
            asyncio.get_running_loop().call_later(0.01, self._stop.set)
            return {"stopping": True}
        raise ValueError("ask one of hello, refresh, statistics, demand, stop")

    def _hello(self) -> dict[str, Any]:
        return {
            "version": torchyard.__version__,
            "pid": os.getpid(),
            "host": self._options.host,
            "port": self._listener.getsockname()[1],
            "is_tls": self._context is not None,
            "started_at": self._started_at,
            "table_version": self._router.table.version,
        }

    def _hand_over(self, connection: socket.socket) -> None:
        socket.send_fds(connection, [b"{}\n"], [self._listener.fileno()])
        _log.info("the listener is handed over")
        self._stop.set()

    async def _demand(self, timeout_s: float) -> list[dict[str, Any]]:
        router = self._router
        if not router.waiting_deployments():
            router.demand.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(router.demand.wait(), timeout_s)
        return router.waiting_deployments()


async def _repeat(every_s: float, act: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            act()
        except Exception:
            _log.exception("a round failed")


def _seconds(question: dict[str, Any], name: str, default: float) -> float:
    value = question.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 3600:
        raise ValueError(f"{name}: not a number from 0 to 3600")
    return float(value)


def _context(options: Options) -> ssl.SSLContext | None:
    if options.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        _load(context, options)
    except (OSError, ssl.SSLError) as error:
        raise CannotStart(
            f"certificate `{options.certificate}` can't be read: {error}",
            "give a PEM file with the certificate's chain, and its key",
        ) from error
    return context


def _load(context: ssl.SSLContext, options: Options) -> None:
    assert options.certificate is not None
    context.load_cert_chain(options.certificate, options.key or options.certificate)


def _changed_at(file: Path | None) -> int:
    if file is None:
        return 0
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0


def _locked(lock: int, limit_s: float) -> bool:
    """Whether the lock comes free in time."""
    until = time.monotonic() + limit_s
    while not locks.try_lock(lock):
        if time.monotonic() >= until:
            return False
        time.sleep(0.02)
    return True


def _reused(taken: socket.socket | None, options: Options) -> socket.socket | None:
    """The listener of the router before, if it is where this one shall listen."""
    if taken is None:
        return None
    host, port = taken.getsockname()[:2]
    address = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0][4][0]
    if host != address or options.port not in (0, port):
        taken.close()
        return None
    taken.setblocking(False)
    return taken


def _listener(options: Options) -> socket.socket:
    """Bound as the options say; the port is remembered for the next router."""
    remembered = options.folder / PORT
    if options.port:
        ports = [options.port]
    else:
        ports = [port for port in (_remembered(remembered), options.default_port) if port] + [0]
    problem: OSError | None = None
    for port in ports:
        try:
            listener = _bind(options.host, port)
        except OSError as error:
            problem = error
            continue
        draft = remembered.with_name(f".{PORT}.{os.getpid()}")
        draft.write_text(json.dumps(listener.getsockname()[1]))
        os.replace(draft, remembered)
        return listener
    raise CannotStart(
        f"the router can't listen at `{options.host}:{options.port}`: {problem}",
        "choose another port with `--scoring-port`",
    )


def _bind(host: str, port: int) -> socket.socket:
    family, kind, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    # asyncio turns Nagle's delay off only for sockets that name their protocol.
    try:
        listener = socket.socket(family, kind, socket.IPPROTO_TCP)
    except OSError:
        if host != "::":
            raise
        return _bind("0.0.0.0", port)  # a machine without IPv6
    try:
        if host == "::":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _remembered(file: Path) -> int:
    try:
        port = json.loads(file.read_text())
    except (OSError, ValueError):
        return 0
    return port if isinstance(port, int) and 0 < port < 65536 else 0
