"""The way to a server on another machine: the certificate, several addresses, a proxy."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shared.tls_listeners import free_port, proxy_to_one, serving
from torchyard.base import certificates
from torchyard.base.clock import FakeClock
from torchyard.shared.connection import Connection, Unreachable
from torchyard.shared.server_address import ServerAddress
from torchyard.shared.server_routes import proxy_to


def _connection(address: ServerAddress) -> Connection:
    return Connection.of_attempt(address, "token", "a")


@pytest.fixture
def homes(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "ours", tmp_path / "foreign"


def test_only_the_pinned_certificate_is_trusted_and_the_address_does_not_count(
    homes: tuple[Path, Path],
) -> None:
    home, foreign = homes
    with serving(home, host="127.0.0.9") as url, serving(foreign) as stranger:
        pinned = certificates.authority(home)
        # The certificate names neither 127.0.0.9 nor a host that resolves to it.
        link = _connection(ServerAddress(url, "ours", certificate=pinned))
        assert link.call("GET", "/control")["path"] == "/v1/attempts/a/control"
        link.close()
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            _connection(ServerAddress(stranger, "ours", certificate=pinned)).call("GET", "/x")
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            _connection(ServerAddress(url, "ours")).call("GET", "/x")


def test_a_certificate_may_be_pinned_without_its_authority(homes: tuple[Path, Path]) -> None:
    with serving(homes[0]) as url:
        text = certificates.ensure(homes[0], (), FakeClock().now()).file.read_text()
        leaf = text[text.index("-----BEGIN CERT") : text.index("-----BEGIN PRIV")]
        link = _connection(ServerAddress(url, "ours", certificate=leaf))
        assert link.call("GET", "/x")["path"] == "/v1/attempts/a/x"
        link.close()


def test_a_server_that_moves_to_another_of_its_addresses_is_found_there() -> None:
    first, second = free_port(), free_port()
    urls = [f"http://127.0.0.1:{first}", f"http://127.0.0.1:{second}"]
    link = _connection(ServerAddress(urls[0], "ours", urls=urls))
    with serving(None, first):
        link.call("GET", "/x")
    with serving(None, second):
        with pytest.raises(OSError, match="not reached"):
            link.call("GET", "/x")
        assert link.call("GET", "/x")
    with serving(None, first):
        with pytest.raises(OSError, match="not reached"):
            link.call("GET", "/x")
        assert link.call("GET", "/x")
    link.close()


def test_threads_that_fail_at_once_move_on_once() -> None:
    address = ServerAddress("http://a:1", urls=["http://b:1"])
    tried = address.parts
    address.refresh(tried)
    address.refresh(tried)
    assert address.parts.hostname == "b"


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_an_address_of_ipv6_is_reached() -> None:
    try:
        with serving(None, host="::1", family=socket.AF_INET6) as url:
            link = _connection(ServerAddress("http://127.0.0.1:9", "ours", urls=[url]))
            with pytest.raises(OSError, match="not reached"):
                link.call("GET", "/x")
            assert link.call("GET", "/x")
            link.close()
    except OSError as error:
        if "assign requested address" in str(error):
            pytest.skip("loopback has no IPv6 address")
        raise


@pytest.mark.parametrize("secure", [True, False])
def test_a_proxy_carries_requests_to_another_machine(
    homes: tuple[Path, Path], secure: bool
) -> None:
    requests: list[str] = []
    home = homes[0] if secure else None
    with serving(home) as url, proxy_to_one(requests, url) as proxy:
        environ = {"https_proxy": proxy, "http_proxy": proxy}
        scheme = urlsplit(url).scheme
        certificate = certificates.authority(homes[0]) if secure else ""
        # 192.0.2.1 is nobody's: only the proxy can lead to a server.
        address = ServerAddress(
            f"{scheme}://192.0.2.1:7000", "ours", certificate=certificate, environ=environ
        )
        link = _connection(address)
        assert link.call("GET", "/control")["path"].endswith("/v1/attempts/a/control")
        link.close()
    (head,) = requests
    request_line = "CONNECT 192.0.2.1:7000" if secure else "GET http://192.0.2.1:7000/v1/attempts/a"
    assert head.startswith(request_line)
    assert "Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=" in head


@pytest.mark.parametrize(
    ("url", "no_proxy", "proxied"),
    [
        ("https://server:1", "", True),
        ("https://127.0.0.1:1", "", False),
        ("https://localhost:1", "", False),
        ("https://a.lab.example:1", ".lab.example", False),
        ("https://a.lab.example:1", "lab.example", False),
        ("https://a.otherlab.example:1", "lab.example", True),
        ("https://10.1.2.3:1", "10.0.0.0/8", False),
        ("https://11.1.2.3:1", "10.0.0.0/8,nonsense/x", True),
        ("https://server:1", "*", False),
        ("http://server:1", "", False),
    ],
)
def test_no_proxy_is_honoured(url: str, no_proxy: str, proxied: bool) -> None:
    environ = {"HTTPS_PROXY": "proxy:3128", "HTTP_PROXY": "proxy:3128", "NO_PROXY": no_proxy}
    assert (proxy_to(urlsplit(url), environ) is not None) is proxied
