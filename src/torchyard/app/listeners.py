"""Listening sockets and TLS.

Owns: when the server may listen beyond this machine, TLS beside the plain listener, from the start
or from its first use, how long a handshake may take.
Leaves: connections to uvicorn and to a proxy before it, what is in a request to request_guard.py,
the server's own certificate to base/certificates.py.
Always: beyond this machine the server listens only with TLS or with `--insecure`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Collection, MutableMapping
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from torchyard.base import certificates
from torchyard.base.addresses import is_loopback
from torchyard.base.clock import Clock
from torchyard.base.errors import InvalidInput, Unreachable

_RENEWAL_LOOK_EVERY_S = 6 * 3600.0
_OPEN_LIMIT_S = 30.0
_HANDSHAKE_LIMIT_S = 10.0
_FIRST_INHERITED = 3
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----\n?")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tls:
    """Certificate chain and private key, as PEM files."""

    certificate: Path
    key: Path


def tls_of(host: str, certificate: Path | None, key: Path | None, insecure: bool) -> Tls | None:
    """What protects a listener at `host`; None on loopback, or when it was asked for so.

    Raises:
        InvalidInput: others could listen in.
    """
    if (certificate is None) != (key is None):
        raise InvalidInput(
            "TLS needs a certificate and its key", "give `--tls-cert` and `--tls-key`"
        )
    if certificate is not None and key is not None:
        return Tls(certificate, key)
    if not is_loopback(host) and not insecure:
        raise InvalidInput(
            f"listening at `{host}` without TLS would send tokens in the clear over the network",
            "give `--tls-cert` and `--tls-key`, or `--insecure` where the network itself is "
            "trusted; on one machine leave `--host` out",
        )
    return None


def context_of(tls: Tls) -> ssl.SSLContext:
    """
    Raises:
        InvalidInput: the files can't be read, or do not fit each other.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"`{tls.certificate}` and `{tls.key}` can't be used for TLS: {error.strerror or error}",
            "give PEM files: the certificate with its chain, and the key without a password",
        ) from error
    return context


def certificate_of(tls: Tls) -> str:
    """The server's own certificate as PEM, the first of its file; empty when it can't be read."""
    try:
        text = tls.certificate.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    match = _CERTIFICATE.search(text)
    return match[0] if match else ""


def inherited(environ: MutableMapping[str, str]) -> socket.socket | None:
    """The listening socket that systemd has opened for this process; None when it has not.

    The variables that say so are removed: no process that this one starts has the socket.

    Raises:
        InvalidInput: it opened several, or one that is not of TCP.

    Source: sd_listen_fds(3).
    """
    variables = {
        name: environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
    }
    if variables["LISTEN_PID"] != str(os.getpid()) or not variables["LISTEN_FDS"].isdecimal():
        return None
    count = int(variables["LISTEN_FDS"])
    if count != 1:
        raise InvalidInput(
            f"systemd passed {count} sockets to the server, which takes one",
            "leave one `ListenStream=` in the `.socket` unit",
        )
    listener = socket.socket(fileno=_FIRST_INHERITED)
    listener.set_inheritable(False)
    if listener.family not in (socket.AF_INET, socket.AF_INET6) or not listener.getsockopt(
        socket.SOL_SOCKET, socket.SO_ACCEPTCONN
    ):
        listener.close()
        raise InvalidInput(
            "the socket that systemd passed to the server does not listen for TCP",
            "write `ListenStream=PORT` into the `.socket` unit",
        )
    # asyncio turns Nagle's delay off only for sockets that name their protocol.
    return socket.socket(listener.family, listener.type, socket.IPPROTO_TCP, listener.detach())


class Server(uvicorn.Server):
    """Listens at a plain socket and maybe at a second with TLS, in one process."""

    def __init__(
        self, config: uvicorn.Config, secure: tuple[socket.socket, ssl.SSLContext] | None = None
    ) -> None:
        super().__init__(config)
        self._secure = secure
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        if self._secure is not None and not self.should_exit:
            await self._listen(*self._secure)

    def open(self, listener: socket.socket, context: ssl.SSLContext) -> None:
        """Listen with TLS from now on; for any thread but the server's own.

        Raises:
            Unreachable: the server has not started, or is stopping.
        """
        if self._loop is None or self.should_exit:
            raise Unreachable("the server is starting or stopping", "try again")
        opening = asyncio.run_coroutine_threadsafe(self._listen(listener, context), self._loop)
        opening.result(_OPEN_LIMIT_S)

    async def _listen(self, listener: socket.socket, context: ssl.SSLContext) -> None:
        def make() -> asyncio.Protocol:
            return self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )

        self.servers.append(
            await asyncio.get_running_loop().create_server(
                make,
                sock=listener,
                ssl=context,
                ssl_handshake_timeout=_HANDSHAKE_LIMIT_S,
                backlog=self.config.backlog,
            )
        )


