"""Where the server listens, and to whom.

Owns: when it may listen beyond this machine, TLS beside the plain listener, slow and endless heads
of requests.
Leaves: what is in a request to doors.py.
Always: without TLS or an explicit word nobody beyond this machine is listened to; who sends
nothing for a while is hung up on.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from torchyard.base.errors import InvalidInput, LimitExceeded

_HEAD_MOST_BYTES = 64 << 10
_HEAD_LIMIT_S = 30.0
_SILENCE_LIMIT_S = 60.0
_LOOK_EVERY_S = 5.0
_LONG_HEAD = LimitExceeded("the request's head is longer than 64 KiB", "shorten its headers")


@dataclass(frozen=True)
class Tls:
    """Certificate chain and private key, as PEM files."""

    certificate: Path
    key: Path


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens at `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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


class PacedProtocol(HttpToolsProtocol):
    """One connection, whose client is neither endless nor silent in the middle of a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._in_head, self._in_body = True, False
        self._head_bytes = 0
        self._head_since = self._heard_at = self.loop.time()
        self._look = self.loop.call_later(_LOOK_EVERY_S, self._look_for_silence)

    def connection_lost(self, exc: Exception | None) -> None:
        self._look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        if self._in_head:
            if not self._head_bytes:
                self._head_since = self._heard_at
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > _HEAD_MOST_BYTES:
            body = json.dumps(_LONG_HEAD.to_json()).encode()
            self.transport.write(
                b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
                b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (len(body), body)
            )
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body = False, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._in_body = True, False
        self._head_bytes = 0
        super().on_message_complete()

    def _look_for_silence(self) -> None:
        now = self.loop.time()
        slow_head = self._in_head and self._head_bytes and now - self._head_since > _HEAD_LIMIT_S
        # A connection that never said anything; one between two requests has uvicorn's own limit.
        mute = self.cycle is None and self._in_head and now - self._heard_at > _HEAD_LIMIT_S
        silent = self._in_body and now - self._heard_at > _SILENCE_LIMIT_S
        if slow_head or mute or (silent and not self.flow.read_paused):
            self.transport.close()
            return
        self._look = self.loop.call_later(_LOOK_EVERY_S, self._look_for_silence)


class Server(uvicorn.Server):
    """Listens at a plain socket and, if there is one, at a second with TLS, in one process."""

    def __init__(
        self, config: uvicorn.Config, secure: tuple[socket.socket, ssl.SSLContext] | None = None
    ) -> None:
        super().__init__(config)
        self._secure = secure

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._secure is None or self.should_exit:
            return
        listener, context = self._secure
        loop = asyncio.get_running_loop()

        def protocol() -> Any:
            return PacedProtocol(
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
                _loop=loop,
            )

        self.servers.append(
            await loop.create_server(
                protocol, sock=listener, ssl=context, backlog=self.config.backlog
            )
        )
