"""People of the server, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote

from torchyard.base.http import Transport
from torchyard.client import resources as read
from torchyard.client.resources import Json, Listing, Resource


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class User(Resource):
    """A person; `roles` are by workspace, `*` for every workspace."""

    name: str
    roles: Mapping[str, str]
    created_at: datetime

    _shown = ("name", "roles")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Identity(Resource):
    """Who you are to the server.

    Args:
        role: in `workspace`; None for none.
        job: the job whose token this is; None for a person's.
        token: its name; None where it has none.
        expires_at: of the token; None for never.
    """

    user: str
    workspace: str
    role: str | None
    job: str | None
    token: str | None
    expires_at: datetime | None

    _shown = ("user", "workspace", "role")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Token(Resource):
    """A person's token, without its text."""

    name: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None

    _shown = ("name", "expires_at")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NewToken(Resource):
    """A token with its text, `token`, which the server shows this once.

    Args:
        url: where people on other machines log in; empty when the server serves this one only.
    """

    user: str
    name: str
    token: str = field(repr=False)
    expires_at: datetime | None
    url: str

    _shown = ("user", "name", "expires_at")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RemovedUser(Resource):
    """A person who was removed; `canceled` are the names of their jobs that were canceled."""

    name: str
    canceled: tuple[str, ...]

    _shown = ("name", "canceled")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AuditLine(Resource):
    """What somebody did, or was refused.

    Args:
        user: empty for nobody.
        job: the job whose token was used; empty for a person's.
        address: where the request came from.
    """

    at: datetime
    user: str
    job: str
    method: str
    path: str
    outcome: str
    address: str

    _shown = ("at", "user", "method", "path", "outcome")