@dataclass(frozen=True)
class TlsEndpoint:
    """How clients that insist on TLS reach this server.

    `host` is the name to be called by, empty for the one that the client calls it by already;
    `authority` is the PEM text of who signed the certificate, empty when it is not ours.
    """

    port: int
    host: str = ""
    authority: str = ""


class ConfiguredTls:
    """The listener with the certificate that the server was started with."""

    def __init__(self, tls: Tls, port: int) -> None:
        self._tls = tls
        self._port = port

    def way(self, name: str) -> TlsEndpoint:
        """
        Args:
            name: what the client calls the server by, without TLS; empty when it has TLS.
        """
        return TlsEndpoint(
            self._port, certificates.first_name(self._tls.certificate) if name else ""
        )

    def current(self) -> TlsEndpoint | None:
        """The way in for jobs on this machine."""
        return self.way("localhost")


class OwnTls:
    """The listener with the server's own certificate: there from the start when the home has an
    authority, else from when it is first wanted.

    Args:
        host: where it listens.
        bind: gives its socket.
        names: further names and addresses of this machine, for the certificate.
    """

    def __init__(
        self,
        home: Path,
        host: str,
        clock: Clock,
        bind: Callable[[], socket.socket],
        names: Callable[[], Collection[str]] = lambda: (),
    ) -> None:
        self._names = names
        self._home = home
        self._host = host
        self._clock = clock
        self._bind = bind
        self._lock = threading.Lock()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._used: certificates.Issued | None = None
        self._port = 0
        self._ended = threading.Event()
        self.server: Server | None = None

    def at_start(self, is_required: bool = False) -> tuple[socket.socket, ssl.SSLContext] | None:
        """What a server that had it before listens with; None when it is not wanted yet.

        A certificate that is over is renewed a moment later.

        Args:
            is_required: whether it is wanted from the start.
        """
        if is_required:
            self._refresh()
        stored = certificates.read_stored(self._home) if certificates.is_made(self._home) else None
        if stored is None:
            return None
        try:
            self._use(stored)
        except (OSError, ssl.SSLError) as error:
            _log.warning("`%s` can't be used for TLS (%s); creating a new one", stored.file, error)
            return None
        listener = self._bind()
        self._port = listener.getsockname()[1]
        self._watch()
        return listener, self._context

    def way(self, name: str) -> TlsEndpoint:
        """The way in, opened when it is not yet.

        Args:
            name: what the client calls the server by; the certificate is good for it.

        Raises:
            Unreachable: the server has not started, or is stopping.
            OSError: nothing can be written.
        """
        with self._lock:
            self._refresh(name)
            if not self._port:
                assert self.server is not None
                listener = self._bind()
                try:
                    self.server.open(listener, self._context)
                except BaseException:
                    listener.close()
                    raise
                self._port = listener.getsockname()[1]
                self._watch()
            return TlsEndpoint(self._port, authority=certificates.authority(self._home))

    def current(self) -> TlsEndpoint | None:
        """The way in if it is open already."""
        if not self._port:
            return None
        return TlsEndpoint(self._port, authority=certificates.authority(self._home))

    def close(self) -> None:
        self._ended.set()

    def _issued(self, name: str = "") -> certificates.Issued:
        host = "" if self._host in ("0.0.0.0", "::") else self._host
        names = {host, name, *self._names()} - {""}
        return certificates.ensure(self._home, names, self._clock.now())

    def _refresh(self, name: str = "") -> None:
        issued = self._issued(name)
        try:
            self._use(issued)
        except ssl.SSLError as error:
            _log.warning("`%s` can't be used for TLS (%s); creating a new one", issued.file, error)
            issued.file.unlink(missing_ok=True)
            self._use(self._issued(name))

    def _use(self, issued: certificates.Issued) -> None:
        """New connections have it; those that are open keep what they have."""
        if issued != self._used:
            self._context.load_cert_chain(issued.file)
            self._used = issued

    def _watch(self) -> None:
        threading.Thread(target=self._keep_fresh, name="certificate", daemon=True).start()

    def _keep_fresh(self) -> None:
        wait_s = 1.0
        while not self._ended.wait(wait_s):
            wait_s = _RENEWAL_LOOK_EVERY_S
            try:
                with self._lock:
                    self._refresh()
            except Exception:
                _log.exception("the server's certificate could not be renewed; trying again later")
