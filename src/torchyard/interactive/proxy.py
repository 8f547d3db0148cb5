"""The listener for services: each at a host name of its own, let through to a node.

Owns: the listener, one connection from its first byte to its last, the pages that it answers with.
Leaves: heads to http_heads.py, codes and sessions to links.py, which service a host is to
running_services.py.
Always: nothing reaches a service before its session is checked, and a connection ends when its
person may no longer enter; bytes are passed on as they are taken, never gathered; each connection
carries one request.

Host names tell the services apart because a browser sends the cookies of a host to all of its
ports, and lets the pages at one port set them for the others.
"""

from __future__ import annotations

import asyncio
import html
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

from torchyard.base.errors import TorchyardError
from torchyard.base.long_connections import serve_while
from torchyard.interactive import http_heads
from torchyard.interactive.http_heads import BadHead, Head, RequestLine
from torchyard.interactive.links import Links
from torchyard.shared import chunks
from torchyard.tunnels.tunnel import Channel, ChannelClosed

SIGN_IN = "/.torchyard/sign-in"
_HEAD_MOST_BYTES = 64 << 10
_HEAD_LIMIT_S = 20.0
_READ_BYTES = 64 << 10
_MOST_CONNECTIONS = 1000
_WRITE_BUFFER_BYTES = 256 << 10
_REASONS = {
    200: "OK", 303: "See Other", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden",
    404: "Not Found", 502: "Bad Gateway", 503: "Service Unavailable",
}  # fmt: skip
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body><h1>{title}</h1><p>{text}</p></body></html>
"""
_log = logging.getLogger(__name__)


class Target(Protocol):
    """A service behind a host name."""

    name: str
    first_path: str

    async def may_enter(self, token_hash: str) -> bool: ...
    async def connect(self) -> Channel: ...
    async def trouble(self) -> str: ...


Find = Callable[[str], Target | None]
"""From the first label of a host name to the service; None if there is none."""


@dataclass(frozen=True)
class ProxyAddress:
    """Where the proxy is for browsers: `scheme://<label>.domain[:port]`, the port 0 for none."""

    scheme: str
    domain: str
    port: int

    def origin(self, label: str) -> str:
        port = f":{self.port}" if self.port else ""
        return f"{self.scheme}://{label}.{self.domain}{port}"


class _Answered(Exception):
    """The request got an answer of the proxy's own."""

    def __init__(self, status: int, title: str, text: str, *headers: tuple[str, str]) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.text = text
        self.headers = headers


