"""Look-ups that are kept for a second end with what they were about."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import NotAuthenticated, NotFound
from torchyard.workspaces import actions, people
from torchyard.workspaces.lookups import KEPT_S, Lookups
from torchyard.workspaces.types import Identity, Role, TokenKind


def test_a_token_revoked_on_this_server_is_refused_at_once(db: Database, clock: FakeClock) -> None:
    lookups = Lookups()
    with db.write() as connection:
        people.ensure_owner(connection, "olga", clock.now())
    people.create(db, clock, "dan", Role.READER, "", "olga")
    token = people.new_token(db, clock, "dan", "first", None)

    def role() -> Role | None:
        return actions.authenticate(db, clock, token, "default", lookups).role

    assert role() is role() is Role.READER
    people.set_role(db, clock, "dan", "", Role.OWNER, "olga")
    assert role() is Role.OWNER
    people.set_role(db, clock, "dan", "", None, "olga")
    assert role() is None
    people.revoke(db, "dan", "first")
    with pytest.raises(NotAuthenticated):
        role()


def test_a_token_revoked_during_a_lookup_is_not_cached(db: Database, clock: FakeClock) -> None:
    lookups = Lookups()
    identity = Identity("olga", TokenKind.ATTEMPT, "default", "a1")
    token = actions.new_token(TokenKind.ATTEMPT)
    with db.write() as connection:
        actions.keep_token(connection, token, identity, clock.now())
    with db.write() as connection:
        actions.drop_tokens(connection, TokenKind.ATTEMPT, "a1")
        # Another thread, which sees nothing of it yet.
        with ThreadPoolExecutor(1) as other:
            other.submit(actions.authenticate, db, clock, token, "", lookups).result()
    with pytest.raises(NotAuthenticated):
        actions.authenticate(db, clock, token, "", lookups)


def test_a_token_revoked_on_another_server_is_refused_within_a_second(
    db: Database, clock: FakeClock
) -> None:
    passed_s = 0.0
    lookups = Lookups(lambda: passed_s)
    with db.write() as connection:
        token = people.home_token(connection, "olga", clock.now())
    actions.authenticate(db, clock, token, "", lookups)
    with db.write() as connection:
        connection.exec_driver_sql("DELETE FROM tokens")
    assert actions.authenticate(db, clock, token, "", lookups).user == "olga"
    passed_s = KEPT_S
    with pytest.raises(NotAuthenticated):
        actions.authenticate(db, clock, token, "", lookups)


def test_a_cached_token_expires_in_time(db: Database, clock: FakeClock) -> None:
    lookups = Lookups()
    with db.write() as connection:
        people.ensure_owner(connection, "olga", clock.now())
    from datetime import timedelta

    until = clock.now() + timedelta(seconds=60)
    token = people.new_token(db, clock, "olga", "short", until)
    actions.authenticate(db, clock, token, "", lookups)
    clock.advance(60)
    with pytest.raises(NotAuthenticated, match="`short` of `olga` expired"):
        actions.authenticate(db, clock, token, "", lookups)


def test_a_deleted_workspace_is_missing_at_once_and_from_another_server_within_a_second(
    db: Database, clock: FakeClock
) -> None:
    passed_s = 0.0
    lookups = Lookups(lambda: passed_s)

    def check() -> None:
        actions.check_exists(db, "vision", lookups)

    with pytest.raises(NotFound):
        check()
    actions.create(db, clock, {"name": "vision"})
    check()
    with db.write() as connection:
        actions.forget(connection, "vision")
    with pytest.raises(NotFound):
        check()
    actions.create(db, clock, {"name": "vision"})
    check()
    with db.write() as connection:
        connection.exec_driver_sql("DELETE FROM workspaces WHERE name = 'vision'")
    check()
    passed_s = KEPT_S
    with pytest.raises(NotFound):
        check()


def test_a_workspace_deleted_during_a_lookup_is_not_cached(db: Database, clock: FakeClock) -> None:
    lookups = Lookups()
    actions.create(db, clock, {"name": "vision"})
    with db.write() as connection:
        actions.forget(connection, "vision")
        # Another thread, which sees nothing of it yet.
        with ThreadPoolExecutor(1) as other:
            other.submit(actions.check_exists, db, "vision", lookups).result()
    with pytest.raises(NotFound):
        actions.check_exists(db, "vision", lookups)
