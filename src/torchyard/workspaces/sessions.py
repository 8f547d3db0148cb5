"""Sessions of the web page.

Owns: the codes of sign-in links, beginning and ending a session.
Leaves: the cookie to session_cookies.py, what a session may do to access.py.
Always: a session is a token of the person, ends with the token that it was begun with, and lasts no
longer; a code begins one session and is good for a minute; of both only hashes are stored.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from torchyard.base.clock import Clock, to_text
from torchyard.base.db import Database
from torchyard.base.errors import Forbidden, NotAuthenticated
from torchyard.workspaces import actions, people, store
from torchyard.workspaces.types import Identity, TokenKind

CODE_LIMIT = timedelta(seconds=60)
SESSION_LIMIT = timedelta(hours=12)
_CODE_BYTES = 32
_CODE_LENGTH = 128


@dataclass(frozen=True)
class Session:
    """A session that has begun; `text` is the token's, and is known to the browser alone."""

    user: str
    name: str
    text: str
    expires_at: datetime


def new_code(db: Database, clock: Clock, identity: Identity) -> tuple[str, datetime]:
    """A code that begins one session of this person, and when it expires.

    Raises:
        Forbidden: it is a job that asks.
    """
    _persons_only(identity)
    code = secrets.token_urlsafe(_CODE_BYTES)
    expires_at = clock.now() + CODE_LIMIT
    with db.write() as connection:
        store.add_code(connection, actions.hash_of(code), identity.token_hash, expires_at)
    return code, expires_at


def redeem(db: Database, clock: Clock, code: str) -> Session:
    """Begin a session with a code.

    Raises:
        NotAuthenticated: the code is unknown, was used or has expired, or the token that it was
            asked for with is no longer valid.
    """
    now = clock.now()
    source = None
    if len(code) <= _CODE_LENGTH:
        with db.write() as connection:
            source = store.take_code(connection, actions.hash_of(code), now)
    if source is None:
        raise NotAuthenticated(
            "this sign-in link was used before, or is older than a minute",
            "get another one with `yard ui`",
            code="sign_in_expired",
        )
    return begin(db, clock, actions.holder(db, clock, source))


def begin(db: Database, clock: Clock, identity: Identity) -> Session:
    """Begin a session with a token of a person.

    Raises:
        Forbidden: the token is a job's.
    """
    _persons_only(identity)
    now = clock.now()
    expires_at = now + SESSION_LIMIT
    if identity.expires_at is not None:
        expires_at = min(expires_at, identity.expires_at)
    for prefix in people.SESSION_NAMES:
        people.drop_expired(db, clock, identity.user, prefix)
    # What a sign-in may not do, its session may not do either.
    is_sign_in = identity.token.startswith(people.SIGN_IN_TOKENS)
    prefix = people.SESSION_NAMES[is_sign_in]
    name = f"{prefix}{to_text(now)[:10]}-{secrets.token_hex(3)}"
    text = actions.new_token(TokenKind.PERSON)
    with db.write() as connection:
        _check_source(connection, identity)
        made = Identity(identity.user, TokenKind.PERSON, token=name)
        store.add_session(
            connection, actions.hash_of(text), made, now, expires_at, identity.token_hash
        )
    return Session(identity.user, name, text, expires_at)


def end(db: Database, text: str) -> None:
    """Revoke a session's token; any other token stays."""
    token_hash = actions.hash_of(text)
    with db.write() as connection:
        stored = store.find_token(connection, token_hash, "")
        if stored is not None and is_session(stored.identity):
            store.drop_hash(connection, token_hash)


def is_page(identity: Identity) -> bool:
    """Whether the token is that of a page's session."""
    return identity.kind is TokenKind.PERSON and identity.token.startswith(people.SESSION_NAMES)


def is_session(identity: Identity) -> bool:
    """Whether the token is a session's, or one that a sign-in has made."""
    prefixes = (*people.SESSION_NAMES, people.SIGN_IN_TOKENS)
    return identity.kind is TokenKind.PERSON and identity.token.startswith(prefixes)


def _check_source(connection: Connection, identity: Identity) -> None:
    """
    Raises:
        NotAuthenticated: the token was revoked since it was looked up.
    """
    if store.find_token(connection, identity.token_hash, "") is None:
        raise NotAuthenticated("the token was revoked", "ask for another one")


def _persons_only(identity: Identity) -> None:
    if identity.kind is not TokenKind.PERSON:
        raise Forbidden("a job can't sign in to the web page", "use a person's token")
    if identity.token.startswith(people.SESSION_NAMES):
        raise Forbidden(
            "a session of the web page can't begin another one", "begin it with `yard ui`"
        )
