"""Access control: from an HTTP request to an identity that has the permission.

Owns: reading the Authorization header, the kinds of token each route accepts, refusing anyone who
lacks the permission, and the message they get; whether what was let in would be now.
Leaves: the web page's cookie to session_cookies.py, roles to people.py, which route needs what to
guarded_routes.py, the audit log to audit.py.
Always: without a valid token only routes that declare `OPEN` answer; a refusal says which role is
missing, which role the person has, and whom to ask.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from fastapi import Request
from starlette.types import Scope

from torchyard.base import request_headers
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import (
    Forbidden,
    NotAuthenticated,
    TooManyRequests,
    TorchyardError,
)
from torchyard.base.home import hold
from torchyard.base.settings import DEFAULT_WORKSPACE
from torchyard.workspaces import actions, audit, ownership, people, permissions, session_cookies
from torchyard.workspaces.failures import Failures
from torchyard.workspaces.jwts import Signer, is_jwt
from torchyard.workspaces.lookups import Lookups
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity, Role, TokenKind

_NAMED_OWNERS = 3
# What a token alone does not answer.
_LOOKED_UP = frozenset({Permission.WORKER, Permission.SERVER, Permission.ACCEPT})
_GRANT = "torchyard.grant"
"""Where a request's scope says what it was let in by."""


@dataclass(frozen=True)
class _Grant:
    """`role_scope` is where the holder's role counts; empty for the server as a whole."""

    token_hash: str
    permission: Permission
    role_scope: str


