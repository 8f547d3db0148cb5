"""HTTP: who one is, people, their roles and tokens, and who did what.

Owns: /v1/whoami, /v1/users, /v1/audit, /v1/workspaces/…/people and …/audit.
Leaves: what roles allow to permissions.py and access.py.
Always: no job's token reaches people; a person reaches their own tokens, the server's owners all.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request
from typing_extensions import TypedDict

from torchyard.base import fields
from torchyard.base.clock import Clock, from_text, to_text
from torchyard.base.db import Database
from torchyard.base.dependencies import ClockOf, DatabaseOf, from_state
from torchyard.base.errors import Forbidden, InvalidInput
from torchyard.base.settings import DEFAULT_WORKSPACE
from torchyard.workspaces import audit, people, sessions
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.hooks import HooksOf
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity, KeptToken, Role, TokenKind, role_named
from torchyard.workspaces.types import Person as Somebody

_SIGNED_IN_LATELY = timedelta(minutes=10)
_MOST_LINES = 10_000

AuditOf = Annotated[audit.Audit, Depends(from_state("audit"))]
JobsAsServerUserOf = Annotated[bool, Depends(from_state("jobs_as_server_user"))]

router = APIRouter(prefix="/v1", tags=["people"], route_class=GuardedRoute)


class WhoAmI(TypedDict):
    user: str
    workspace: str
    role: Role | None
    job: str | None
    token: str | None
    expires_at: str | None
    jobs_as_server_user: bool


class User(TypedDict):
    """`roles` by workspace; `*` is every workspace."""

    name: str
    roles: dict[str, Role]
    created_at: str


class Users(TypedDict):
    value: list[User]


class Token(TypedDict):
    name: str
    created_at: str
    expires_at: str | None
    last_used_at: str | None


class Tokens(TypedDict):
    value: list[Token]


class NewToken(TypedDict):
    """A token with its text, and where to log in with it."""

    user: str
    name: str
    token: str
    expires_at: str | None
    url: str


@router.get("/whoami")
@needs(Permission.SELF)
def whoami(
    db: DatabaseOf,
    identity: Person,
    jobs_as_server_user: JobsAsServerUserOf,
    workspace: str = "",
) -> WhoAmI:
    scope = identity.workspace or workspace or DEFAULT_WORKSPACE
    roles = people.roles_of(db, identity.user)
    role = _highest(roles, scope)
    return {
        "user": identity.user,
        "workspace": scope,
        "role": role,
        "job": identity.subject.rpartition("/")[2] or None,
        "token": identity.token or None,
        "expires_at": _time(identity.expires_at),
        "jobs_as_server_user": jobs_as_server_user,
    }


@router.get("/users")
@needs(Permission.SELF)
def list_people(db: DatabaseOf, identity: Person) -> Users:
    """Everyone for the server's owners; for others the people they share a workspace with."""
    _person_only(identity)
    return {"value": [_person(person) for person in _visible(db, identity, people.list_all(db))]}


@router.post("/users", status_code=201)
@needs(Permission.SERVER)
def create(
    db: DatabaseOf,
    clock: ClockOf,
    request: Request,
    identity: Person,
    document: Annotated[Any, Body()],
) -> User:
    body = _fields(document, ("name", "role", "workspace"))
    role = role_named(body["role"]) if body.get("role") else None
    scope = body.get("workspace") or ""
    audit.note_about(request.scope, person=body.get("name"), role=role, in_workspace=scope)
    person = people.create(db, clock, body.get("name") or "", role, scope, identity.user)
    return _person(person)


@router.get("/users/{name}")
@needs(Permission.SELF)
def show(db: DatabaseOf, name: str, identity: Person) -> User:
    _person_only(identity)
    person = people.get(db, name)
    return _person(
        next(iter(_visible(db, identity, [person])), Somebody(name, person.created_at, {}))
    )


@router.delete("/users/{name}")
@needs(Permission.SERVER)
def remove(
    db: DatabaseOf,
    clock: ClockOf,
    hooks: HooksOf,
    name: str,
    request: Request,
) -> dict[str, Any]:
    """Remove a person; what runs for them stops."""
    people.remove(db, clock, name)
    canceled = hooks.stop_unable(name)
    audit.note_about(request.scope, person=name, canceled=len(canceled))
    return {"name": name, "canceled": canceled}


