"""Whom the server believes about a client's address."""

from __future__ import annotations

import asyncio
import http.client
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.started_server import started_server
from torchyard.app.forwarded import ForwardedRequests
from torchyard.base import addresses
from torchyard.base.errors import InvalidInput
from torchyard.workspaces.failures import MOST_FAILURES

_PROXIES = addresses.parse_networks(["10.0.0.0/24", "2001:db8::/32"], "--trusted-proxy")
_FOR, _PROTO, _STANDARD = b"x-forwarded-for", b"x-forwarded-proto", b"forwarded"


def _seen(peer: str, *headers: tuple[bytes, bytes]) -> tuple[str, str, int]:
    """Address and scheme as the app sees them, and the status."""
    scope: dict[str, Any] = {
        "type": "http", "path": "/", "scheme": "http", "client": (peer, 5), "headers": headers,
    }  # fmt: skip
    seen = []
    status = [200]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["client"][0], scope["scheme"]))

    async def send(message: Any) -> None:
        status[0] = message.get("status", status[0])

    asyncio.run(ForwardedRequests(app, _PROXIES)(scope, None, send))  # type: ignore[arg-type]
    return (*(seen or [("", "")])[0], status[0])


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "10.0.1.1", "192.0.2.9"])
def test_nobody_is_believed_who_was_not_named(peer: str) -> None:
    headers = [(_FOR, b"203.0.113.1"), (_PROTO, b"https")]
    assert _seen(peer, *headers) == (peer, "http", 200)
    assert _seen(peer, (_STANDARD, b"for=203.0.113.1;proto=https")) == (peer, "http", 200)


@pytest.mark.parametrize(
    ("header", "host"),
    [(b"203.0.113.1", "203.0.113.1"), (b"203.0.113.1:4711", "203.0.113.1"),
     (b"2001:dead::1", "2001:dead::1"), (b"[2001:dead::1]:5", "2001:dead::1"),
     (b"198.51.100.7, 203.0.113.1", "203.0.113.1"), (b"203.0.113.1, 10.0.0.2", "203.0.113.1"),
     (b"198.51.100.7, 203.0.113.1, 10.0.0.3,10.0.0.2", "203.0.113.1"),
     (b"198.51.100.7, unknown", "10.0.0.1"), (b"198.51.100.7, <script>", "10.0.0.1"),
     (b"", "10.0.0.1"), (b"10.0.0.9", "10.0.0.9")],
)  # fmt: skip
def test_the_last_address_that_no_proxy_has_counts(header: bytes, host: str) -> None:
    assert _seen("10.0.0.1", (_FOR, header))[0] == host


@pytest.mark.parametrize(
    ("header", "host", "scheme"),
    [(b"for=203.0.113.1;proto=https", "203.0.113.1", "https"),
     (b'For="[2001:dead::1]:47"; Proto=HTTPS', "2001:dead::1", "https"),
     (b"for=198.51.100.7;proto=https, for=203.0.113.1;proto=http", "203.0.113.1", "http"),
     (b"for=203.0.113.1;proto=https, for=10.0.0.2;proto=http", "203.0.113.1", "https"),
     (b"for=_hidden;proto=https", "10.0.0.1", "https"), (b"nonsense", "10.0.0.1", "http"),
     (b"for=203.0.113.1;proto=javascript", "203.0.113.1", "http")],
)  # fmt: skip
def test_the_standard_header_is_understood(header: bytes, host: str, scheme: str) -> None:
    assert _seen("10.0.0.1", (_STANDARD, header)) == (host, scheme, 200)


def test_headers_may_be_repeated() -> None:
    two = [(_FOR, b"198.51.100.7"), (_FOR, b"203.0.113.1")]
    assert _seen("10.0.0.1", *two)[0] == "203.0.113.1"
    schemes = [(_PROTO, b"https"), (_PROTO, b"http")]
    assert _seen("10.0.0.1", *schemes)[1] == "http"


def test_a_header_that_the_proxy_let_through_is_refused() -> None:
    """Which of the two is the client's own can't be told."""
    both = [(_FOR, b"203.0.113.1"), (_STANDARD, b"for=198.51.100.7")]
    assert _seen("10.0.0.1", *both) == ("", "", 400)
    agreeing = [(_FOR, b"203.0.113.1"), (_STANDARD, b"for=203.0.113.1;proto=https")]
    assert _seen("10.0.0.1", *agreeing)[0] == "203.0.113.1"


