"""Whom the server believes about a client's address."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.started_server import started_server
from torchyard import server
from torchyard.base import addresses
from torchyard.base.errors import InvalidInput
from torchyard.workspaces.failures import MOST_FAILURES


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


def _audited_address(home: Path, port: int, claimed: str = "203.0.113.9") -> str:
    token = (home / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": claimed}
    document = json.dumps({"description": "x"})
    _ask(port, "PUT", "/v1/workspaces/default/computes/forged", headers, document)
    lines = "".join(file.read_text() for file in (home / "audit").iterdir()).splitlines()
    audited = [line for line in map(json.loads, lines) if line["path"].endswith("forged")]
    address: str = audited[-1]["from"]
    return address


@pytest.mark.slow
def test_a_local_client_can_not_forge_the_audit(plain: tuple[Path, int]) -> None:
    assert _audited_address(*plain) == "127.0.0.1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claimed", "address"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:dead::1", "2001:dead::1"),
        ("198.51.100.7, 203.0.113.9", "203.0.113.9"),
        ("198.51.100.7, 203.0.113.9, 127.0.0.1", "203.0.113.9"),
    ],
)
def test_the_last_address_that_no_proxy_has_counts(
    behind: tuple[Path, int], claimed: str, address: str
) -> None:
    assert _audited_address(*behind, claimed) == address


def test_a_proxy_is_known_in_a_socket_for_ipv6_too() -> None:
    networks = addresses.parse_networks(["10.0.0.5", "10.1.0.0/16", "fd00::/8"], "--trusted-proxy")
    trusted = ProxyHeadersMiddleware(_app, server.trusted_hosts(networks)).trusted_hosts
    for host in ("10.0.0.5", "::ffff:10.0.0.5", "10.1.2.3", "::ffff:10.1.2.3", "fd00::1"):
        assert host in trusted
    for host in ("10.0.0.6", "::ffff:10.0.0.6", "::ffff:10.2.0.1", "127.0.0.1", "::1"):
        assert host not in trusted


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """Never called."""


@pytest.mark.slow
def test_a_web_page_can_not_pass_the_check_of_names(plain: tuple[Path, int]) -> None:
    headers = {"Host": "evil.example", "X-Forwarded-Proto": "https"}
    assert _ask(plain[1], "GET", "/health", headers) == 403


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
