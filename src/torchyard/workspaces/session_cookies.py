"""The cookie of the web page, and which requests it counts for.

Owns: the cookie's name and attributes, telling the page's own requests from those that other pages
have the browser send.
Leaves: what the session may do to access.py: it is a token like any other.
Always: a cookie counts only for the native API, and never for a request that another origin makes
the browser send; what changes anything needs a header that only scripts of this origin can set.

Source: https://cheatsheetseries.owasp.org/cheatsheets/Cross-Site_Request_Forgery_Prevention_Cheat_Sheet.html
(verifying origin, custom request headers); https://www.w3.org/TR/fetch-metadata/
"""

from __future__ import annotations

from starlette.types import Scope

from torchyard.base import request_headers
from torchyard.base.errors import Forbidden

NAME = "torchyard_session"
PAGE_HEADER = b"x-torchyard-page"
_SAFE = ("GET", "HEAD")
_FOR = ("/v1/", "/openapi.json")
# Of requests that the page makes itself, and that the person's own click or typed address makes.
_OWN_SITES = ("", "same-origin", "none")


def session_token(scope: Scope) -> str:
    """The token in the cookie of a request that the page itself sent; else empty."""
    token = _sent(scope)
    return token if token and is_own_page(scope) else ""


def refuse_other_pages(scope: Scope) -> None:
    """
    Raises:
        Forbidden: the request has the page's cookie, and another page had it sent.
    """
    if _sent(scope):
        require_own_page(scope)


def require_own_page(scope: Scope) -> None:
    """
    Raises:
        Forbidden: the request does not show that this server's own page sent it.
    """
    if not is_own_page(scope):
        raise Forbidden(
            "the request does not come from this server's own page",
            f"open the page at `{_origin(scope)}`, the address that the server is asked by; a "
            "proxy before it must pass the header `Host` on; programs send "
            "`Authorization: Bearer <token>`",
            code="other_page",
        )


def is_own_page(scope: Scope) -> bool:
    if request_headers.header(scope, b"sec-fetch-site") not in _OWN_SITES:
        return False
    if scope["method"] in _SAFE:
        return True
    if request_headers.header(scope, PAGE_HEADER) != "1":
        return False
    return request_headers.header(scope, b"origin").lower() == _origin(scope)


def header(scope: Scope, token: str, lifetime_s: int) -> str:
    """The Set-Cookie header that hands a session to the browser; an empty token takes it away."""
    secure = "; Secure" if scope["scheme"] == "https" else ""
    return (
        f"{name_of(scope)}={token}; Path=/; HttpOnly; SameSite=Strict; "
        f"Max-Age={lifetime_s if token else 0}{secure}"
    )


def name_of(scope: Scope) -> str:
    """The cookie's name at the address that the request came to.

    Browsers don't tell ports apart, and one machine may have several servers. With the prefix they
    take the cookie over TLS only, and from this very host.
    """
    port = request_headers.header(scope, b"host").rpartition("]")[2].rpartition(":")[2]
    suffix = f"_{port}" if port.isdecimal() and port.isascii() else ""
    prefix = "__Host-" if scope["scheme"] == "https" else ""
    return f"{prefix}{NAME}{suffix}"


def _sent(scope: Scope) -> str:
    """The cookie's value, however the request came about."""
    if not scope["path"].startswith(_FOR):
        return ""
    cookies = request_headers.header(scope, b"cookie")
    if NAME not in cookies:
        return ""
    expected = name_of(scope)
    for cookie in cookies.split(";"):
        name, _, value = cookie.strip().partition("=")
        if name == expected:
            return value.strip()
    return ""


def _origin(scope: Scope) -> str:
    return f"{scope['scheme']}://{request_headers.header(scope, b'host').lower()}"
