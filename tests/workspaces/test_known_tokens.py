"""A token that is accepted without the database is one that the database would accept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from fastapi import Request

from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import Forbidden
from torchyard.workspaces import actions, people
from torchyard.workspaces.access import Access
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity, Role, TokenKind

ENFORCED = [each for each in Permission if each not in (Permission.OPEN, Permission.WORKER)]


@pytest.fixture
def access(db: Database, clock: FakeClock) -> Access:
    actions.ensure_default(db, clock)
    with db.write() as connection:
        people.ensure_owner(connection, "olga", clock.now())
    return Access(db, clock)


def request(token: str, **parameters: str) -> Request:
    scope: dict[str, Any] = {"type": "http", "path_params": parameters, "client": ("10.0.0.1", 1)}
    return Request({**scope, "headers": [(b"authorization", f"Bearer {token}".encode())]})


def person(db: Database, clock: FakeClock, name: str, role: Role, ends: Any = None) -> str:
    people.create(db, clock, name, role, "", "olga")
    return people.new_token(db, clock, name, "first", ends)


@pytest.mark.parametrize("role", list(Role))
def test_what_is_known_is_what_the_database_says(
    db: Database, clock: FakeClock, access: Access, role: Role
) -> None:
    token = person(db, clock, "dan", role)
    for permission in ENFORCED:
        try:
            expected: Identity | None = access.enforce(request(token), permission)
        except Forbidden:
            expected = None  # the database finds the words
        identity = access.known(request(token), permission)
        assert identity == (None if permission is Permission.SERVER else expected), permission


def test_nothing_is_known_before_the_first_look(
    db: Database, clock: FakeClock, access: Access
) -> None:
    token = person(db, clock, "dan", Role.OWNER)
    assert access.known(request(token), Permission.LOG) is None
    assert access.known(request(""), Permission.LOG) is None
    assert access.known(request("yard_p_other"), Permission.LOG) is None


def test_a_revoked_or_expired_token_or_a_lost_role_is_not_known(
    db: Database, clock: FakeClock, access: Access
) -> None:
    day = clock.now() + timedelta(days=1)
    token, short = person(db, clock, "dan", Role.OWNER), person(db, clock, "eva", Role.OWNER, day)
    for each in (token, short):
        access.enforce(request(each), Permission.LOG)
        assert access.known(request(each), Permission.LOG) is not None
    clock.advance(2 * 86_400)
    assert access.known(request(short), Permission.LOG) is None
    access.enforce(request(token), Permission.LOG)
    people.set_role(db, clock, "dan", "", None, "olga")
    assert access.known(request(token), Permission.LOG) is None
    people.set_role(db, clock, "dan", "", Role.OWNER, "olga")
    access.enforce(request(token), Permission.LOG)
    people.revoke(db, "dan", "first")
    assert access.known(request(token), Permission.LOG) is None


def test_paths_that_name_a_workspace_and_tokens_of_jobs_are_looked_up(
    db: Database, clock: FakeClock, access: Access
) -> None:
    token = person(db, clock, "dan", Role.OWNER)
    access.enforce(request(token), Permission.JOB)
    assert access.known(request(token), Permission.JOB) is not None
    assert access.known(request(token, workspace="default"), Permission.JOB) is None
    run = actions.new_token(TokenKind.RUN)
    with db.write() as connection:
        identity = Identity("dan", TokenKind.RUN, "default", "default/job")
        actions.keep_token(connection, run, identity, clock.now())
    access.enforce(request(run), Permission.LOG)
    assert access.known(request(run), Permission.LOG) is None
