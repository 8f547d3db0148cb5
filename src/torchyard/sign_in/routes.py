"""HTTP: signing in with a browser.

Owns: /v1/sign-in/…: the way from `yard login` or the web page to the provider, back, and to a
token; PUT /v1/sign-in/accounts/…: an owner's word whose account it is.
Leaves: the provider to provider.py, who gets in to admission.py, the page's cookie to workspaces/.
Always: a token goes only to who holds the secret that began the sign-in, or into the cookie of the
browser that began it; what the browser carries is bound to that browser by a cookie, and reaches a
program only on the browser's own machine, or through its user's hands.

1. `yard login` makes a secret, opens a port on loopback and sends the browser to /start with the
   secret's hash and the port.
2. /start sets the cookie and sends the browser to the provider; state, nonce and PKCE verifier are
   sealed in `state`.
3. The provider sends it to /callback with a code. The server redeems the code, checks the ID token,
   and asks whether the user has started the program at that port; if so, the browser takes a
   sealed grant there. Without a port it shows the grant.
4. `yard login` posts grant and secret to /token, and gets a token of that person.

For the web page /page takes the place of 1 and 2, and the answer to 3 sets the session's cookie and
leads back to the page.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import re
import secrets
import threading
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Body, Depends, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from typing_extensions import TypedDict

from torchyard.base import fields
from torchyard.base.clock import Clock, to_text
from torchyard.base.db import Database
from torchyard.base.dependencies import ClockOf, DatabaseOf, from_state
from torchyard.base.errors import InvalidInput, NotAuthenticated, NotFound, TorchyardError
from torchyard.sign_in import admission
from torchyard.sign_in.provider import Provider
from torchyard.sign_in.sealing import Seal
from torchyard.workspaces import audit, people, session_cookies, sessions
from torchyard.workspaces.guarded_routes import GuardedRoute, needs
from torchyard.workspaces.people_routes import NewToken
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity, TokenKind

_STATE_LIMIT_S = 600
_GRANT_LIMIT_S = 120
_CHALLENGE = re.compile(r"[\w-]{43}", re.ASCII)
_STATE = re.compile(r"[\w-]{16,128}", re.ASCII)
_MOST_USED = 10_000
_LONGEST_CODE = 4096
# Of the challenge, as the page and `yard login` show it.
_SHOWN_LENGTH = 8
_PAGES = "/ui/"
_LONGEST_ADDRESS = 1000
_HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}


class SignIn:
    """A server's sign-in; `app.state.sign_in`."""

    def __init__(self, provider: Provider, seal: Seal) -> None:
        self.provider = provider
        self.seal = seal
        self._lock = threading.Lock()
        self._used: dict[str, None] = {}

    def use_once(self, grant_id: str) -> None:
        """
        Raises:
            NotAuthenticated: the grant was used before.
        """
        with self._lock:
            if grant_id in self._used:
                raise NotAuthenticated(
                    "this sign-in was used before",
                    "sign in again with `yard login`",
                    code="sign_in_expired",
                )
            self._used[grant_id] = None
            if len(self._used) > _MOST_USED:
                del self._used[next(iter(self._used))]


async def _sign_in(request: Request) -> SignIn:
    sign_in: SignIn | None = request.app.state.sign_in
    if sign_in is None:
        raise NotFound(
            "this server has no sign-in",
            "log in with a token: `yard login URL`",
            code="no_sign_in",
        )
    return sign_in


SignInOf = Annotated[SignIn, Depends(_sign_in)]
OptionalSignInOf = Annotated[SignIn | None, Depends(from_state("sign_in"))]
router = APIRouter(prefix="/v1/sign-in", tags=["people"], route_class=GuardedRoute)


class OidcProvider(TypedDict):
    issuer: str


class SignInMethods(TypedDict):
    oidc: OidcProvider | None


@router.get("")
@needs(Permission.OPEN)
async def methods(sign_in: OptionalSignInOf) -> SignInMethods:
    """How people can log in, beside a token."""
    issuer = sign_in.provider.settings.issuer if sign_in is not None else None
    return {"oidc": {"issuer": issuer} if issuer else None}


@router.get("/start")
@needs(Permission.OPEN)
def start(sign_in: SignInOf, challenge: str = "", state: str = "", port: int = 0) -> Response:
    if not _CHALLENGE.fullmatch(challenge) or not _STATE.fullmatch(state):
        raise InvalidInput("this sign-in was not begun by `yard login`", "run `yard login URL`")
    if port and not 1024 <= port <= 65535:
        raise InvalidInput("`port` must be from 1024 to 65535", at=["port"])
    return _to_provider(sign_in, {"challenge": challenge, "back": state, "port": port})


