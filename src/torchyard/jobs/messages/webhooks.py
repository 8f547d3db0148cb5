"""Post a message to a webhook, whose URL is hostile input.

Owns: which addresses are connected to, the request, the signature.
Leaves: what the message says to content.py, which URLs job files may have to
spec/notification_settings.py.
Always: the host's name is resolved once, and the connection goes to an address that was checked; no
redirect is followed; all of it ends within `LIMIT_S` of resolving, whatever the other end does.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import closing

from torchyard.base import addresses
from torchyard.base.addresses import Network, Resolved
from torchyard.jobs.messages.errors import NeverSent, NotSent
from torchyard.jobs.messages.settings import MessageSettings
from torchyard.jobs.spec.notification_settings import WebhookUrl

LIMIT_S = 10.0
_MOST_ADDRESSES = 3
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r\n]")
_MOST_BYTES = 512
_GONE = 410


def post(
    url: WebhookUrl,
    body: bytes,
    headers: Mapping[str, str],
    settings: MessageSettings,
) -> None:
    """Send one POST request and look at the status of its answer, of which nothing else is read.

    Raises:
        NotSent: no connection, no answer in time, or a status that means failure.
        NeverSent: the address is refused, or the other end redirects or is gone.
    """
    try:
        status = _status(url, _request(url, body, headers), settings)
    except (OSError, ValueError) as error:
        raise NotSent(str(error) or type(error).__name__) from error
    if 300 <= status < 400:
        raise NeverSent(f"it answered {status}: redirects are not followed")
    if status == _GONE:
        raise NeverSent("it answered 410 Gone")
    if not 200 <= status < 300:
        raise NotSent(f"it answered {status}")


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """HMAC-SHA256 of `<timestamp>.<body>`, in hexadecimal."""
    return hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def is_allowed(address: str, networks: Sequence[Network]) -> bool:
    """Whether webhooks may be at an address: one of the internet, or of the owner's networks."""
    parsed = addresses.parse(address.partition("%")[0])
    if parsed is None:
        return False
    return addresses.is_public(parsed) or any(parsed in network for network in networks)


def refusal(host: str) -> str:
    """What is said of a host all of whose addresses are refused."""
    return (
        f"`{host}` is not at an address of the internet, and the server's owner does not allow "
        "its network"
    )


def _status(url: WebhookUrl, request: bytes, settings: MessageSettings) -> int:
    resolved = addresses.resolve((url.host, url.port), socket.SOCK_STREAM, LIMIT_S)
    allowed = [each for each in resolved if is_allowed(each[1][0], settings.allow_networks)]
    if not allowed:
        raise NeverSent(refusal(url.host))
    deadline = time.monotonic() + LIMIT_S
    with closing(_connected(allowed[:_MOST_ADDRESSES], deadline)) as connection:
        if url.scheme == "https":
            connection.settimeout(_left_s(deadline))
            tls = _context(settings.ca_cert).wrap_socket(connection, server_hostname=url.host)
            with closing(tls):
                return _exchange(tls, request, deadline)
        return _exchange(connection, request, deadline)


def _connected(resolved: Sequence[Resolved], deadline: float) -> socket.socket:
    """To the first of the addresses that accepts."""
    failed: OSError | None = None
    for family, address in resolved:
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.settimeout(_left_s(deadline))
            connection.connect(address)
            return connection
        except OSError as error:
            connection.close()
            failed = error
    assert failed is not None
    raise failed


def _context(ca_cert: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_cert:
        context.load_verify_locations(ca_cert)
    return context


def _exchange(connection: socket.socket, request: bytes, deadline: float) -> int:
    connection.settimeout(_left_s(deadline))
    connection.sendall(request)
    answer = b""
    while b"\n" not in answer and len(answer) < _MOST_BYTES:
        connection.settimeout(_left_s(deadline))
        piece = connection.recv(_MOST_BYTES)
        if not piece:
            break
        answer += piece
    match = _STATUS_LINE.match(answer)
    if match is None:
        raise NotSent("it did not answer as an HTTP server")
    return int(match[1])


def _left_s(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError(f"no answer within {LIMIT_S:.0f} s")
    return left_s


def _request(url: WebhookUrl, body: bytes, headers: Mapping[str, str]) -> bytes:
    host = f"[{url.host}]" if ":" in url.host else url.host
    lines = [
        f"POST {url.target} HTTP/1.1",
        f"Host: {host}" if url.has_default_port else f"Host: {host}:{url.port}",
        "User-Agent: torchyard",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body
