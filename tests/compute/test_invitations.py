"""Invitations of machines, on both databases and with a clock that stands."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from torchyard.base.clock import FakeClock, to_text
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput, NotAuthenticated, NotFound
from torchyard.compute import invitations, machines, store
from torchyard.compute.invitations import Accepted
from torchyard.compute.types import Compute
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces.store import tokens
from torchyard.workspaces.types import Identity, TokenKind

HERE, RAY = "default", "machines"


@pytest.fixture(autouse=True)
def clusters(db: Database, clock: FakeClock) -> None:
    with db.write() as connection:
        store.put(connection, Compute(RAY, HERE, clock.now(), engine="ray"))
        store.put(connection, Compute("here", HERE, clock.now()))


def invite(db: Database, clock: FakeClock, machine: str = "", **more: Any) -> str:
    options = {"everybody": False, "ends_at": clock.now() + timedelta(hours=1), **more}
    return invitations.create(db, clock, HERE, RAY, machine, "ann", **options)[0]


def bearer(db: Database, clock: FakeClock, token: str) -> Identity:
    return workspaces.authenticate(db, clock, token, HERE)


def accept(
    db: Database, clock: FakeClock, token: str, machine: str = "", host: str = "lab"
) -> Accepted:
    return invitations.accept(db, clock, bearer(db, clock, token), machine, host)


def test_an_invitation_gives_one_machine_a_token_of_its_own(db: Database, clock: FakeClock) -> None:
    invitation = invite(db, clock)
    made = accept(db, clock, invitation)
    assert (made.machine, made.cluster.name) == ("lab", RAY)
    identity = bearer(db, clock, made.token)
    assert (identity.kind, identity.user) == (TokenKind.MACHINE, "ann")
    assert identity.subject == f"{HERE}/{RAY}/lab"
    with pytest.raises(NotAuthenticated):
        bearer(db, clock, invitation)


def test_of_two_requests_at_the_same_moment_one_gets_a_token(
    db: Database, clock: FakeClock
) -> None:
    invitation = bearer(db, clock, invite(db, clock))
    both_are_in = threading.Barrier(8)
    accepted: list[Accepted] = []
    refused: list[NotAuthenticated] = []

    def ask(host: str) -> None:
        both_are_in.wait()
        try:
            accepted.append(invitations.accept(db, clock, invitation, "", host))
        except NotAuthenticated as error:
            refused.append(error)

    threads = [threading.Thread(target=ask, args=(f"lab-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(accepted) == 1 and {error.code for error in refused} == {"invitation_used"}
    assert len(refused) == 7
    with db.read() as connection:
        kinds = connection.execute(select(tokens.c.kind)).scalars().all()
    assert kinds.count(TokenKind.MACHINE.value) == 1


def test_an_invitation_ends(db: Database, clock: FakeClock) -> None:
    invitation = invite(db, clock)
    clock.advance(3600)
    with pytest.raises(NotAuthenticated, match="the invitation expired at") as caught:
        bearer(db, clock, invitation)
    assert "`yard node invite`" in caught.value.hint
    invite(db, clock)
    with db.read() as connection:
        assert len(connection.execute(select(tokens.c.hash)).all()) == 1, "the old one is forgotten"


def test_the_end_is_within_a_week(clock: FakeClock) -> None:
    now = clock.now()
    assert invitations.read_end(None, now) == now + timedelta(hours=1)
    week = now + timedelta(days=7)
    assert invitations.read_end(to_text(week), now) == week
    late = to_text(week + timedelta(seconds=1))
    values: tuple[Any, ...] = (to_text(now), late, "tomorrow", 3, [], "2026-01-01")
    for value in values:
        with pytest.raises(InvalidInput, match="can't end at"):
            invitations.read_end(value, now)


def test_who_is_called_otherwise_is_refused_and_the_invitation_stays_good(
    db: Database, clock: FakeClock
) -> None:
    invitation = invite(db, clock, "lab-3")
    with pytest.raises(Conflict, match="for machine `lab-3`, not for `lab-4`"):
        accept(db, clock, invitation, "lab-4")
    assert accept(db, clock, invitation, host="lab-4").machine == "lab-3"

    machines.join(db, clock, HERE, RAY, machines.read("taken", {"address": "10.0.0.3"}), "bob")
    invitation = invite(db, clock)
    for name, error in (("taken", Conflict), ("a/b", InvalidInput), ("", InvalidInput)):
        with pytest.raises(error):
            accept(db, clock, invitation, host=name)
    assert accept(db, clock, invitation, "free").machine == "free"
    with pytest.raises(Conflict, match="was joined by `bob`"):
        invite(db, clock, "taken")


def test_what_a_machine_may_take_is_said_by_its_invitation(db: Database, clock: FakeClock) -> None:
    made = accept(db, clock, invite(db, clock, everybody=True))
    assert bearer(db, clock, made.token).token == machines.EVERYBODY


def test_invitations_go_with_their_machine_and_with_their_cluster(
    db: Database, clock: FakeClock
) -> None:
    named, unnamed = invite(db, clock, "lab-3"), invite(db, clock)
    machines.join(db, clock, HERE, RAY, machines.read("lab-3", {"address": "10.0.0.3"}), "ann")
    machines.remove(db, HERE, RAY, "lab-3")
    with pytest.raises(NotAuthenticated):
        bearer(db, clock, named)
    bearer(db, clock, unnamed)
    with db.write() as connection:
        store.drop(connection, HERE, RAY)
    with pytest.raises(NotAuthenticated):
        bearer(db, clock, unnamed)


def test_only_clusters_of_ray_have_invitations(db: Database, clock: FakeClock) -> None:
    ends_at = clock.now() + timedelta(hours=1)
    with pytest.raises(Conflict, match="engine `local`"):
        invitations.create(db, clock, HERE, "here", "", "ann", False, ends_at)
    with pytest.raises(NotFound):
        invitations.create(db, clock, HERE, "gone", "", "ann", False, ends_at)


def test_a_machine_that_could_not_join_tries_again_with_its_token(
    db: Database, clock: FakeClock
) -> None:
    made = accept(db, clock, invite(db, clock))
    machines.join(db, clock, HERE, RAY, machines.read("lab", {"address": "10.0.0.3"}), "ann")
    machines.remove(db, HERE, RAY, "lab", keep_token=True)
    assert machines.list_in(db, HERE) == []
    assert bearer(db, clock, made.token).subject == f"{HERE}/{RAY}/lab"