@router.get("/page")
@needs(Permission.OPEN)
def start_page(sign_in: SignInOf, next: str = "") -> Response:
    """Sign in to the web page; `next` is the address of the page to come back to."""
    if len(next) > _LONGEST_ADDRESS or not next.startswith(_PAGES) or "\\" in next:
        next = _PAGES
    return _to_provider(sign_in, {"page": next})


def _to_provider(sign_in: SignIn, begun: Mapping[str, Any]) -> Response:
    """Send the browser to the provider; `begun` comes back with it, sealed."""
    browser, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    nonce = secrets.token_urlsafe(24)
    record = {**begun, "nonce": nonce, "verifier": verifier, "browser": hash_of(browser)}
    sealed = sign_in.seal.close("state", record)
    url = sign_in.provider.authorization_url(sealed, nonce, hash_of(verifier))
    response = RedirectResponse(url, 302, headers=_HEADERS)
    has_tls = sign_in.provider.settings.has_tls
    response.set_cookie(
        _cookie(has_tls), browser, _STATE_LIMIT_S, secure=has_tls, httponly=True, samesite="lax"
    )
    return response


@router.get("/callback")
@needs(Permission.OPEN)
def callback(
    sign_in: SignInOf,
    db: DatabaseOf,
    clock: ClockOf,
    request: Request,
    state: str = "",
    code: str = "",
    error: str = "",
    iss: str = "",
) -> Response:
    cookie = _cookie(sign_in.provider.settings.has_tls)
    try:
        record = sign_in.seal.open("state", state, _STATE_LIMIT_S)
        sent = request.cookies.get(cookie, "")
        if not hmac.compare_digest(hash_of(sent), record["browser"]):
            raise NotAuthenticated(
                "this sign-in was begun in another browser",
                "open the address of `yard login` in the browser that you sign in with",
                code="sign_in_refused",
            )
    except TorchyardError as refusal:
        return _page("Not signed in", refusal, refusal.http_status)
    try:
        user = _redeem(sign_in, db, clock, record, code, error, iss)
        if "page" in record:
            response = _page_session(sign_in, db, clock, request, user, record["page"])
        else:
            grant = _grant(sign_in, user, record)
            response = _asking_page(record, grant) if record.get("port") else _page_of(grant)
    except TorchyardError as refusal:
        if record.get("port"):
            url = _back(record, {"error": refusal.message, "hint": refusal.hint})
            response = RedirectResponse(url, 302, headers=_HEADERS)
        else:
            response = _page("Not signed in", refusal, refusal.http_status)
    response.delete_cookie(cookie, secure=sign_in.provider.settings.has_tls, httponly=True)
    return response


@router.post("/token", status_code=201)
@needs(Permission.OPEN)
def token(
    sign_in: SignInOf,
    db: DatabaseOf,
    clock: ClockOf,
    request: Request,
    document: Annotated[Any, Body()],
) -> NewToken:
    """Exchange a grant for a token."""
    body = fields.mapping(document, "the document")
    fields.refuse_unknown(body, ("grant", "verifier"))
    record = sign_in.seal.open("grant", fields.text(body, "grant"), _GRANT_LIMIT_S)
    if not hmac.compare_digest(hash_of(fields.text(body, "verifier")), record["challenge"]):
        raise NotAuthenticated(
            "this sign-in was begun by another `yard login`",
            "paste what belongs to the `yard login` that runs now",
            code="sign_in_refused",
        )
    sign_in.use_once(record["id"])
    settings = sign_in.provider.settings
    name, text = admission.new_session(db, clock, settings, record["user"])
    identity = Identity(record["user"], TokenKind.PERSON, token=name)
    # It is recorded like what needs a token.
    audit.note_identity(request.scope, identity, Permission.SELF, "")
    audit.note_about(request.scope, signed_in_with=settings.issuer)
    return {
        "user": record["user"],
        "name": name,
        "token": text,
        "expires_at": to_text(clock.now() + settings.session),
        "url": settings.public_url,
    }


