"""What can be done with people, their roles and their tokens.

Owns: the people, their role in each workspace, creating and revoking tokens.
Leaves: what a role may do to permissions.py, refusing requests to access.py.
Always: at least one person is owner of every workspace; a removed person's name stays reserved,
because jobs carry it; a token's text is returned once, when it is created.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy import Connection

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput, NotFound, did_you_mean
from torchyard.workspaces import actions
from torchyard.workspaces import people_store as store
from torchyard.workspaces.types import Identity, KeptToken, Person, Role, TokenKind, Workspace

HOME_TOKEN = "home"
SIGN_IN_TOKENS = "sign-in-"
"""How the names of tokens begin that a sign-in has made."""
SESSION_NAMES = ("page-", f"{SIGN_IN_TOKENS}page-")
"""How the names of tokens begin that are sessions of the web page; the second are of sign-ins."""
_NAME = re.compile(r"[a-zA-Z0-9][\w.@+-]{0,63}", re.ASCII)
_TOKEN_NAME = re.compile(r"[\w.@+-]{1,64}", re.ASCII)
_SUBJECT_LENGTH = 255
_LONGEST = timedelta(days=3650)


def home_token(connection: Connection, name: str, now: datetime) -> str:
    """Create a token for the server's owner: anyone who can read the home folder.

    The previous one is revoked: it was lost.
    """
    ensure_owner(connection, name, now)
    store.drop_token(connection, name, HOME_TOKEN)
    token = actions.new_token(TokenKind.PERSON)
    identity = Identity(name, TokenKind.PERSON, token=HOME_TOKEN)
    actions.keep_token(connection, token, identity, now)
    return token


def ensure_owner(connection: Connection, name: str, now: datetime) -> None:
    """Make sure that this person exists and is owner of every workspace."""
    person = store.get(connection, name)
    if person is None:
        store.add(connection, name, now)
    elif person.removed_at is not None:
        store.change(connection, name, removed_at=None)
    store.put_role(connection, name, "", Role.OWNER, name, now)


def create(
    db: Database, clock: Clock, name: str, role: Role | None, workspace: str, by: str
) -> Person:
    """Add a person, or bring back a removed one without their former roles.

    Args:
        role: None for no role yet.
        workspace: where the role applies; empty for every workspace.

    Raises:
        InvalidInput: the name is not valid.
        Conflict: the name is taken.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"`{name[:80]}` is not a valid name for a person",
            "use 1 to 64 letters, digits, `_`, `.`, `@`, `+` and `-`, starting with a letter or "
            "digit",
            at=["name"],
        )
    if workspace:
        actions.get(db, workspace)
    now = clock.now()
    with db.write() as connection:
        _refuse_taken(connection, name)
        if store.get(connection, name) is None:
            store.add(connection, name, now)
        else:
            store.change(connection, name, removed_at=None)
        if role is not None:
            store.put_role(connection, name, workspace, role, by, now)
        return _existing(connection, name)


def list_all(db: Database) -> list[Person]:
    """By name."""
    with db.read() as connection:
        return store.list_all(connection)


def get(db: Database, name: str) -> Person:
    """
    Raises:
        NotFound: with the nearest name there is.
    """
    with db.read() as connection:
        return _existing(connection, name)


def set_role(
    db: Database, clock: Clock, name: str, workspace: str, role: Role | None, by: str
) -> Person:
    """Grant or remove a role in a workspace, or in every workspace if `workspace` is empty.

    Raises:
        NotFound: no such person.
        Conflict: nobody would be left who owns the server.
    """
    with db.write() as connection:
        person = _existing(connection, name)
        if not workspace and role is not Role.OWNER:
            _keep_an_owner(connection, person)
        if role is None:
            store.drop_role(connection, name, workspace)
        else:
            store.put_role(connection, name, workspace, role, by, clock.now())
        return _existing(connection, name)


def remove(db: Database, clock: Clock, name: str) -> Person:
    """Take every role and token away, their jobs' too; what they made stays under the name.

    Raises:
        NotFound: no such person.
        Conflict: nobody would be left who owns the server.
    """
    with db.write() as connection:
        person = _existing(connection, name)
        _keep_an_owner(connection, person)
        store.drop_roles(connection, name)
        store.drop_subjects(connection, name)
        store.drop_all_tokens(connection, name)
        store.change(connection, name, removed_at=clock.now())
    return person


def new_token(
    db: Database, clock: Clock, name: str, token: str, expires_at: datetime | None
) -> str:
    """Create a token for a person; its text is returned here and never again.

    Raises:
        InvalidInput: the name is not valid, or `expires_at` is past or too far away.
        Conflict: the person has a valid token of this name.
    """
    now = clock.now()
    if not _TOKEN_NAME.fullmatch(token):
        raise InvalidInput(
            f"`{token[:80]}` is not a valid name for a token",
            "use 1 to 64 letters, digits, `_`, `.`, `@`, `+` and `-`",
            at=["token"],
        )
    _check_expiry(expires_at, now)
    text = actions.new_token(TokenKind.PERSON)
    with db.write() as connection:
        _existing(connection, name)
        for other in store.tokens_of(connection, name):
            if other.name == token and (other.expires_at is None or other.expires_at > now):
                raise Conflict(
                    f"`{name}` has a token `{token}` already",
                    f"choose another name, or run `yard user token revoke {name} {token}` first",
                    at=["token"],
                )
        store.drop_token(connection, name, token)
        identity = Identity(name, TokenKind.PERSON, token=token)
        actions.keep_token(connection, text, identity, now, expires_at)
    return text