class Proxy:
    """
    Args:
        location_of: tells where browsers reach it, by the port that it listens at.
    """

    def __init__(
        self, find: Find, links: Links, location_of: Callable[[int], ProxyAddress]
    ) -> None:
        self._find = find
        self._links = links
        self._address_at = location_of
        self._address = location_of(0)
        self._server: asyncio.AbstractServer | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def base_address(self) -> ProxyAddress:
        return self._address

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """
        Raises:
            OSError: the port is taken.
        """
        self._server = await asyncio.start_server(
            self._connected, host, port, ssl=tls, limit=_HEAD_MOST_BYTES
        )
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._address = self._address_at(self.port)

    def close(self) -> None:
        """For the event loop's thread."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= _MOST_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections.add(task)
        writer.transport.set_write_buffer_limits(_WRITE_BUFFER_BYTES)
        try:
            await self._serve(reader, writer)
        except (OSError, ChannelClosed, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        except Exception:
            _log.exception("the proxy of services failed")
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _read_head(reader)
            target, label = self._target(request)
            token_hash = await self._let_in(request, target, label)
            channel = await _connect(target)
        except _Answered as answer:
            await _write_page(writer, answer)
            return
        except (BadHead, asyncio.LimitOverrunError, asyncio.TimeoutError):
            text = "This is not a request that can be passed on."
            await _write_page(writer, _Answered(400, "Bad request", text))
            return
        try:
            passing = self._pass(request, reader, writer, target, channel)
            if not await serve_while(lambda: target.may_enter(token_hash), passing):
                writer.transport.abort()  # so that what is cut off does not look whole
        finally:
            channel.close()

    def _target(self, request: Head) -> tuple[Target, str]:
        host = request.get("host").lower().partition(":")[0]
        label, _, domain = host.partition(".")
        target = self._find(label) if domain == self._address.domain else None
        if target is None or len(request.all("host")) != 1:
            raise _Answered(
                404,
                "No such service",
                "It has ended, or this address is from before the server was started. Open it "
                "from the job's page, or with `yard job show-services`.",
            )
        return target, label

    async def _let_in(self, request: Head, target: Target, label: str) -> str:
        """The hash of the token that the request's session is of."""
        line = RequestLine.of(request)
        http_heads.body_bytes(request)
        secure = self._address.scheme == "https"
        cookie = http_heads.SECURE_COOKIE if secure else http_heads.COOKIE
        parts = urlsplit(line.target)
        if parts.path == SIGN_IN:
            self._sign_in(parts.query, target, label, cookie, secure)
        sessions = http_heads.cookies(request, cookie)
        holder = self._links.holder(sessions[0], label) if len(sessions) == 1 else None
        if holder is None:
            raise _Answered(
                401,
                "Sign in first",
                f"Open `{target.name}` from the job's page, or with `yard job show-services`: "
                "the link there lets you in.",
            )
        why = http_heads.refusal(request, self._address.origin(label))
        if why:
            raise _Answered(403, "Refused", f"The request was refused: {why}.")
        if not await target.may_enter(holder.token_hash):
            raise _Answered(
                403,
                "Refused",
                "Only the job's owner and owners of the workspace may, as long as the token is "
                "good that the link was asked for with.",
            )
        return holder.token_hash

    def _sign_in(self, query: str, target: Target, label: str, cookie: str, secure: bool) -> None:
        codes = parse_qs(query).get("code", [])
        session = self._links.exchange(codes[0], label) if len(codes) == 1 else None
        if session is None:
            raise _Answered(
                401, "This link is no longer good", "It is good once, for a minute: open another."
            )
        value = f"{cookie}={session}; Path=/; HttpOnly; SameSite=Lax; Max-Age=43200"
        raise _Answered(
            303,
            "Signed in",
            "",
            ("Set-Cookie", value + ("; Secure" if secure else "")),
            ("Location", target.first_path),
        )

    async def _pass(
        self,
        request: Head,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        target: Target,
        channel: Channel,
    ) -> None:
        upgrade = http_heads.is_upgrade(request)
        sending = asyncio.ensure_future(
            self._send(request, reader, channel, self._address.scheme, upgrade)
        )
        try:
            await self._answer(writer, channel)
        except (ChannelClosed, BadHead) as error:
            text = str(error) or "The node closed the connection"
            trouble = await target.trouble()
            page = _Answered(502, f"`{target.name}` does not answer", f"{text}. {trouble}")
            await _write_page(writer, page)
        finally:
            sending.cancel()
            await asyncio.wait([sending])

    async def _send(
        self,
        request: Head,
        reader: asyncio.StreamReader,
        channel: Channel,
        scheme: str,
        upgrade: bool,
    ) -> None:
        """Pass on the request, its body, and what follows an upgrade; hang up with the person."""
        await channel.write(http_heads.request_for_service(request, scheme).to_bytes())
        left = None if upgrade else http_heads.body_bytes(request)
        if left is None and not upgrade:
            await _pass_chunks(reader, channel)
            left = 0
        while left is None or left > 0:
            data = await reader.read(_READ_BYTES if left is None else min(left, _READ_BYTES))
            if not data:
                channel.close()
                return
            await channel.write(data)
            left = None if left is None else left - len(data)
        # Nothing more may come: what does is not part of this request.
        if not await reader.read(1):
            channel.close()

    async def _answer(self, writer: asyncio.StreamWriter, channel: Channel) -> None:
        buffer = bytearray()
        while (end := buffer.find(b"\r\n\r\n")) < 0:
            data = await channel.read()
            buffer += data
            if not data or len(buffer) > _HEAD_MOST_BYTES:
                raise BadHead("The service closed the connection without an answer")
        head = http_heads.read(bytes(buffer[:end]))
        words = head.first.split(" ")
        if not words[0].startswith("HTTP/1.") or len(words) < 2 or not words[1].isdigit():
            raise BadHead("The service does not speak HTTP")
        writer.write(http_heads.response_for_person(head).to_bytes())
        rest = bytes(buffer[end + 4 :])
        del buffer
        try:
            while rest or (rest := await channel.read()):
                writer.write(rest)
                rest = b""
                await writer.drain()
        except ChannelClosed:
            writer.transport.abort()  # so that what is cut off does not look whole


async def _connect(target: Target) -> Channel:
    try:
        return await target.connect()
    except TorchyardError as error:
        raise _Answered(
            502, f"`{target.name}` can't be reached", f"{error.message}. {error.hint}"
        ) from error


async def _read_head(reader: asyncio.StreamReader) -> Head:
    data = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_LIMIT_S)
    return http_heads.read(data[:-4])


async def _pass_chunks(reader: asyncio.StreamReader, channel: Channel) -> None:
    """
    Raises:
        BadHead: they are not chunks.
    """
    while True:
        line = await reader.readuntil(b"\r\n")
        try:
            left = chunks.size_bytes(line)
        except ValueError:
            raise BadHead("a malformed chunk") from None
        await channel.write(b"%x\r\n" % left)
        left += 2  # its line's end
        if left == 2:
            await channel.write(b"\r\n")
            return
        while left:
            data = await reader.read(min(left, _READ_BYTES))
            if not data:
                raise BadHead("a body that was cut off")
            await channel.write(data)
            left -= len(data)


async def _write_page(writer: asyncio.StreamWriter, answer: _Answered) -> None:
    title, text = html.escape(answer.title), html.escape(answer.text)
    body = _PAGE.format(title=title, text=text).encode()
    headers = (
        ("Content-Type", "text/html; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cache-Control", "no-store"),
        ("Connection", "close"),
        *answer.headers,
    )
    first = f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}"
    writer.write(Head(first, headers).to_bytes() + body)
    await writer.drain()
