"""Machines that people join to clusters, on both databases and with a clock that stands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, Forbidden, InvalidInput, NotAuthenticated, NotFound
from torchyard.compute import machines, store
from torchyard.compute.types import Compute, JoinedMachine
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces.types import Identity, TokenKind

HERE = "default"
FACTS = {"cpus": 8, "memory_bytes": 1 << 34, "gpus": 1, "gpu_kind": "T4", "hostname": "lab-3"}


@pytest.fixture
def ray(db: Database, clock: FakeClock) -> str:
    """A cluster that machines can join."""
    with db.write() as connection:
        store.put(connection, Compute("machines", HERE, clock.now(), engine="ray"))
        store.put(connection, Compute("here", HERE, clock.now()))
    return "machines"


def said(name: str = "lab-3", **more: Any) -> machines.Join:
    return machines.read(name, {"address": "10.0.0.3", "facts": FACTS, **more})


def join(
    db: Database, clock: FakeClock, compute: str, person: str = "ann", **more: Any
) -> JoinedMachine:
    return machines.join(db, clock, HERE, compute, said(**more), person)


def test_a_machine_joins_reports_is_drained_and_leaves(
    db: Database, clock: FakeClock, ray: str
) -> None:
    joined = join(db, clock, ray)
    assert joined.state(clock.now()) == "joining"
    assert joined.facts["cpus"] == 8 and joined.facts["version"] == ""
    clock.advance(20)
    moved = said(address="10.0.0.9")
    machines.report(db, clock, HERE, ray, moved, "ann")
    assert machines.list_in(db, HERE)[0].state(clock.now()) == "joined"
    machines.drain(db, HERE, ray, "lab-3")
    (listed,) = machines.list_in(db, HERE)
    assert (listed.address, listed.state(clock.now())) == ("10.0.0.9", "draining")
    # It comes back as it was, with the time of its first joining.
    clock.advance(60)
    assert machines.list_in(db, HERE)[0].state(clock.now()) == "away"
    assert join(db, clock, ray) == replace(joined, draining=True, seen_at=clock.now())
    machines.drain(db, HERE, ray, "lab-3", draining=False)
    machines.remove(db, HERE, ray, "lab-3")
    assert machines.list_in(db, HERE) == []
    with pytest.raises(NotFound) as refused:
        machines.report(db, clock, HERE, ray, said(), "ann")
    assert refused.value.code == "machine_not_found"


def test_a_machine_that_never_reports_is_joining_for_half_an_hour(
    db: Database, clock: FakeClock, ray: str
) -> None:
    joined = join(db, clock, ray)
    clock.advance(29 * 60)  # it installs Ray
    assert joined.state(clock.now()) == "joining"
    clock.advance(60)
    assert joined.state(clock.now()) == "away"


def test_a_machine_is_its_owners(db: Database, clock: FakeClock, ray: str) -> None:
    join(db, clock, ray)
    with pytest.raises(Conflict, match="was joined by `ann`"):
        join(db, clock, ray, "bob")
    with pytest.raises(Forbidden):
        machines.report(db, clock, HERE, ray, said(), "bob")


def test_only_clusters_of_ray_are_joined(db: Database, clock: FakeClock, ray: str) -> None:
    with pytest.raises(Conflict, match="engine `local`"):
        join(db, clock, "here")
    with pytest.raises(NotFound, match="`nowhere` does not exist"):
        join(db, clock, "nowhere")
    join(db, clock, ray)
    with pytest.raises(NotFound) as refused:
        machines.drain(db, HERE, ray, "lab-4")
    assert "lab-3" in refused.value.hint


def test_a_deleted_cluster_forgets_its_machines(db: Database, clock: FakeClock, ray: str) -> None:
    join(db, clock, ray)
    with db.write() as connection:
        store.drop(connection, HERE, ray)
    assert machines.list_in(db, HERE) == []


@pytest.mark.parametrize(
    "name, body",
    [
        ("-lab", {}),
        ("lab/3", {}),
        ("x" * 64, {}),
        ("", {}),
        ("lab", {"address": "evil --block"}),
        ("lab", {"address": 3}),
        ("lab", {"facts": {"cpus": -1}}),
        ("lab", {"facts": {"gpus": True}}),
        ("lab", {"facts": {"memory_bytes": 1 << 70}}),
        ("lab", {"facts": {"runner": 1}}),
        ("lab", {"facts": "x"}),
    ],
)
def test_what_is_no_machine_is_refused(name: str, body: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        machines.read(name, {"address": "10.0.0.3", **body})


def identity_of(db: Database, clock: FakeClock, token: str) -> Identity | None:
    try:
        return workspaces.authenticate(db, clock, token, HERE)
    except NotAuthenticated:
        return None


def test_a_token_of_a_machine_ends_with_it(db: Database, clock: FakeClock, ray: str) -> None:
    tokens = {
        name: machines.new_token(db, clock, HERE, ray, name, "ann")[0]
        for name in ("lab-3", "lab-4", "lab-5")
    }
    identity = identity_of(db, clock, tokens["lab-3"])
    assert identity is not None
    assert (identity.user, identity.kind, identity.subject) == (
        "ann",
        TokenKind.MACHINE,
        f"{HERE}/{ray}/lab-3",
    )
    second, _ = machines.new_token(db, clock, HERE, ray, "lab-3", "ann")
    assert identity_of(db, clock, tokens["lab-3"]) is None

    join(db, clock, ray)
    machines.remove(db, HERE, ray, "lab-3")
    assert identity_of(db, clock, second) is None
    machines.drop_token(db, HERE, ray, "lab-4")
    assert identity_of(db, clock, tokens["lab-4"]) is None
    assert identity_of(db, clock, tokens["lab-5"]) is not None
    with db.write() as connection:
        store.drop(connection, HERE, ray)
    assert identity_of(db, clock, tokens["lab-5"]) is None


def test_a_token_is_made_only_where_its_machine_may_join(
    db: Database, clock: FakeClock, ray: str
) -> None:
    join(db, clock, ray)
    with pytest.raises(Conflict, match="was joined by `ann`"):
        machines.new_token(db, clock, HERE, ray, "lab-3", "bob")
    with pytest.raises(Conflict, match="engine `local`"):
        machines.new_token(db, clock, HERE, "here", "lab-3", "ann")
    with pytest.raises(NotFound, match="does not exist"):
        machines.new_token(db, clock, HERE, "gone", "lab-3", "ann")
    with pytest.raises(InvalidInput, match="not a machine's name"):
        machines.new_token(db, clock, HERE, ray, "Lab 3", "ann")