class Users:
    """People, their roles and tokens, and what was done.

    Example::

        client.users.create("anna", role="data-scientist", workspace="vision")
        token = client.users.create_token("anna", "laptop").token
    """

    def __init__(self, transport: Transport, workspace_path: str, workspace: str) -> None:
        self._transport = transport
        self._workspace_path = workspace_path
        self._workspace = workspace

    def me(self) -> Identity:
        """Who you are, and until when your token is good."""
        raw: Json = self._transport.get("/v1/whoami", {"workspace": self._workspace})
        return Identity(
            raw=raw,
            user=raw["user"],
            workspace=read.text(raw, "workspace"),
            role=raw["role"],
            job=raw["job"],
            token=raw["token"],
            expires_at=read.optional_moment(raw, "expires_at"),
        )

    def list(self) -> Listing[User]:
        """Everybody, for owners of the server; for others those who share a workspace with them."""
        response = self._transport.get("/v1/users")
        return Listing(_user(row) for row in response["value"])

    def get(self, name: str) -> User:
        """One person.

        Raises:
            NotFound: there is nobody of this name.
        """
        return _user(self._transport.get(_user_path(name)))

    def create(self, name: str, role: str | None = None, workspace: str = "") -> User:
        """Add a person; they need a token to log in.

        Args:
            role: `reader`, `data-scientist`, `contributor` or `owner`; None for none yet.
            workspace: where; empty for every workspace.

        Raises:
            Conflict: there is one of this name.
        """
        body = {"name": name, "role": role, "workspace": workspace}
        return _user(self._transport.post("/v1/users", body))

    def set_role(self, name: str, role: str | None, workspace: str = "") -> User:
        """Give a person a role; None takes it away.

        Args:
            workspace: where; empty for every workspace.

        Raises:
            NotFound: there is nobody of this name.
            Conflict: nobody would be left who owns the server.
        """
        path = f"{_user_path(name)}/role"
        if workspace:
            path = f"/v1/workspaces/{quote(workspace, safe='')}/people/{quote(name, safe='')}"
        return _user(self._transport.put(path, {"role": role}))

    def remove(self, name: str) -> RemovedUser:
        """End a person's roles, tokens and jobs at once; what they made stays.

        Raises:
            NotFound: there is nobody of this name.
        """
        raw: Json = self._transport.delete(_user_path(name))
        return RemovedUser(raw=raw, name=raw["name"], canceled=read.texts(raw, "canceled"))

    def tokens(self, name: str) -> Listing[Token]:
        """A person's tokens, and when each was used last."""
        response = self._transport.get(f"{_user_path(name)}/tokens")
        return Listing(_token(row) for row in response["value"])

    def create_token(self, name: str, token: str, expires_at: str | None = None) -> NewToken:
        """Make a token; its text is `token` of the answer, and is never shown again.

        Args:
            token: what it is called.
            expires_at: as `2026-12-31T12:00:00Z`; None for never.

        Raises:
            NotFound: there is nobody of this name.
            Conflict: they have a token of this name.
        """
        body = {"name": token, "expires_at": expires_at}
        return _new_token(self._transport.post(f"{_user_path(name)}/tokens", body))

    def rotate_token(self, name: str, token: str, expires_at: str | None = None) -> NewToken:
        """Replace a token by a new one of the same name; the old text is refused at once.

        Args:
            expires_at: None for as long from now as the old one was good for when it was made.

        Raises:
            NotFound: the token does not exist.
        """
        path = f"{_user_path(name)}/tokens/{quote(token, safe='')}/rotate"
        return _new_token(self._transport.post(path, {"expires_at": expires_at}))

    def revoke_token(self, name: str, token: str) -> None:
        """End a token at once.

        Raises:
            NotFound: the token does not exist.
        """
        self._transport.delete(f"{_user_path(name)}/tokens/{quote(token, safe='')}")

    def revoke_all_tokens(self, name: str) -> tuple[str, ...]:
        """End all tokens of a person at once; returns their names.

        Raises:
            NotFound: there is nobody of this name.
        """
        raw: Json = self._transport.delete(f"{_user_path(name)}/tokens")
        return read.texts(raw, "revoked")

    def link(self, name: str, subject: str) -> None:
        """Let an account of the server's sign-in provider sign in as this person.

        Args:
            subject: the account's `sub` there, which a refused sign-in shows.

        Raises:
            NotFound: there is nobody of this name, or the server has no sign-in.
            Conflict: the person or the account is linked otherwise.
        """
        path = f"/v1/sign-in/accounts/{quote(name, safe='')}"
        self._transport.put(path, {"subject": subject})

    def unlink(self, name: str) -> int:
        """Release a person's account at the sign-in provider, and end their sign-ins.

        Returns how many were released.

        Raises:
            NotFound: there is nobody of this name.
        """
        raw: Json = self._transport.delete(f"{_user_path(name)}/sign-in")
        return int(raw["unlinked"])

    def audit(
        self, user: str = "", since: str = "", limit: int = 100, everywhere: bool = True
    ) -> Listing[AuditLine]:
        """What was done, newest first.

        Args:
            user: only what this person did.
            since: as `2026-12-31T12:00:00Z`; from the begin when empty.
            everywhere: False for this workspace only, which its owners may see.

        Raises:
            Forbidden: you are not an owner.
        """
        query: dict[str, Any] = {"user": user, "since": since, "limit": limit}
        path = "/v1/audit" if everywhere else f"{self._workspace_path}/audit"
        response = self._transport.get(path, query)
        return Listing(_audit_line(row) for row in response["value"])


def _user(raw: Json) -> User:
    return User(
        raw=raw,
        name=raw["name"],
        roles=read.mapping(raw, "roles"),
        created_at=read.moment(raw, "created_at"),
    )


def _token(raw: Json) -> Token:
    return Token(
        raw=raw,
        name=raw["name"],
        created_at=read.moment(raw, "created_at"),
        expires_at=read.optional_moment(raw, "expires_at"),
        last_used_at=read.optional_moment(raw, "last_used_at"),
    )


def _new_token(raw: Json) -> NewToken:
    return NewToken(
        raw=raw,
        user=raw["user"],
        name=raw["name"],
        token=raw["token"],
        expires_at=read.optional_moment(raw, "expires_at"),
        url=read.text(raw, "url"),
    )


def _audit_line(raw: Json) -> AuditLine:
    return AuditLine(
        raw=raw,
        at=read.moment(raw, "at"),
        user=read.text(raw, "user"),
        job=read.text(raw, "job"),
        method=read.text(raw, "method"),
        path=read.text(raw, "path"),
        outcome=read.text(raw, "outcome"),
        address=read.text(raw, "from"),
    )


def _user_path(name: str) -> str:
    return f"/v1/users/{quote(name, safe='')}"