@router.put("/users/{name}/role")
@needs(Permission.SERVER)
def set_server_role(
    db: DatabaseOf,
    clock: ClockOf,
    hooks: HooksOf,
    name: str,
    request: Request,
    identity: Person,
    document: Annotated[Any, Body()],
) -> User:
    role = _role_in(document)
    audit.note_about(request.scope, person=name, role=role)
    person = people.set_role(db, clock, name, "", role, identity.user)
    hooks.stop_unable(name)
    return _person(person)


@router.put("/workspaces/{workspace}/people/{name}")
@needs(Permission.PEOPLE)
def set_role(
    db: DatabaseOf,
    clock: ClockOf,
    hooks: HooksOf,
    workspace: str,
    name: str,
    request: Request,
    identity: Person,
    document: Annotated[Any, Body()],
) -> User:
    role = _role_in(document)
    audit.note_about(request.scope, person=name, role=role)
    person = people.set_role(db, clock, name, workspace, role, identity.user)
    hooks.stop_unable(name)
    return _person(person)


@router.get("/users/{name}/tokens")
@needs(Permission.SELF)
def list_tokens(db: DatabaseOf, name: str, identity: Person) -> Tokens:
    _own_or_owner(identity, name)
    return {"value": [_token(token) for token in people.tokens(db, name)]}


@router.post("/users/{name}/tokens", status_code=201)
@needs(Permission.SELF)
def create_token(
    db: DatabaseOf,
    clock: ClockOf,
    name: str,
    request: Request,
    identity: Person,
    document: Annotated[Any, Body()],
) -> NewToken:
    _own_or_owner(identity, name)
    _refuse_sign_in(identity)
    _refuse_old_session(db, clock, identity)
    body = _fields(document, ("name", "expires_at"))
    expires_at = _moment(body.get("expires_at"))
    audit.note_about(request.scope, person=name, token=body.get("name"))
    token_name = body.get("name") or ""
    text = people.new_token(db, clock, name, token_name, expires_at)
    return _new_token(request, name, token_name, text, expires_at)


@router.post("/users/{name}/tokens/{token}/rotate")
@needs(Permission.SELF)
def rotate(
    db: DatabaseOf,
    clock: ClockOf,
    name: str,
    token: str,
    request: Request,
    identity: Person,
    document: Annotated[Any, Body()],
) -> NewToken:
    """Replace the token's text; the old text is refused from now on."""
    _own_or_owner(identity, name)
    _refuse_old_session(db, clock, identity)
    expires_at = _moment(_fields(document, ("expires_at",)).get("expires_at"))
    audit.note_about(request.scope, person=name, token=token)
    text, expires_at = people.rotate(db, clock, name, token, expires_at)
    return _new_token(request, name, token, text, expires_at)


@router.delete("/users/{name}/tokens")
@needs(Permission.SELF)
def revoke_all(db: DatabaseOf, name: str, request: Request, identity: Person) -> dict[str, Any]:
    _own_or_owner(identity, name)
    revoked = people.revoke_all(db, name)
    audit.note_about(request.scope, person=name, tokens=len(revoked))
    return {"user": name, "revoked": revoked}


@router.delete("/users/{name}/tokens/{token}")
@needs(Permission.SELF)
def revoke(
    db: DatabaseOf, name: str, token: str, request: Request, identity: Person
) -> dict[str, Any]:
    _own_or_owner(identity, name)
    audit.note_about(request.scope, person=name, token=token)
    people.revoke(db, name, token)
    return {}


@router.delete("/users/{name}/sign-in")
@needs(Permission.SERVER)
def unlink(db: DatabaseOf, name: str, request: Request) -> dict[str, Any]:
    """Release the account at the sign-in provider that is bound to a person."""
    audit.note_about(request.scope, person=name)
    return {"user": name, "unlinked": people.unlink(db, name)}


@router.get("/audit")
@needs(Permission.SERVER)
def all_lines(lines: AuditOf, user: str = "", since: str = "", limit: int = 100) -> dict[str, Any]:
    return _lines(lines, user, since, limit, "")


