"""What can be done with workspaces and tokens.

Owns: the workspaces' names, whom a token authenticates.
Leaves: what an identity may do to permissions.py and access.py.
Always: a token itself is never stored, only its SHA-256.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from torchyard.base import fields
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import (
    Conflict,
    DatabaseUnreachable,
    Forbidden,
    NotAuthenticated,
    NotFound,
    did_you_mean,
)
from torchyard.base.settings import DEFAULT_WORKSPACE
from torchyard.workspaces import notifications, quotas, rights, store
from torchyard.workspaces.documents import ChangesFile, WorkspaceFile
from torchyard.workspaces.jwts import GET_ANOTHER, Signer, is_jwt
from torchyard.workspaces.lookups import Lookups
from torchyard.workspaces.types import Identity, TokenKind, Workspace

_USE_INTERVAL = timedelta(minutes=10)


def ensure_default(db: Database, clock: Clock) -> Workspace:
    """Return the default workspace; create it first if needed."""
    with db.write() as connection:
        existing = store.get_workspace(connection, DEFAULT_WORKSPACE)
        if existing is not None:
            return existing
        workspace = Workspace(DEFAULT_WORKSPACE, "local", "torchyard", "local", clock.now())
        store.add_workspace(connection, workspace)
        return workspace


def create(db: Database, clock: Clock, document: Mapping[str, Any]) -> Workspace:
    """Create an empty workspace.

    Raises:
        InvalidSpec: a key or value is wrong.
        Conflict: the name is taken, ignoring case.
    """
    now = clock.now()
    workspace = read_document(document, now)
    with db.write() as connection:
        for other in store.list_workspaces(connection):
            # On a file system that ignores case they would share a folder.
            if other.name.lower() == workspace.name.lower():
                raise Conflict(
                    f"workspace `{other.name}` exists already", "choose another name", at=["name"]
                )
        store.add_workspace(connection, workspace)
    return workspace


def read_document(document: Mapping[str, Any], now: datetime) -> Workspace:
    """A workspace from its YAML document."""
    file = WorkspaceFile.read(document)
    return Workspace(
        file.name,
        file.subscription_id or "local",
        file.resource_group or "torchyard",
        file.location or "local",
        now,
        file.description,
        display_name=file.display_name,
        tags=file.tags,
        azure_keys=file.kept,
    )


def update(
    db: Database,
    name: str,
    changes: Mapping[str, Any],
    check_notifications: Callable[[Mapping[str, Any]], object] | None = None,
) -> Workspace:
    """Change the settings of a workspace that `ChangesFile` has, and keys of Azure's schema.

    Tags are merged; null removes one.

    Args:
        check_notifications: refuses recipients that are not valid; needed to change them.

    Raises:
        InvalidSpec: another key, or a value of the wrong kind.
        NotFound: no such workspace.
    """
    file = ChangesFile.read(changes)
    values, satisfied = file.settings(changes), file.kept
    recipients = {key: value for key, value in changes.items() if key in notifications.KEYS}
    get(db, name)
    if not values and not satisfied and not recipients:
        return get(db, name)
    with db.write() as connection:
        workspace = store.get_workspace(connection, name)
        if workspace is not None:
            if "tags" in values:
                values["tags"] = fields.merged(workspace.tags, changes, "tags")
            if satisfied:
                values["azure_keys"] = {**workspace.azure_keys, **satisfied}
            if recipients:
                assert check_notifications is not None
                merged = notifications.merged(workspace.notifications, recipients)
                check_notifications(merged)
                values["notifications"] = merged
            store.change_workspace(connection, name, **values)
    return get(db, name)


def forget(connection: Connection, name: str) -> None:
    """Delete the workspace's row, tokens, roles and quotas. The packages above delete what was in
    it.
    """
    quotas.forget(connection, name)
    store.drop_workspace(connection, name)


def get(db: Database, name: str) -> Workspace:
    """
    Raises:
        NotFound: with the nearest name there is.
    """
    with db.read() as connection:
        workspace_row = store.get_workspace(connection, name)
        if workspace_row is not None:
            return workspace_row
        names = [workspace.name for workspace in store.list_workspaces(connection)]
    hint = did_you_mean(name, names, "list what exists with `yard workspace list`")
    raise NotFound(f"workspace `{name}` does not exist", hint)


def check_exists(db: Database, name: str, lookups: Lookups) -> None:
    """
    Args:
        lookups: a cache of the last second's lookups.

    Raises:
        NotFound: with the nearest name there is.
    """
    if not lookups.has_workspace(name):
        count = store.Changes.count
        get(db, name)
        lookups.keep_workspace(name, count)


def exists(connection: Connection, name: str) -> bool:
    return store.get_workspace(connection, name) is not None


def allows_substitutes(db: Database, name: str) -> bool | None:
    """Whether a substitute may replace what its jobs name; None if the workspace doesn't say."""
    with db.read() as connection:
        workspace = store.get_workspace(connection, name)
    return None if workspace is None else workspace.allow_substitutes


def notifications_of(connection: Connection, name: str) -> Mapping[str, Any]:
    """Who is told of the end of its jobs, as it is stored: with the secrets."""
    workspace = store.get_workspace(connection, name)
    return {} if workspace is None else workspace.notifications


def list_all(db: Database) -> list[Workspace]:
    with db.read() as connection:
        return store.list_workspaces(connection)


def new_token(kind: TokenKind) -> str:
    return kind.value + secrets.token_urlsafe(32)


def keep_token(
    connection: Connection,
    token: str,
    identity: Identity,
    now: datetime,
    expires_at: datetime | None = None,
) -> None:
    """Store `token`, so that it authenticates `identity`."""
    store.add_token(connection, hash_of(token), identity, now, expires_at)


