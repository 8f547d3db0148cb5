"""The tables of people and their roles, and people's side of the tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import (
    Column,
    Connection,
    String,
    Table,
    UniqueConstraint,
    delete,
    func,
    insert,
    select,
    update,
)

from torchyard.base.db import Instant, metadata
from torchyard.workspaces.store import changed, roles, tokens
from torchyard.workspaces.types import KeptToken, Person, Role, TokenKind

people = Table(
    "people",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("created_at", Instant, nullable=False),
    Column("removed_at", Instant),
)

# Accounts of OpenID Connect providers, each bound to one person.
subjects = Table(
    "subjects",
    metadata,
    Column("issuer", String(255), primary_key=True),
    Column("subject", String(255), primary_key=True),
    Column("user", String(128), nullable=False),
    Column("bound_at", Instant, nullable=False),
    UniqueConstraint("issuer", "user"),
)

_PERSONS = tokens.c.kind == TokenKind.PERSON.value


def add(connection: Connection, name: str, now: datetime) -> None:
    connection.execute(insert(people).values(name=name, created_at=now))


def change(connection: Connection, name: str, removed_at: datetime | None) -> None:
    connection.execute(update(people).where(people.c.name == name).values(removed_at=removed_at))


def get(connection: Connection, name: str) -> Person | None:
    """The person, even if removed."""
    row = connection.execute(select(people).where(people.c.name == name)).one_or_none()
    if row is None:
        return None
    return Person(row.name, row.created_at, roles_of(connection, name), row.removed_at)


def list_all(connection: Connection) -> list[Person]:
    """By name, without removed people."""
    roles_by_user: dict[str, dict[str, Role]] = {}
    for row in connection.execute(select(roles).order_by(roles.c.workspace)):
        roles_by_user.setdefault(row.user, {})[row.workspace] = Role(row.role)
    rows = connection.execute(
        select(people).where(people.c.removed_at.is_(None)).order_by(people.c.name)
    )
    return [Person(row.name, row.created_at, roles_by_user.get(row.name, {})) for row in rows]


def roles_of(connection: Connection, name: str) -> dict[str, Role]:
    rows = connection.execute(select(roles).where(roles.c.user == name).order_by(roles.c.workspace))
    return {row.workspace: Role(row.role) for row in rows}


def roles_of_present(connection: Connection, names: Collection[str]) -> dict[tuple[str, str], Role]:
    """By person and workspace, the roles of those who were not removed."""
    query = select(roles.c.user, roles.c.workspace, roles.c.role).join(
        people, people.c.name == roles.c.user
    )
    rows = connection.execute(
        query.where(roles.c.user.in_(list(names)), people.c.removed_at.is_(None))
    )
    return {(row.user, row.workspace): Role(row.role) for row in rows}


def put_role(
    connection: Connection, name: str, workspace: str, role: Role, by: str, now: datetime
) -> None:
    drop_role(connection, name, workspace)
    connection.execute(
        insert(roles).values(
            user=name, workspace=workspace, role=role.value, granted_by=by, granted_at=now
        )
    )


def drop_role(connection: Connection, name: str, workspace: str) -> None:
    changed(connection)
    connection.execute(delete(roles).where(roles.c.user == name, roles.c.workspace == workspace))


def drop_roles(connection: Connection, name: str) -> None:
    changed(connection)
    connection.execute(delete(roles).where(roles.c.user == name))


def owners(connection: Connection, workspace: str) -> Sequence[str]:
    """The workspace's owners first, then those of every workspace; each by name."""
    rows = connection.execute(
        select(roles.c.user)
        .where(roles.c.role == Role.OWNER.value, roles.c.workspace.in_(["", workspace]))
        .order_by(roles.c.workspace.desc(), roles.c.user)
    )
    return list(dict.fromkeys(rows.scalars()))


def count_owners(connection: Connection) -> int:
    """Of every workspace."""
    return connection.execute(
        select(func.count())
        .select_from(roles)
        .where(roles.c.role == Role.OWNER.value, roles.c.workspace == "")
    ).scalar_one()


def tokens_of(connection: Connection, name: str) -> list[KeptToken]:
    rows = connection.execute(
        select(tokens).where(_PERSONS, tokens.c.user == name).order_by(tokens.c.created_at)
    )
    return [KeptToken(row.name, row.created_at, row.expires_at, row.last_used_at) for row in rows]


def drop_token(connection: Connection, name: str, token: str) -> None:
    """Revoke a token, and the sessions of the web page that were begun with it."""
    changed(connection)
    is_named = _PERSONS & (tokens.c.user == name) & (tokens.c.name == token)
    hashes = connection.execute(select(tokens.c.hash).where(is_named)).scalars().all()
    connection.execute(delete(tokens).where(tokens.c.hash.in_(hashes)))
    connection.execute(delete(tokens).where(tokens.c.source.in_(hashes)))


def drop_all_tokens(connection: Connection, name: str) -> None:
    """Drop a person's tokens, those of the machines that they joined and of their jobs' scripts.

    Workers keep theirs, to report the end.
    """
    changed(connection)
    is_dropped = tokens.c.kind != TokenKind.ATTEMPT.value
    connection.execute(delete(tokens).where(is_dropped, tokens.c.user == name))


def user_of_subject(connection: Connection, issuer: str, subject: str) -> str | None:
    query = select(subjects.c.user).where(
        subjects.c.issuer == issuer, subjects.c.subject == subject
    )
    return connection.execute(query).scalar()


def subject_of(connection: Connection, issuer: str, name: str) -> str | None:
    query = select(subjects.c.subject).where(subjects.c.issuer == issuer, subjects.c.user == name)
    return connection.execute(query).scalar()


def add_subject(
    connection: Connection, issuer: str, subject: str, name: str, now: datetime
) -> None:
    connection.execute(
        insert(subjects).values(issuer=issuer, subject=subject, user=name, bound_at=now)
    )


def drop_subjects(connection: Connection, name: str) -> int:
    """Returns how many there were."""
    return connection.execute(delete(subjects).where(subjects.c.user == name)).rowcount


def roles_granted_by(connection: Connection, name: str, by: str) -> dict[str, Role]:
    rows = connection.execute(select(roles).where(roles.c.user == name, roles.c.granted_by == by))
    return {row.workspace: Role(row.role) for row in rows}