@router.get("/workspaces/{workspace}/audit")
@needs(Permission.PEOPLE)
def lines_of_workspace(
    lines: AuditOf, workspace: str, user: str = "", since: str = "", limit: int = 100
) -> dict[str, Any]:
    return _lines(lines, user, since, limit, workspace)


def _visible(db: Database, identity: Identity, persons: list[Somebody]) -> list[Somebody]:
    if identity.role is Role.OWNER:
        return persons
    own_roles = people.roles_of(db, identity.user)
    everywhere = "" in own_roles
    visible = []
    for person in persons:
        shared = {
            scope: role
            for scope, role in person.roles.items()
            if everywhere or not scope or scope in own_roles or person.name == identity.user
        }
        if shared or person.name == identity.user:
            visible.append(Somebody(person.name, person.created_at, shared))
    return visible


def _lines(lines: audit.Audit, user: str, since: str, limit: int, workspace: str) -> dict[str, Any]:
    if not 1 <= limit <= _MOST_LINES:
        raise InvalidInput(f"`limit` must be from 1 to {_MOST_LINES}, not {limit}")
    selected = lines.read(since=_moment(since), user=user, workspace=workspace, limit=limit)
    return {"value": selected}


def _person_only(identity: Identity) -> None:
    if identity.kind is not TokenKind.PERSON:
        raise Forbidden("a job's token can't access people", "use a personal token")


def _own_or_owner(identity: Identity, name: str) -> None:
    _person_only(identity)
    if identity.user != name and identity.role is not Role.OWNER:
        raise Forbidden(
            f"`{identity.user}` can't access the tokens of `{name}`; only an owner of the server "
            "can",
            f"ask `{name}`, or an owner: `yard user list` shows who they are",
        )


def _refuse_sign_in(identity: Identity) -> None:
    """
    Raises:
        Forbidden: a sign-in would make what outlasts it, and the person's account at the provider.
    """
    if identity.role is not Role.OWNER and identity.token.startswith(people.SIGN_IN_TOKENS):
        raise Forbidden(
            "a sign-in can't create tokens, which would outlast it",
            f"ask an owner: `yard user token create {identity.user}`",
        )


def _refuse_old_session(db: Database, clock: Clock, identity: Identity) -> None:
    """
    Raises:
        Forbidden: a page's session would make what outlasts it, long after its person signed in.
    """
    if not sessions.is_page(identity):
        return
    begun = {token.name: token.created_at for token in people.tokens(db, identity.user)}
    if clock.now() - begun[identity.token] > _SIGNED_IN_LATELY:
        raise Forbidden(
            "this session can't create tokens any more, since they would outlast it",
            "sign out and in again, and create the token within ten minutes; or type "
            f"`yard user token create {identity.user}`",
            code="sign_in_again",
        )


def _highest(roles: Mapping[str, Role], workspace: str) -> Role | None:
    held_roles = [roles[scope] for scope in ("", workspace) if scope in roles]
    return max(held_roles, key=lambda role: role.rank, default=None)


def _role_in(document: Any) -> Role | None:
    """The role that the document names; None removes the role."""
    body = _fields(document, ("role",))
    if "role" not in body:
        raise InvalidInput("the document has no `role`", "use null to remove the role", at=["role"])
    return role_named(body["role"]) if body["role"] is not None else None


def _fields(document: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    body = fields.mapping(document, "the document")
    fields.refuse_unknown(body, keys)
    for key in body:
        fields.text(body, key)
    return body


def _moment(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        return from_text(text)
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"`{text[:50]}` is not a time", "write it as 2026-12-31T12:00:00Z"
        ) from None


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else to_text(moment)


def _person(person: Somebody) -> User:
    return {
        "name": person.name,
        "roles": {scope or "*": role for scope, role in person.roles.items()},
        "created_at": to_text(person.created_at),
    }


def _new_token(
    request: Request, person: str, name: str, text: str, expires_at: datetime | None
) -> NewToken:
    return {
        "user": person,
        "name": name,
        "token": text,
        "expires_at": _time(expires_at),
        "url": request.app.state.public_url,
    }


def _token(token: KeptToken) -> Token:
    return {
        "name": token.name,
        "created_at": to_text(token.created_at),
        "expires_at": _time(token.expires_at),
        "last_used_at": _time(token.last_used_at),
    }
