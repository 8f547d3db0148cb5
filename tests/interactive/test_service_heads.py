"""Heads that pass through the proxy of services: what is taken out, what is refused."""

from __future__ import annotations

import pytest

from torchyard.interactive import http_heads
from torchyard.interactive.http_heads import BadHead, Head, RequestLine

ORIGIN = "http://a.localhost:9"


def request(*lines: str, first: str = "GET /x HTTP/1.1") -> Head:
    return http_heads.read("\r\n".join([first, "Host: a.localhost:9", *lines]).encode("latin-1"))


def test_the_cookies_of_torchyard_never_reach_a_service() -> None:
    head = request(
        "Cookie: torchyard_service=s3cret; own=1; __Host-torchyard_session=other",
        "Cookie: torchyard_session=page; two=2",
    )
    passed = http_heads.request_for_service(head, "http")
    assert passed.all("cookie") == ["own=1; two=2"]
    assert "s3cret" not in passed.to_bytes().decode() and b"page" not in passed.to_bytes()


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("a=1; Path=/; Domain=localhost; HttpOnly", "a=1; Path=/; HttpOnly"),
        ("a=1; domain=.services.example.org", "a=1"),
        ("torchyard_service=evil; Path=/", ""),
        ("TorchYard_session=evil", ""),
        ("__Host-torchyard_session=evil; Secure; Path=/", ""),
        ("  torchyard_session =evil", ""),
    ],
)
def test_a_service_sets_cookies_for_its_own_host_only(sent: str, stored: str) -> None:
    head = http_heads.read(f"HTTP/1.1 200 OK\r\nSet-Cookie: {sent}".encode())
    assert http_heads.response_for_person(head).all("set-cookie") == ([stored] if stored else [])


def test_headers_that_reach_beyond_a_service_are_dropped() -> None:
    head = http_heads.read(
        b"HTTP/1.1 200 OK\r\nStrict-Transport-Security: max-age=9\r\nAlt-Svc: x\r\n"
        b'Clear-Site-Data: "*"\r\nContent-Type: text/html'
    )
    passed = http_heads.response_for_person(head)
    assert not passed.get("strict-transport-security") and not passed.get("alt-svc")
    assert not passed.get("clear-site-data") and passed.get("content-type") == "text/html"
    assert "frame-ancestors 'self'" in passed.get("content-security-policy")


@pytest.mark.parametrize(
    ("lines", "refused"),
    [
        ((), False),
        ((f"Origin: {ORIGIN}",), False),
        (("Origin: http://b.localhost:9",), True),
        (("Origin: null",), True),
        ((f"Origin: {ORIGIN}", "Origin: http://b.localhost:9"), True),
        (("Sec-Fetch-Site: same-origin",), False),
        (("Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate"), False),
        (("Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors"), True),
        (("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: websocket"), True),
        (
            ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"),
            False,
        ),
        (
            ("Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"),
            True,
        ),
    ],
)
def test_pages_of_other_origins_only_lead_here(lines: tuple[str, ...], refused: bool) -> None:
    assert bool(http_heads.refusal(request(*lines), ORIGIN)) is refused


def test_a_form_of_another_origin_is_refused() -> None:
    head = request(
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Mode: navigate",
        "Sec-Fetch-Dest: document",
        first="POST /x HTTP/1.1",
    )
    assert http_heads.refusal(head, ORIGIN)


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: gzip, chunked",),
        ("Content-Length: -1",),
        ("Content-Length: 0x10",),
    ],
)
def test_an_ambiguous_length_is_refused(lines: tuple[str, ...]) -> None:
    with pytest.raises(BadHead):
        http_heads.body_bytes(request(*lines))


@pytest.mark.parametrize(
    "first",
    ["GET http://other/ HTTP/1.1", "GET / HTTP/2", "GET  / HTTP/1.1", "G(T / HTTP/1.1", "GET /"],
)
def test_a_request_line_that_is_none_is_refused(first: str) -> None:
    with pytest.raises(BadHead):
        RequestLine.of(request(first=first))


@pytest.mark.parametrize("line", ["no colon", "a b: c", " folded: x", "a:\x00"])
def test_a_malformed_header_is_refused(line: str) -> None:
    with pytest.raises(BadHead):
        request(line)


def test_an_upgrade_is_passed_on_and_other_connections_end() -> None:
    upgrade = request("Connection: keep-alive, Upgrade", "Upgrade: websocket")
    assert http_heads.request_for_service(upgrade, "http").get("connection") == "Upgrade"
    assert (
        http_heads.request_for_service(request("Connection: x"), "http").get("connection")
        == "close"
    )
