"""Heads of HTTP requests and responses that pass through the proxy.

Owns: reading a head, what is taken out of it and put in, cookies.
Leaves: connections to proxy.py.
Always: the cookie that lets a person in never reaches a service, and a service sets no cookie of
that name nor one for another host; a request whose length is ambiguous is refused.

Source: RFC 9112 (HTTP/1.1), RFC 6265bis (cookies).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

COOKIE = "torchyard_service"
SECURE_COOKIE = f"__Host-{COOKIE}"
_RESERVED = re.compile(r"(?:__Host-|__Secure-)?torchyard", re.IGNORECASE)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_TARGET = re.compile(r"[!-~\x80-\xff]+\Z")
_HOP = frozenset(
    ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
     "te", "trailer")
)  # fmt: skip
# What a service could do with these to more than its own pages.
_TAKEN_FROM_RESPONSES = frozenset(
    ("strict-transport-security", "alt-svc", "clear-site-data", "public-key-pins", "nel",
     "report-to", "reporting-endpoints", "set-login", "origin-agent-cluster")
)  # fmt: skip
_ADDED = (
    ("Content-Security-Policy", "frame-ancestors 'self'"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)


class BadHead(ValueError):
    """It is not a head of HTTP/1.1 that can be passed on."""


@dataclass(frozen=True)
class Head:
    """`first` is the request or status line; header names are as they were written."""

    first: str
    headers: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str:
        """The first value; empty without one."""
        return next((value for key, value in self.headers if key.lower() == name), "")

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    def to_bytes(self) -> bytes:
        lines = [self.first, *(f"{name}: {value}" for name, value in self.headers)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def read(data: bytes) -> Head:
    """
    Args:
        data: up to the empty line.

    Raises:
        BadHead: it is malformed.
    """
    lines = data.decode("latin-1").split("\r\n")
    headers = []
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.match(name) or "\n" in value or "\r" in value or "\0" in value:
            raise BadHead("a malformed header")
        headers.append((name, value.strip(" \t")))
    return Head(lines[0], tuple(headers))


@dataclass(frozen=True)
class RequestLine:
    method: str
    target: str

    @classmethod
    def of(cls, head: Head) -> RequestLine:
        """
        Raises:
            BadHead: it is not a request to this host in HTTP/1.1.
        """
        words = head.first.split(" ")
        if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
            raise BadHead("a malformed request line")
        if not _TOKEN.match(words[0]) or not _TARGET.match(words[1]) or words[1][0] != "/":
            raise BadHead("a malformed request line")
        return cls(words[0], words[1])


def body_bytes(head: Head) -> int | None:
    """The length of a body; None where it comes in chunks.

    Raises:
        BadHead: the head is ambiguous about it.
    """
    lengths, encodings = head.all("content-length"), head.all("transfer-encoding")
    if encodings:
        if lengths or len(encodings) > 1 or encodings[0].lower() != "chunked":
            raise BadHead("an ambiguous length")
        return None
    if len(set(lengths)) > 1 or (lengths and not re.match(r"[0-9]{1,18}\Z", lengths[0])):
        raise BadHead("an ambiguous length")
    return int(lengths[0]) if lengths else 0


def is_upgrade(head: Head) -> bool:
    words = {word.strip().lower() for value in head.all("connection") for word in value.split(",")}
    return "upgrade" in words and head.get("upgrade").lower() == "websocket"


def cookies(head: Head, name: str) -> list[str]:
    """The values of a cookie."""
    return [value for key, value in _cookie_pairs(head) if key == name]


def request_for_service(head: Head, scheme: str) -> Head:
    """As a service gets it."""
    upgrade = is_upgrade(head)
    headers = [
        (name, value)
        for name, value in head.headers
        if name.lower() not in _HOP
        and name.lower() not in ("cookie", "upgrade")
        and not name.lower().startswith(("x-forwarded-", "x-torchyard-", "forwarded"))
    ]
    cookies = "; ".join(
        f"{key}={value}" for key, value in _cookie_pairs(head) if not _RESERVED.match(key)
    )
    if cookies:
        headers.append(("Cookie", cookies))
    headers.append(("X-Forwarded-Proto", scheme))
    headers.append(("X-Forwarded-Host", head.get("host")))
    if upgrade:
        headers += [("Connection", "Upgrade"), ("Upgrade", "websocket")]
    else:
        headers.append(("Connection", "close"))
    return Head(head.first, tuple(headers))


def response_for_person(head: Head) -> Head:
    """As the person's browser gets it."""
    is_switch = head.first.split(" ")[1:2] == ["101"]
    headers: list[tuple[str, str]] = []
    for name, value in head.headers:
        lower = name.lower()
        if lower == "set-cookie":
            cookie = _own_cookie(value)
            if cookie:
                headers.append((name, cookie))
        elif lower not in _TAKEN_FROM_RESPONSES and (lower not in _HOP or is_switch):
            headers.append((name, value))
    if is_switch:
        return Head(head.first, tuple(headers))
    return Head(head.first, (*headers, *_ADDED, ("Connection", "close")))


def refusal(head: Head, origin: str) -> str:
    """Why a request that carries a good session is refused all the same; empty if it is not.

    Pages of other origins, other services among them, may lead here and nothing else.
    """
    claimed = head.all("origin")
    if claimed and claimed != [origin]:
        return "it comes from another site"
    site = head.get("sec-fetch-site").lower()
    if site in ("", "same-origin", "none"):
        return ""
    is_visit = (
        head.get("sec-fetch-mode").lower() == "navigate"
        and head.get("sec-fetch-dest").lower() == "document"
        and RequestLine.of(head).method == "GET"
    )
    return "" if is_visit else "it comes from another site"


def _cookie_pairs(head: Head) -> list[tuple[str, str]]:
    pairs = []
    for line in head.all("cookie"):
        for part in line.split(";"):
            name, _, value = part.strip().partition("=")
            if name:
                pairs.append((name, value))
    return pairs


def _own_cookie(value: str) -> str:
    """A cookie of a service for its own host alone; empty if it may not have it."""
    first, *attributes = (part.strip() for part in value.split(";"))
    name = first.partition("=")[0].strip()
    if not name or _RESERVED.match(name):
        return ""
    others: Sequence[str] = [
        part for part in attributes if part.partition("=")[0].strip().lower() != "domain"
    ]
    return "; ".join((first, *others))