@pytest.mark.parametrize("text", ["proxy.example", "10.0.0.5/24", "*", "", "10.0.0.1 10.0.0.2"])
def test_a_proxy_is_named_by_address(text: str) -> None:
    with pytest.raises(InvalidInput, match="which is not an address or network") as refused:
        addresses.parse_networks([text], "--trusted-proxy")
    assert "--trusted-proxy" in refused.value.message and "10.0.0.0/24" in refused.value.hint


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A server as every laptop has it: home and port."""
    home = tmp_path_factory.mktemp("plain")
    with started_server(home) as (port, _):
        yield home, port


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A server behind a proxy on the same machine."""
    home = tmp_path_factory.mktemp("behind")
    with started_server(home, "--trusted-proxy", "127.0.0.1", "--jobs-as-server-user") as (port, _):
        yield home, port


def _ask(port: int, method: str, path: str, headers: dict[str, str], body: str = "") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body or None, headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def _audited_addresses(home: Path, port: int) -> list[str]:
    token = (home / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": "203.0.113.9"}
    document = json.dumps({"description": "x"})
    _ask(port, "PUT", "/v1/workspaces/default/computes/forged", headers, document)
    lines = "".join(file.read_text() for file in (home / "audit").iterdir()).splitlines()
    return [
        json.loads(line)["from"] for line in lines if json.loads(line)["path"].endswith("forged")
    ]


@pytest.mark.slow
def test_a_local_client_can_not_forge_the_audit(plain: tuple[Path, int]) -> None:
    assert _audited_addresses(*plain) == ["127.0.0.1"]


@pytest.mark.slow
def test_the_audit_names_the_client_behind_a_proxy(behind: tuple[Path, int]) -> None:
    assert _audited_addresses(*behind) == ["203.0.113.9"]


@pytest.mark.slow
def test_a_web_page_can_not_pass_the_check_of_names(plain: tuple[Path, int]) -> None:
    for headers in ({"X-Forwarded-Proto": "https"}, {"Forwarded": "for=1.1.1.1;proto=https"}):
        assert _ask(plain[1], "GET", "/health", {"Host": "evil.example", **headers}) == 403


@pytest.mark.slow
def test_a_proxys_scheme_counts(behind: tuple[Path, int]) -> None:
    headers = {"Host": "yard.example", "X-Forwarded-Proto": "https"}
    assert _ask(behind[1], "GET", "/health", headers) == 200
    assert _ask(behind[1], "GET", "/health", {**headers, "X-Forwarded-Proto": "http"}) == 403


def _wrong_tokens(port: int) -> list[int]:
    """The statuses of wrong tokens that each claim another address."""
    return [
        _ask(port, "GET", "/v1/whoami", {"Authorization": f"Bearer yard_p_{number}",
                                         "X-Forwarded-For": f"198.51.{number >> 8}.{number & 255}"})
        for number in range(MOST_FAILURES + 20)
    ]  # fmt: skip


@pytest.mark.slow
def test_the_limit_on_wrong_tokens_is_not_evaded(plain: tuple[Path, int]) -> None:
    assert _wrong_tokens(plain[1])[-20:] == [429] * 20
    token = (plain[0] / "token").read_text().strip()
    assert _ask(plain[1], "GET", "/v1/whoami", {"Authorization": f"Bearer {token}"}) == 200


@pytest.mark.slow
def test_people_behind_a_proxy_are_counted_one_by_one(behind: tuple[Path, int]) -> None:
    assert _wrong_tokens(behind[1]) == [401] * (MOST_FAILURES + 20)


@pytest.mark.slow
def test_a_wrong_proxy_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        with started_server(tmp_path / "home", "--trusted-proxy", "proxy.example"):
            pass
    assert refused.value.returncode == 2
    assert "error: `--trusted-proxy` names `proxy.example`" in refused.value.stderr


@pytest.mark.slow
def test_people_behind_a_proxy_are_other_people(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        with started_server(tmp_path / "other", "--trusted-proxy", "127.0.0.1"):
            pass
    assert "it has no runner" in refused.value.stderr