class Access:
    """The server keeps one as `app.state.access`.

    Args:
        is_held: the home was restored, and changes nothing; see base/home/hold.py.
    """

    def __init__(
        self, db: Database, clock: Clock, signer: Signer | None = None, is_held: bool = False
    ) -> None:
        self._is_held = is_held
        self._db = db
        self._clock = clock
        self._signer = signer
        self._failures = Failures()
        self._lookups = Lookups()

    def enforce(self, request: Request, permission: Permission) -> Identity:
        """Authenticate and authorize a request; routes get the result as `Person`.

        The identity is a person, or a running job on its owner's behalf; for `WORKER` only the
        worker of the attempt in the path.

        Raises:
            NotAuthenticated: the token is unknown, revoked or expired.
            Forbidden: the person lacks the permission.
            Conflict: it would change something, and the home is held.
        """
        if permission is Permission.WORKER:
            identity = self._attempt_identity(request)
            request.scope[_GRANT] = _Grant(identity.token_hash, permission, "")
        else:
            path_workspace = request.path_params.get("workspace", "")
            if permission is Permission.SERVER:
                path_workspace = ""  # The workspace may not exist yet.
            role_scope = (
                "" if permission in permissions.SERVER_WIDE else path_workspace or DEFAULT_WORKSPACE
            )
            identity = self._identity(request, role_scope)
            identity = self._authorized(request, identity, permission, path_workspace, role_scope)
        return identity

    def known(self, request: Request, permission: Permission) -> Identity | None:
        """Like `enforce`, for what it would find without asking the database; else None.

        That is most requests of scripts: a person's token that was looked up within the last
        second, with a role that suffices for the server's default workspace.
        """
        if permission in _LOOKED_UP or "workspace" in request.path_params:
            return None
        token = bearer_token(request.scope)
        if not token or is_jwt(token):
            return None
        role_scope = "" if permission in permissions.SERVER_WIDE else DEFAULT_WORKSPACE
        identity = actions.known_holder(self._clock, token, role_scope, self._lookups)
        least = permissions.MINIMUM_ROLE.get(permission)
        if identity is None or identity.kind is not TokenKind.PERSON:
            return None
        if least is not None and (identity.role is None or identity.role.rank < least.rank):
            return None
        return self._authorized(request, identity, permission, "", role_scope)

    def granted(
        self,
        request: Request,
        permission: Permission,
        workspace: str,
        token_hash: str = "",
    ) -> Identity:
        """Like `enforce`, for a request whose route declares neither permission nor workspace.

        Args:
            token_hash: of the token whose holder signed the request; empty when the request
                carries a token itself.

        Raises:
            NotAuthenticated: the token is unknown, revoked or expired.
            Forbidden: the person no longer has the permission.
        """
        if token_hash:
            identity = actions.holder(self._db, self._clock, token_hash, workspace, self._lookups)
        else:
            identity = self._identity(request, workspace)
        return self._authorized(request, identity, permission, workspace, workspace)

    def _authorized(
        self,
        request: Request,
        identity: Identity,
        permission: Permission,
        path_workspace: str,
        role_scope: str,
    ) -> Identity:
        audit.note_identity(request.scope, identity, permission, role_scope)
        if identity.kind is TokenKind.ATTEMPT:
            raise Forbidden("a worker's token is valid for its attempt only")
        if identity.kind is TokenKind.MACHINE:
            _refuse_all_but_joining(request, identity, permission)
        _refuse_all_but_accepting(identity, permission)
        if identity.workspace and path_workspace and identity.workspace != path_workspace:
            raise Forbidden(
                f"this token is valid only for workspace `{identity.workspace}`, not for "
                f"`{path_workspace}`",
                "use that workspace, or a person's token",
            )
        if path_workspace and permission in permissions.CHANGES:
            actions.get(self._db, path_workspace)  # another server may have deleted it just now
        elif path_workspace:
            actions.check_exists(self._db, path_workspace, self._lookups)
        identity = self._with_role(identity, permission, role_scope)
        request.scope[_GRANT] = _Grant(identity.token_hash, permission, role_scope)
        return identity

    def refusal_now(self, request: Request) -> TorchyardError | None:
        """Why a request that was let in, and is still worked on, would be refused by now.

        None also while that can't be looked up.
        """
        grant: _Grant | None = request.scope.get(_GRANT)
        if grant is None:
            return None  # it needed no permission
        try:
            identity = actions.holder(
                self._db, self._clock, grant.token_hash, grant.role_scope, self._lookups
            )
            self._with_role(identity, grant.permission, grant.role_scope)
        except (NotAuthenticated, Forbidden) as error:
            return error
        except TorchyardError:
            pass  # the database does not answer
        return None

    def _attempt_identity(self, request: Request) -> Identity:
        identity = self._identity(request, "")
        attempt_id = request.path_params["attempt_id"]
        if identity.kind is not TokenKind.ATTEMPT or identity.subject != attempt_id:
            raise NotAuthenticated("this token belongs to another attempt")
        return identity

    def _identity(self, request: Request, role_scope: str) -> Identity:
        token = bearer_token(request.scope)
        if not token:
            session_cookies.refuse_other_pages(request.scope)
            raise NotAuthenticated(
                "the request has no token", "send `Authorization: Bearer <token>`"
            )
        return self._authenticate(request, token, role_scope, self._signer)

    def holder(self, request: Request, token: str) -> Identity:
        """The holder of a token that a request carries outside its Authorization header.

        Accepts a person's or a running job's token, but no JWT derived from one.

        Raises:
            NotAuthenticated: the token is unknown or expired.
        """
        identity = self._authenticate(request, token, "", None)
        if identity.kind is TokenKind.ATTEMPT:
            raise Forbidden("a worker's token is valid for its attempt only")
        if identity.kind is TokenKind.MACHINE:
            raise Forbidden("a machine's token is valid for its machine only")
        _refuse_all_but_accepting(identity, Permission.SELF)
        return identity

    def _authenticate(
        self, request: Request, token: str, role_scope: str, signer: Signer | None
    ) -> Identity:
        with self.watched(request):
            return actions.authenticate(
                self._db, self._clock, token, role_scope, self._lookups, signer
            )

    @contextmanager
    def watched(self, request: Request) -> Iterator[None]:
        """Wraps what may raise NotAuthenticated, and counts it as a wrong token of the address.

        Raises:
            TooManyRequests: instead, when too many came from the address.
        """
        address = request.client.host if request.client else ""
        with self._failures.watched(address, self._clock.now()):
            yield

    def has_failed_often(self, address: str) -> bool:
        """Whether the next wrong token from the address is one too many."""
        return self._failures.is_limited(address, self._clock.now())

    def is_cached(self, token: str, address: str) -> bool:
        """Whether the token is known as valid, without asking the database.

        Raises:
            TooManyRequests: within the last second it was not valid.
        """
        self._failures.refuse_repeated(address, token)
        return actions.known_holder(self._clock, token, "", self._lookups) is not None

    def refuse_wrong(self, token: str, address: str) -> None:
        """
        Raises:
            TooManyRequests: the token is not valid, and the address has failed often.
        """
        try:
            with self._failures.watched(address, self._clock.now()):
                actions.authenticate(self._db, self._clock, token, "", self._lookups, self._signer)
        except TooManyRequests:
            self._failures.keep_wrong(token)
            raise
        except (NotAuthenticated, Forbidden):
            return  # The minute is over, and the route says what is wrong.

    def _with_role(self, identity: Identity, permission: Permission, role_scope: str) -> Identity:
        if identity.kind is TokenKind.RUN:
            identity = self._as_job(identity, permission)
        least, role = permissions.MINIMUM_ROLE.get(permission), identity.role
        if least is not None and (role is None or role.rank < least.rank):
            raise self._refusal(identity, permission, role_scope)
        if self._is_held and permission in permissions.CHANGES:
            raise hold.refusal()
        own_only = (role is Role.DATA_SCIENTIST and permission in permissions.OWN_JOBS_ONLY) or (
            role is not Role.OWNER and permission in permissions.OWN_BELOW_OWNER
        )
        return replace(identity, own_only=True) if own_only else identity

    def _as_job(self, identity: Identity, permission: Permission) -> Identity:
        """A job has its owner's permissions, except over people, quotas and the server."""
        if permission in permissions.DENIED_TO_JOBS:
            raise Forbidden(f"a job's token may not {permission.value}", "use a personal token")
        role = identity.role
        if role is Role.OWNER:
            return replace(identity, role=Role.CONTRIBUTOR)
        return identity

    def _refusal(self, identity: Identity, permission: Permission, role_scope: str) -> Forbidden:
        least = permissions.MINIMUM_ROLE[permission]
        there = f"workspace `{role_scope}`" if role_scope else "this server"
        has = (
            "has no role in"
            if identity.role is None
            else f"is {ownership.with_article(identity.role)} in"
        )
        whom = self._whom_to_ask(role_scope)
        grant = f"yard user role {identity.user} '{least.value}'"
        grant += f" -w {role_scope}" if role_scope else " --all-workspaces"
        return Forbidden(
            f"`{identity.user}` {has} {there}; the role `{least.value}` is required to "
            f"{permission.value}",
            f"ask {whom} to do it, or to grant the role: `{grant}`",
        )

    def _whom_to_ask(self, role_scope: str) -> str:
        names = people.owners(self._db, role_scope)
        shown = [f"`{name}`" for name in names[:_NAMED_OWNERS]]
        if not shown:
            return "anyone who can read the server's home folder"
        return " or ".join(shown) + (" (owners)" if len(shown) > 1 else " (owner)")