@router.put("/accounts/{name}")
@needs(Permission.SERVER)
def link(
    sign_in: SignInOf,
    db: DatabaseOf,
    clock: ClockOf,
    name: str,
    request: Request,
    document: Annotated[Any, Body()],
) -> dict[str, Any]:
    """Let an account at the sign-in provider sign in as a person."""
    body = fields.mapping(document, "the document")
    fields.refuse_unknown(body, ("subject",))
    subject = fields.text(body, "subject")
    audit.note_about(request.scope, person=name, subject=subject[:255])
    people.link(db, clock, sign_in.provider.settings.issuer, subject, name)
    return {"user": name, "subject": subject}


def hash_of(secret: str) -> str:
    """The S256 of PKCE: base64url of SHA-256, without padding."""
    digest = hashlib.sha256(secret.encode("utf-8", "replace")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _redeem(
    sign_in: SignIn,
    db: Database,
    clock: Clock,
    record: Mapping[str, Any],
    code: str,
    error: str,
    issuer: str,
) -> str:
    sign_in.provider.check_issuer(issuer)
    if error or not code or len(code) > _LONGEST_CODE:
        error_code = re.sub(r"[^\w.-]", "", error)[:100]
        raise NotAuthenticated(
            f"the provider did not sign you in: `{error_code or 'no code'}`",
            "sign in again with `yard login`",
            code="sign_in_refused",
        )
    claims = sign_in.provider.redeem(code, record["verifier"], record["nonce"])
    return admission.admit(db, clock, sign_in.provider.settings, claims)


def _grant(sign_in: SignIn, user: str, record: Mapping[str, Any]) -> str:
    grant = {"user": user, "challenge": record["challenge"], "id": secrets.token_hex(16)}
    return sign_in.seal.close("grant", grant)


def _page_session(
    sign_in: SignIn, db: Database, clock: Clock, request: Request, user: str, page: str
) -> Response:
    """Back to the page, signed in."""
    settings = sign_in.provider.settings
    lifetime = min(settings.session, sessions.SESSION_LIMIT)
    name, text = admission.new_session(db, clock, settings, user, lifetime)
    audit.note_identity(
        request.scope, Identity(user, TokenKind.PERSON, token=name), Permission.SELF, ""
    )
    audit.note_about(request.scope, signed_in_with=settings.issuer)
    response = RedirectResponse(page, 302, headers=_HEADERS)
    cookie = session_cookies.header(request.scope, text, int(lifetime.total_seconds()))
    response.headers.append("set-cookie", cookie)
    return response


def _cookie(has_tls: bool) -> str:
    # Browsers take this prefix only with TLS, and then only from this very host.
    return "__Host-torchyard-sign-in" if has_tls else "torchyard-sign-in"


def _back(record: Mapping[str, Any], answer: Mapping[str, str]) -> str:
    """The address of the `yard login` that listens on the browser's machine."""
    query = urlencode({**answer, "state": record["back"]})
    return f"http://127.0.0.1:{record['port']}/?{query}"


def _asking_page(record: Mapping[str, Any], grant: str) -> Response:
    """Anyone on the browser's machine may listen there, and may have opened the browser."""
    code = html.escape(record["challenge"][:_SHOWN_LENGTH])
    url = html.escape(_back(record, {"grant": grant}))
    text = (
        "<p>A program on this computer wants to sign in as you. Have <b>you yourself</b> just run "
        f"<code>yard login</code>, and does it show the code <code>{code}</code>?</p>"
        f'<p><a href="{url}">Yes, sign it in</a></p><p>If not, close this page.</p>'
    )
    return HTMLResponse(_html("Was that you?", text), 200, headers=_HEADERS)


def _page_of(grant: str) -> Response:
    text = (
        "<p>Paste this into the terminal where <b>you yourself</b> have just run "
        "<code>yard login</code>. It is good for two minutes. Anyone who asks you for it wants "
        f"your account.</p><pre>{html.escape(grant)}</pre>"
    )
    return HTMLResponse(_html("Signed in", text), 200, headers=_HEADERS)


def _page(title: str, error: TorchyardError, status: int) -> Response:
    text = f"<p>{html.escape(error.message)}</p><p>{html.escape(error.hint or '')}</p>"
    return HTMLResponse(_html(title, text), status, headers=_HEADERS)


def _html(title: str, text: str) -> str:
    style = "body{font:16px sans-serif;max-width:40em;margin:4em auto}pre{white-space:pre-wrap;"
    style += "word-break:break-all;background:#eee;padding:1em}"
    return (
        f"<!doctype html><meta charset=utf-8><title>{title} - torchyard</title>"
        f"<style>{style}</style><h1>{title}</h1>{text}"
    )