def drop_tokens(connection: Connection, kind: TokenKind, subject: str) -> None:
    """Revoke the tokens of one attempt or run."""
    store.drop_tokens(connection, kind, subject)


def take_token(connection: Connection, token_hash: str) -> bool:
    """Revoke one token; False where somebody else has done so before."""
    return store.drop_hash(connection, token_hash)


def drop_expired(connection: Connection, kind: TokenKind, now: datetime) -> None:
    """Forget the tokens of a kind that are not valid any more."""
    store.drop_expired(connection, kind, now)


def machine_subject(workspace: str, compute: str, machine: str = "") -> str:
    """What a machine's token is for; of all machines of a cluster the beginning."""
    return f"{workspace}/{compute}/{machine}"


def drop_machine_tokens(
    connection: Connection, workspace: str, compute: str, machine: str = ""
) -> None:
    """Revoke the tokens of a machine that joined a cluster, or of all that did, and the invitations
    of that machine, or to the cluster.
    """
    store.drop_machine_tokens(connection, machine_subject(workspace, compute, machine))


def is_known(db: Database, clock: Clock, token: str) -> bool:
    """Whether the token is still valid."""
    try:
        authenticate(db, clock, token)
    except (NotAuthenticated, Forbidden):
        return False
    return True


def authenticate(
    db: Database,
    clock: Clock,
    token: str,
    workspace: str = "",
    lookups: Lookups | None = None,
    signer: Signer | None = None,
) -> Identity:
    """The holder of the token, with their role in the workspace.

    Args:
        workspace: the request's; empty for the server as a whole.
        lookups: a cache of the last second's lookups.
        signer: reads JWTs; None where they are not accepted.

    Raises:
        NotAuthenticated: the token is unknown or expired.
        Forbidden: it is a job's, and the job's owner may run nothing any more.
    """
    if signer is None or not is_jwt(token):
        return holder(db, clock, hash_of(token), workspace, lookups)
    source = signer.read(token, clock.now())
    try:
        return holder(db, clock, source.token_hash, workspace, lookups)
    except NotAuthenticated as error:
        raise NotAuthenticated(
            f"the token this one was issued for is no longer valid: {error.message}",
            GET_ANOTHER,
            code=error.code,
        ) from error


def holder(
    db: Database, clock: Clock, token_hash: str, workspace: str = "", lookups: Lookups | None = None
) -> Identity:
    """Like `authenticate`, for a token that was authenticated earlier.

    Args:
        token_hash: of an `Identity`.
    """
    now = clock.now()
    stored = lookups.get(token_hash, workspace) if lookups is not None else None
    if stored is None or _is_use_due(stored, now):
        stored = _read_token(db, token_hash, workspace, now, lookups)
    identity = stored.identity
    if identity.expires_at is not None and identity.expires_at <= now:
        raise _expired(identity)
    if identity.kind is TokenKind.RUN and not rights.suffices(identity.role):
        raise rights.refusal(identity.user, identity.workspace)
    return identity


def known_holder(clock: Clock, token: str, workspace: str, lookups: Lookups) -> Identity | None:
    """Like `authenticate`, for a token that the cache knows as valid; else None."""
    stored = lookups.get(hash_of(token), workspace)
    now = clock.now()
    if stored is None or _is_use_due(stored, now):
        return None
    identity = stored.identity
    if identity.kind is TokenKind.RUN and not rights.suffices(identity.role):
        return None
    return identity if identity.expires_at is None or identity.expires_at > now else None


def _read_token(
    db: Database, token_hash: str, workspace: str, now: datetime, lookups: Lookups | None
) -> store.StoredToken:
    count = store.Changes.count
    with db.read() as connection:
        stored = store.find_token(connection, token_hash, workspace)
    if stored is None:
        raise NotAuthenticated(
            "the token is unknown to this server, or was revoked",
            "on the server's own machine leave TORCHYARD_TOKEN unset; elsewhere ask its owner for "
            "a token, then run `yard login`",
        )
    expires_at = stored.identity.expires_at
    if (expires_at is None or expires_at > now) and _is_use_due(stored, now):
        # A full disk or an unreachable database must not lock anybody out.
        with suppress(DatabaseUnreachable), db.write(f"token/{token_hash}") as connection:
            store.record_use(connection, token_hash, now)
        stored = replace(stored, last_used_at=now)
    if lookups is not None:
        lookups.keep(token_hash, workspace, stored, count)
    return stored


def _is_use_due(stored: store.StoredToken, now: datetime) -> bool:
    """Whether to record this use: once in ten minutes is precise enough, and cheap."""
    if stored.identity.kind is not TokenKind.PERSON:
        return False
    return stored.last_used_at is None or now - stored.last_used_at >= _USE_INTERVAL


def _expired(identity: Identity) -> NotAuthenticated:
    assert identity.expires_at is not None
    ended = f"{identity.expires_at:%Y-%m-%d %H:%M} UTC"
    if identity.kind is TokenKind.INVITATION:
        return NotAuthenticated(
            f"the invitation expired at {ended}",
            f"ask `{identity.user}` for another: `yard node invite`",
            code="token_expired",
        )
    if identity.kind is not TokenKind.PERSON:
        return NotAuthenticated(f"the job's token expired at {ended}", code="token_expired")
    return NotAuthenticated(
        f"the token `{identity.token}` of `{identity.user}` expired at {ended}",
        f"ask an owner for a new one (`yard user token create {identity.user}`), then run "
        "`yard login`",
        code="token_expired",
    )


def hash_of(token: str) -> str:
    """What the database keeps of a token."""
    return hashlib.sha256(token.encode()).hexdigest()