def _refuse_all_but_joining(request: Request, identity: Identity, permission: Permission) -> None:
    """
    Raises:
        Forbidden: a machine's token is sent for something else, or for another machine.
    """
    path_params = request.path_params
    subject = actions.machine_subject(
        *(path_params.get(key, "") for key in ("workspace", "compute", "machine"))
    )
    if permission is not Permission.JOIN or subject != identity.subject:
        raise Forbidden(
            f"this token is valid only to join machine `{identity.subject.rpartition('/')[2]}`",
            "use a person's token",
        )


def _refuse_all_but_accepting(identity: Identity, permission: Permission) -> None:
    """
    Raises:
        Forbidden: an invitation is sent for something else, or something else to accept one.
    """
    is_invitation = identity.kind is TokenKind.INVITATION
    if is_invitation and permission is not Permission.ACCEPT:
        raise Forbidden(
            "an invitation is valid only to join the machine that it was made for",
            "use a person's token",
        )
    if permission is Permission.ACCEPT and not is_invitation:
        raise Forbidden("this token is not an invitation", "make one with `yard node invite`")


def bearer_token(scope: Scope) -> str:
    """What the Authorization header of a request holds, or the web page's cookie; else empty.

    The password of Basic authentication is a token, too, whatever the name: clients such as MLflow
    1.23, the newest for Python 3.6, send files with nothing else than what their URL holds.
    """
    kind, _, token = request_headers.header(scope, b"authorization").partition(" ")
    if not kind:
        return session_cookies.session_token(scope)
    if kind.lower() == "basic":
        # Browsers send a password that they know with whatever any page requests.
        is_browser = bool(request_headers.header(scope, b"sec-fetch-site"))
        return "" if is_browser else _password(token)
    return token.strip() if kind.lower() == "bearer" else ""


def _password(credentials: str) -> str:
    """Source: https://datatracker.ietf.org/doc/html/rfc7617#section-2"""
    try:
        pair = base64.b64decode(credentials, validate=True).decode()
    except ValueError:
        return ""
    return pair.partition(":")[2].strip()


def refuse_foreign(identity: Identity, owner: str, subject: str) -> None:
    """
    Raises:
        Forbidden: the identity may change only its own jobs, and this one is somebody else's.
    """
    if not identity.own_only or not owner or owner == identity.user:
        return
    rule = ownership.JOB if identity.role is Role.DATA_SCIENTIST else ownership.JOB_ENTER
    raise ownership.refusal(rule, identity.user, identity.role, owner, subject)