def tokens(db: Database, name: str) -> list[KeptToken]:
    """Oldest first, expired ones included."""
    with db.read() as connection:
        _existing(connection, name)
        return store.tokens_of(connection, name)


def revoke(db: Database, name: str, token: str) -> None:
    """
    Raises:
        NotFound: the person has no such token.
    """
    with db.write() as connection:
        _token_of(connection, name, token)
        store.drop_token(connection, name, token)


def rotate(
    db: Database, clock: Clock, name: str, token: str, expires_at: datetime | None
) -> tuple[str, datetime | None]:
    """Replace a token by a new one of the same name; the old text is refused at once.

    Args:
        expires_at: None for as long from now as the old one was good for when it was made.

    Raises:
        NotFound: the person has no such token.
        InvalidInput: it is the token of the home folder, of a sign-in or of the web page, or
            `expires_at` is past.
    """
    if token.startswith(SIGN_IN_TOKENS):
        raise InvalidInput(
            f"`{token[:80]}` is the token of a sign-in, which ends when the sign-in does",
            "sign in again with `yard login`",
        )
    if token == HOME_TOKEN:
        raise InvalidInput(
            f"`{HOME_TOKEN}` is the token of the server's home folder",
            "stop the server, remove the file `token` in the home and start it: it writes a new "
            "one, and the old one is refused",
        )
    if token.startswith(SESSION_NAMES):
        raise InvalidInput(
            f"`{token[:80]}` is a session of the web page, which ends within hours",
            "begin another one with `yard ui`",
        )
    now = clock.now()
    text = actions.new_token(TokenKind.PERSON)
    with db.write() as connection:
        old = _token_of(connection, name, token)
        if expires_at is None and old.expires_at is not None:
            expires_at = now + (old.expires_at - old.created_at)
        _check_expiry(expires_at, now)
        store.drop_token(connection, name, token)
        identity = Identity(name, TokenKind.PERSON, token=token)
        actions.keep_token(connection, text, identity, now, expires_at)
    return text, expires_at


def revoke_all(db: Database, name: str) -> list[str]:
    """Revoke every token of a person but that of the home folder; returns their names."""
    with db.write() as connection:
        _existing(connection, name)
        revoked = [each.name for each in store.tokens_of(connection, name)]
        revoked = [token for token in revoked if token != HOME_TOKEN]
        for token in revoked:
            store.drop_token(connection, name, token)
    return revoked


def owners(db: Database, workspace: str) -> list[str]:
    """The names of the workspace's owners, then of the server's."""
    with db.read() as connection:
        return list(store.owners(connection, workspace))


def roles_of(db: Database, name: str) -> dict[str, Role]:
    """By workspace; the key "" is every workspace."""
    with db.read() as connection:
        return store.roles_of(connection, name)


def administers(db: Database, identity: Identity) -> bool:
    """Whether it is a person, with a token for every workspace, who administers the server."""
    is_person = identity.kind is TokenKind.PERSON and not identity.workspace
    return is_person and roles_of(db, identity.user).get("") is Role.OWNER


def workspaces_of(db: Database, identity: Identity) -> list[Workspace]:
    """The workspaces where the identity has a role; a job's token reaches only its own."""
    roles = roles_of(db, identity.user)
    return [
        workspace
        for workspace in actions.list_all(db)
        if identity.workspace in ("", workspace.name)
        and (identity.workspace or "" in roles or workspace.name in roles)
    ]


def is_name(text: str) -> bool:
    """Whether a person can be called that."""
    return bool(_NAME.fullmatch(text))


def is_present(connection: Connection, name: str) -> bool:
    person = store.get(connection, name)
    return person is not None and person.removed_at is None


def is_removed(connection: Connection, name: str) -> bool:
    person = store.get(connection, name)
    return person is not None and person.removed_at is not None


def owns_home(connection: Connection, name: str) -> bool:
    """Whether it is the person whose token lies in the home folder."""
    return any(token.name == HOME_TOKEN for token in store.tokens_of(connection, name))


def add_without_role(connection: Connection, name: str, now: datetime) -> None:
    """Add a person who is not there yet.

    Raises:
        Conflict: there is one of that name but for its case.
    """
    _refuse_taken(connection, name)
    store.add(connection, name, now)


def user_of_subject(connection: Connection, issuer: str, subject: str) -> str | None:
    """The person to whom an account of a sign-in provider is bound, present or removed."""
    return store.user_of_subject(connection, issuer, subject)


def subject_of(connection: Connection, issuer: str, name: str) -> str | None:
    """The account that is bound to a person."""
    return store.subject_of(connection, issuer, name)


