"""What can be done with workspaces and tokens.

Owns: the workspaces' names, whom a token authenticates.
Leaves: what an identity may do to permissions.py and access.py.
Always: a token itself is never stored, only its SHA-256.
"""

from __future__ import annotations

import hashlib
import re
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
from torchyard.base.documents import expressions, faults
from torchyard.base.errors import (
    Conflict,
    DatabaseUnreachable,
    Forbidden,
    InvalidSpec,
    NotAuthenticated,
    NotFound,
    did_you_mean,
)
from torchyard.base.settings import DEFAULT_WORKSPACE
from torchyard.workspaces import azure_keys, notifications, quotas, rights, store
from torchyard.workspaces.jwts import GET_ANOTHER, Signer, is_jwt
from torchyard.workspaces.lookups import Lookups
from torchyard.workspaces.types import NETWORKS, Identity, TokenKind, Workspace

_NAME = re.compile(r"[a-zA-Z0-9][\w-]{2,32}", re.ASCII)
_PART = re.compile(r"[\w.()-]{1,64}", re.ASCII)
_CHANGES = (
    "description", "display_name", "tags", "retention_days", "rehearse_on_cpu",
    "allow_substitutes", "max_processes", "disk_quota_mb", "network", "auto_compute",
    *notifications.KEYS,
)  # fmt: skip
_LONGEST_NAME = 256
_LEAST_PROCESSES, _MOST = 64, 1 << 30
_LONGEST_DAYS = 36_500
_USE_INTERVAL = timedelta(minutes=10)
_TEXTS = (
    "name", "subscription_id", "resource_group", "location", "description", "display_name",
    "$schema",
)  # fmt: skip
_KEYS = (*_TEXTS, "tags")


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
    workspace = faults.collected(lambda body: read_document(body, now), document)
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
    azure_keys.refuse_unknown(document, _KEYS)
    expressions.refuse(document)
    for key in _TEXTS:
        fields.text(document, key)
    name = fields.text(document, "name")
    if not _NAME.fullmatch(name):
        raise InvalidSpec(
            f"`{name[:80]}` is not a valid workspace name"
            if name
            else "the workspace has no `name`",
            "use 3 to 33 letters, digits, `_` and `-`, starting with a letter or digit",
            at=["name"],
        )
    for key in ("subscription_id", "resource_group", "location"):
        if document.get(key) and not _PART.fullmatch(document[key]):
            raise InvalidSpec(
                f"`{document[key][:80]}` is not a valid `{key}`",
                "use up to 64 letters, digits, `_`, `-`, `.`, `(` and `)`",
                at=[key],
            )
    return Workspace(
        name,
        document.get("subscription_id") or "local",
        document.get("resource_group") or "torchyard",
        document.get("location") or "local",
        now,
        document.get("description") or "",
        display_name=_display_name(document),
        tags=fields.texts(document, "tags"),
        azure_keys=azure_keys.read(document),
    )


def update(
    db: Database,
    name: str,
    changes: Mapping[str, Any],
    check_notifications: Callable[[Mapping[str, Any]], object] | None = None,
) -> Workspace:
    """Change the settings of a workspace that are in `_CHANGES`, and keys of Azure's schema.

    Tags are merged; null removes one.

    Args:
        check_notifications: refuses recipients that are not valid; needed to change them.

    Raises:
        InvalidSpec: another key, or a value of the wrong kind.
        NotFound: no such workspace.
    """
    satisfied = faults.collected(_read_changes, changes)
    values = {
        key: value
        for key, value in changes.items()
        if key in _CHANGES and key not in notifications.KEYS
    }
    recipients = {key: value for key, value in changes.items() if key in notifications.KEYS}
    for key in {"description", "display_name"} & values.keys():
        values[key] = values[key] or ""
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


def _read_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changed keys of Azure's schema that are satisfied; the others have been checked."""
    allowed = [key for key in changes if key in azure_keys.KEYS]
    otherwise = f"you can change: {', '.join(_CHANGES)}"
    fields.refuse_unchangeable(changes, (*_CHANGES, *allowed), "a workspace", otherwise)
    expressions.refuse(changes)
    _check_settings(changes)
    return azure_keys.read(changes)


def _check_settings(changes: Mapping[str, Any]) -> None:
    """
    Raises:
        InvalidSpec: a value is of the wrong kind, or out of range.
    """
    for key in ("description", "display_name"):
        fields.text(changes, key)
    _display_name(changes)
    days = changes.get("retention_days", 0)
    if type(days) is not int or not 0 <= days <= _LONGEST_DAYS:
        raise InvalidSpec(
            f"`retention_days` must be a whole number of days, not `{str(days)[:50]}`",
            "0 keeps jobs forever",
            at=["retention_days"],
        )
    for key in ("rehearse_on_cpu", "auto_compute"):
        if type(changes.get(key, False)) is not bool:
            raise InvalidSpec(
                f"`{key}` must be a boolean, not `{str(changes[key])[:50]}`",
                "use true or false",
                at=[key],
            )
    if type(changes.get("allow_substitutes")) not in (bool, type(None)):
        raise InvalidSpec(
            "`allow_substitutes` must be a boolean or null, not "
            f"`{str(changes['allow_substitutes'])[:50]}`",
            "use true or false; null leaves the choice to the server",
            at=["allow_substitutes"],
        )
    _check_limits(changes)


def _display_name(document: Mapping[str, Any]) -> str:
    return fields.bounded(
        fields.text(document, "display_name"),
        _LONGEST_NAME,
        "`display_name`",
        at=["display_name"],
    )


def _check_limits(changes: Mapping[str, Any]) -> None:
    """
    Raises:
        InvalidSpec: a limit of jobs is not understood, or out of range.
    """
    for key, least in (("max_processes", _LEAST_PROCESSES), ("disk_quota_mb", 1)):
        count = changes.get(key, 0)
        if type(count) is not int or (count and not least <= count <= _MOST):
            raise InvalidSpec(
                f"`{key}` must be a whole number from {least} to {_MOST}, not `{str(count)[:50]}`",
                "0 leaves it to torchyard",
                at=[key],
            )
    network = changes.get("network", NETWORKS[0])
    if network not in NETWORKS:
        raise InvalidSpec(
            f"`network` is `{str(network)[:50]}`",
            did_you_mean(str(network), NETWORKS),
            at=["network"],
        )


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
