"""HTTP: signing in to the web page, and out of it.

Owns: /v1/sign-in/links and /v1/sign-in/session.
Leaves: sessions and their cookie to workspaces/, the sign-in with a provider to sign_in/.
Always: what sets or takes the cookie answers this server's own page alone, so that no other page
can sign anybody in or out; a session's token goes into the cookie, never into a body.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request, Response
from typing_extensions import TypedDict

from torchyard.base import fields
from torchyard.base.clock import to_text
from torchyard.base.dependencies import ClockOf, DatabaseOf, from_state
from torchyard.base.errors import InvalidInput
from torchyard.workspaces import audit, session_cookies, sessions
from torchyard.workspaces.access import Access
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.sessions import Session
from torchyard.workspaces.types import Identity, TokenKind

_PAGE = "/ui/sign-in"

AccessOf = Annotated[Access, Depends(from_state("access"))]
router = APIRouter(prefix="/v1/sign-in", tags=["page"], route_class=GuardedRoute)


class SignInLink(TypedDict):
    path: str
    code: str
    expires_at: str


class PageSession(TypedDict):
    user: str
    name: str
    expires_at: str


@router.post("/links", status_code=201)
@needs(Permission.SELF)
def new_link(db: DatabaseOf, clock: ClockOf, identity: Person) -> SignInLink:
    """A link that signs its bearer in to the web page, once, within a minute."""
    code, expires_at = sessions.new_code(db, clock, identity)
    return {"path": f"{_PAGE}?code={code}", "code": code, "expires_at": to_text(expires_at)}


@router.post("/session", status_code=201)
@needs(Permission.OPEN)
def begin(
    db: DatabaseOf,
    clock: ClockOf,
    access: AccessOf,
    request: Request,
    response: Response,
    document: Annotated[Any, Body()],
) -> PageSession:
    """Begin a session with the `code` of a link, or with a person's `token`."""
    session_cookies.require_own_page(request.scope)
    body = fields.mapping(document, "the document")
    fields.refuse_unknown(body, ("code", "token"))
    code, token = fields.text(body, "code"), fields.text(body, "token").strip()
    if bool(code) == bool(token):
        raise InvalidInput("the document has to have a `code` or a `token`", "give one of the two")
    if code:
        with access.watched(request):
            session = sessions.redeem(db, clock, code)
    else:
        session = sessions.begin(db, clock, access.holder(request, token))
    _note(request, session)
    lifetime_s = int((session.expires_at - clock.now()).total_seconds())
    cookie = session_cookies.header(request.scope, session.text, max(lifetime_s, 1))
    response.headers.append("set-cookie", cookie)
    response.headers["cache-control"] = "no-store"
    return {"user": session.user, "name": session.name, "expires_at": to_text(session.expires_at)}


@router.delete("/session")
@needs(Permission.OPEN)
def end(db: DatabaseOf, request: Request, response: Response) -> dict[str, Any]:
    """Sign out: the session's token is revoked, and the cookie taken away."""
    session_cookies.require_own_page(request.scope)
    text = session_cookies.session_token(request.scope)
    if text:
        sessions.end(db, text)
    response.headers.append("set-cookie", session_cookies.header(request.scope, "", 0))
    response.headers["cache-control"] = "no-store"
    return {}


def _note(request: Request, session: Session) -> None:
    identity = Identity(session.user, TokenKind.PERSON, token=session.name)
    # It is recorded like what needs a token.
    audit.note_identity(request.scope, identity, Permission.SELF, "")
    audit.note_about(request.scope, signed_in_with="the web page")