def bind_subject(
    connection: Connection, issuer: str, subject: str, name: str, now: datetime
) -> None:
    """Let an account sign in as a person from now on."""
    store.add_subject(connection, issuer, subject, name, now)


def is_subject(text: str) -> bool:
    """Whether it may name an account of a provider: up to 255 printable ASCII characters."""
    return 0 < len(text) <= _SUBJECT_LENGTH and text.isascii() and text.isprintable()


def link(db: Database, clock: Clock, issuer: str, subject: str, name: str) -> None:
    """Let the account `subject` of a provider sign in as this person, whatever its name there.

    Raises:
        NotFound: there is nobody of this name.
        InvalidInput: no account can be called that.
        Conflict: the person or the account is linked otherwise, or the person owns the home.
    """
    if not is_subject(subject):
        raise InvalidInput(
            "`subject` must have 1 to 255 printable ASCII characters", at=["subject"]
        )
    with db.write() as connection:
        _existing(connection, name)
        if owns_home(connection, name):
            raise Conflict(
                f"`{name}` owns the server's home folder, and signs in on its machine only",
                "make an account of another name: `yard user create NAME --no-token`",
            )
        linked = subject_of(connection, issuer, name)
        if linked == subject:
            return
        if linked is not None:
            raise Conflict(
                f"`{name}` is linked to another account of `{issuer}`",
                f"release it first: `yard user unlink {name}`",
            )
        holder = user_of_subject(connection, issuer, subject)
        if holder is not None:
            raise Conflict(
                f"the account is linked to `{holder}`",
                f"release it first: `yard user unlink {holder}`",
            )
        bind_subject(connection, issuer, subject, name, clock.now())


def unlink(db: Database, name: str) -> int:
    """Release a person's account at the sign-in provider and end what it has signed in.

    Returns how many were released.
    """
    with db.write() as connection:
        _existing(connection, name)
        for token in store.tokens_of(connection, name):
            if token.name.startswith(SIGN_IN_TOKENS):
                store.drop_token(connection, name, token.name)
        return store.drop_subjects(connection, name)


def grant_from_groups(
    connection: Connection, name: str, roles: Mapping[str, Role], by: str, now: datetime
) -> None:
    """Make the roles that `by` has granted those that are wanted; others stay.

    Args:
        roles: by workspace; a workspace that does not exist is left out.
    """
    current = store.roles_of(connection, name)
    granted = store.roles_granted_by(connection, name, by)
    for workspace in granted.keys() - roles.keys():
        store.drop_role(connection, name, workspace)
    for workspace, role in roles.items():
        own_role = current.get(workspace) if workspace not in granted else None
        is_new = current.get(workspace) is not role
        is_there = not workspace or actions.exists(connection, workspace)
        if is_new and is_there and (own_role is None or own_role.rank < role.rank):
            store.put_role(connection, name, workspace, role, by, now)


def drop_expired(db: Database, clock: Clock, name: str, prefix: str) -> None:
    """Delete a person's tokens that are over and whose name begins with `prefix`."""
    now = clock.now()
    with db.write() as connection:
        for token in store.tokens_of(connection, name):
            is_over = token.expires_at is not None and token.expires_at <= now
            if is_over and token.name.startswith(prefix):
                store.drop_token(connection, name, token.name)


def _check_expiry(expires_at: datetime | None, now: datetime) -> None:
    if expires_at is not None and not now < expires_at <= now + _LONGEST:
        raise InvalidInput(
            f"a token can't expire at {expires_at:%Y-%m-%d %H:%M} UTC",
            "choose a time within the next ten years, or none",
            at=["expires_at"],
        )


def _token_of(connection: Connection, name: str, token: str) -> KeptToken:
    """
    Raises:
        NotFound: the person has no such token.
    """
    _existing(connection, name)
    tokens = {each.name: each for each in store.tokens_of(connection, name)}
    if token not in tokens:
        raise NotFound(
            f"`{name}` has no token `{token[:80]}`",
            did_you_mean(token, tokens, f"see `yard user token list {name}`"),
        )
    return tokens[token]


def _refuse_taken(connection: Connection, name: str) -> None:
    """
    Raises:
        Conflict: somebody has the name, ignoring case.
    """
    for person in store.list_all(connection):
        if person.name.lower() == name.lower():
            raise Conflict(
                f"`{person.name}` already exists",
                f"grant a role with `yard user role {person.name} contributor`, or create "
                f"a token with `yard user token create {person.name}`",
                at=["name"],
            )


def _existing(connection: Connection, name: str) -> Person:
    person_row = store.get(connection, name)
    if person_row is None or person_row.removed_at is not None:
        raise NotFound(
            f"person `{name[:80]}` does not exist",
            did_you_mean(
                name,
                [person.name for person in store.list_all(connection)],
                "list people with `yard user list`",
            ),
            code="no_such_person",
        )
    return person_row


def _keep_an_owner(connection: Connection, person: Person) -> None:
    if person.roles.get("") is Role.OWNER and store.count_owners(connection) == 1:
        raise Conflict(
            f"`{person.name}` is the last owner of this server",
            "make somebody else an owner first: `yard user role NAME owner --all-workspaces`",
            code="last_owner",
        )
