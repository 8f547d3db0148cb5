"""The client's address and scheme behind a reverse proxy.

Owns: `X-Forwarded-For`, `X-Forwarded-Proto` and `Forwarded`, and whom they are believed from.
Leaves: what the address is used for to the audit and the limits.
Always: only addresses that the owner named are believed, loopback not by itself; a hop is believed
only if the hop after it is.

Source: RFC 7239; https://developer.mozilla.org/docs/Web/HTTP/Reference/Headers/X-Forwarded-For
(selecting an address by trusted proxies)
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchyard.app.refusals import refuse
from torchyard.base import addresses
from torchyard.base.addresses import Network
from torchyard.base.errors import InvalidInput

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_SCHEMES = ("http", "https")
_MOST_HOPS = 50
_PAIR = re.compile(
    r'(?<![A-Za-z])(?P<name>[A-Za-z]+)=(?:"(?P<quoted>[^"\\]*)"|(?P<plain>[^\s",;]*))'
)


@dataclass(frozen=True)
class Hop:
    """What one proxy says of the connection it received: `host` is empty if it does not tell."""

    host: str
    scheme: str = ""


class ForwardedRequests:
    """ASGI middleware around everything else.

    Args:
        proxies: the networks whose headers are believed.
    """

    def __init__(self, app: App, proxies: Sequence[Network] = ()) -> None:
        self._app = app
        self._proxies = tuple(proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._proxies:
            await self._app(scope, receive, send)
            return
        client = scope.get("client")
        if scope["type"] == "http" and client and addresses.is_within(client[0], self._proxies):
            try:
                self._apply(scope, client)
            except InvalidInput as error:
                await refuse(scope, send, error)
                return
        await self._app(scope, receive, send)

    def _apply(self, scope: Scope, client: tuple[str, int]) -> None:
        hops = hops_of(scope["headers"])
        host, scheme = client[0], scope["scheme"]
        for hop in reversed(hops):
            if not addresses.is_within(host, self._proxies):
                break
            scheme = hop.scheme or scheme
            if not hop.host:
                break
            host = hop.host
        scope["scheme"] = scheme
        if host != client[0]:
            scope["client"] = (host, 0)


def hops_of(headers: Sequence[tuple[bytes, bytes]]) -> list[Hop]:
    """What proxies say, the one nearest to this server last.

    Raises:
        InvalidInput: `X-Forwarded-For` and `Forwarded` differ. A proxy sets one of them, and the
            other comes from the client.
    """
    standard = _standard_hops(_values(headers, b"forwarded"))
    hosts = [_host_of(text) for text in _values(headers, b"x-forwarded-for")[-_MOST_HOPS:]]
    if not hosts and _values(headers, b"x-forwarded-proto"):
        hosts = [""]
    common = [Hop(host) for host in hosts]
    schemes = [text.lower() for text in _values(headers, b"x-forwarded-proto")]
    if common and schemes and schemes[-1] in _SCHEMES:
        # Proxies replace this header, and do not append to it as to the other one.
        common = [Hop(hop.host, schemes[-1]) for hop in common]
    if standard and common and [hop.host for hop in standard] != [hop.host for hop in common]:
        raise InvalidInput(
            "the headers `Forwarded` and `X-Forwarded-For` of the request differ",
            "let the proxy remove the one of the two that it does not set",
        )
    return common or standard


def _standard_hops(texts: Sequence[str]) -> list[Hop]:
    hops = []
    for text in texts[-_MOST_HOPS:]:
        pairs = {
            match["name"].lower(): match["quoted"] or match["plain"] or ""
            for match in _PAIR.finditer(text)
        }
        scheme = pairs.get("proto", "").lower()
        hops.append(Hop(_host_of(pairs.get("for", "")), scheme if scheme in _SCHEMES else ""))
    return hops


def _values(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """The elements of a list that may be spread over several headers."""
    joined = ",".join(value.decode("latin-1") for key, value in headers if key == name)
    return [text.strip() for text in joined.split(",")] if joined.strip() else []


def _host_of(text: str) -> str:
    """The address without its port; empty for what is not one, such as `unknown`."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    address = addresses.parse(text)
    return "" if address is None else str(address)
