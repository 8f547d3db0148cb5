"""The way to the server from this machine: TLS with the certificate that is trusted, a proxy.

Owns: which certificate is trusted, which proxy the environment names.
Leaves: which address is tried to server_address.py, requests to connection.py.
Always: where a certificate is given, no other is trusted, and the machine's own list is not read:
the server has several addresses, so the certificate stands for its name. Loopback is reached
without a proxy.
"""

from __future__ import annotations

import base64
import http.client
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Optional
from urllib.parse import SplitResult, unquote, urlsplit

if TYPE_CHECKING:
    import ssl

_PORTS = {"http": 80, "https": 443}
# Python 3.9 has no name for it: a certificate that is trusted itself needs no authority above.
_PARTIAL_CHAIN = 0x80000


def trusting(certificate: str) -> ssl.SSLContext:
    """
    Args:
        certificate: PEM, of the server or of its own authority; empty for what the machine trusts.

    Raises:
        OSError: it is not a certificate.
    """
    import ssl  # Takes 10 ms, and jobs on the server's own machine don't need it.

    if not certificate:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= _PARTIAL_CHAIN
    context.load_verify_locations(cadata=certificate)
    return context


def proxy_to(parts: SplitResult, environ: Mapping[str, str]) -> Optional[SplitResult]:
    """The proxy that `environ` names for this address, if any.

    `http_proxy` counts in small letters only, as in other programs: a server may get the other
    from a client's header.
    """
    scheme = parts.scheme
    url = environ.get(f"{scheme}_proxy") or (
        environ.get("HTTPS_PROXY") if scheme == "https" else None
    )
    if not url or _is_excluded(parts, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return None
    proxy = urlsplit(url if "://" in url else f"http://{url}")
    return proxy if proxy.hostname else None


def opened(
    parts: SplitResult,
    timeout_s: float,
    context: Optional[ssl.SSLContext] = None,
    environ: Optional[Mapping[str, str]] = None,
) -> http.client.HTTPConnection:
    """A connection to the server's address, not connected yet.

    Args:
        context: for https; what the machine trusts when it is None.
        environ: names the proxy; None for none.
    """
    host = parts.hostname or "127.0.0.1"
    port = parts.port or _PORTS.get(parts.scheme, 80)
    proxy = proxy_to(parts, environ) if environ else None
    if parts.scheme != "https":
        if proxy is not None:
            return _ThroughProxy(parts, proxy, timeout_s)
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    if proxy is None:
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    connection = http.client.HTTPSConnection(
        proxy.hostname or "", proxy.port or _PORTS["http"], timeout=timeout_s, context=context
    )
    connection.set_tunnel(host, port, _authorization(proxy))
    return connection


def tunnel(
    parts: SplitResult, timeout_s: float, environ: Mapping[str, str]
) -> Optional[socket.socket]:
    """A connection to this address of TLS by the proxy that `environ` names, before TLS begins;
    None where it names none.

    Raises:
        OSError, http.client.HTTPException: the proxy does not answer, or refuses.
    """
    proxy = proxy_to(parts, environ)
    if proxy is None:
        return None
    connection = http.client.HTTPConnection(
        proxy.hostname or "", proxy.port or _PORTS["http"], timeout=timeout_s
    )
    connection.set_tunnel(
        parts.hostname or "", parts.port or _PORTS["https"], _authorization(proxy)
    )
    connection.connect()
    opened: socket.socket = connection.sock
    return opened


class _ThroughProxy(http.client.HTTPConnection):
    """Plain HTTP by a proxy, which wants the whole address."""

    def __init__(self, parts: SplitResult, proxy: SplitResult, timeout_s: float) -> None:
        super().__init__(proxy.hostname or "", proxy.port or _PORTS["http"], timeout=timeout_s)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._headers = _authorization(proxy)

    def putrequest(self, method: str, url: str, *args: Any, **options: Any) -> None:
        super().putrequest(method, self._origin + url, *args, **options)
        for name, value in self._headers.items():
            self.putheader(name, value)


def _authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def _is_excluded(parts: SplitResult, names: str) -> bool:
    host = (parts.hostname or "").lower()
    if host == "localhost" or host == "::1" or host.startswith("127."):
        return True
    excluded = [name.strip().lower() for name in names.split(",") if name.strip()]
    if "*" in excluded:
        return True
    for name in excluded:
        suffix = name.lstrip("*").lstrip(".")
        if host == suffix or host.endswith(f".{suffix}") or f"{host}:{parts.port}" == name:
            return True
    return _is_in_network(host, [name for name in excluded if "/" in name])


def _is_in_network(host: str, networks: list[str]) -> bool:
    if not networks:
        return False
    import ipaddress  # Rarely needed.

    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for network in networks:
        try:
            if address in ipaddress.ip_network(network, strict=False):
                return True
        except ValueError:
            continue
    return False
