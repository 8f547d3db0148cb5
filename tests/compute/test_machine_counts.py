"""The number of an engine's machines over time, on both databases and with a clock that stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.compute import actions, scaling
from torchyard.compute.machine_counts import MachineCounts
from torchyard.compute.types import Compute
from torchyard.executors.executor import EngineCluster, EngineNode, EngineUnreachable

HERE = "default"


class Engine:
    """Has `count` machines, and one that is lost; `asked` counts the questions."""

    def __init__(self) -> None:
        self.count = 0
        self.asked = 0
        self.unreachable = False

    def describe(
        self, engine: str, settings: Mapping[str, Any], max_age_s: float = 0.0
    ) -> EngineCluster:
        self.asked += 1
        if self.unreachable:
            raise EngineUnreachable("it does not answer")
        machines = [EngineNode(f"m{number}", "", "idle") for number in range(self.count)]
        return EngineCluster(engine, "", (*machines, EngineNode("lost", "", "down")), 4)


@pytest.fixture
def lab(db: Database, clock: FakeClock) -> Compute:
    document = {"name": "lab", "torchyard": {"engine": "ray", "start": True}}
    return actions.create(db, clock, HERE, document, engines=("local", "ray"))


def hold(db: Database, clock: FakeClock) -> None:
    with db.write() as connection:
        holding = actions.Holding(connection)
        assert holding.try_hold(HERE, "lab", 4, "one", clock.now()) == ""


def release(db: Database, clock: FakeClock) -> None:
    """The job's nodes, and what is left of them after their idle time."""
    with db.write() as connection:
        actions.release(connection, "one", clock.now())
    clock.advance(1000)
    scaling.resize_clusters(db, clock, lambda connection: {})


def test_from_zero_to_four_and_back(db: Database, clock: FakeClock, lab: Compute) -> None:
    engine = Engine()
    counts = MachineCounts(db, clock, engine)
    counts.record()
    assert engine.asked == 0  # nothing of it is in use
    hold(db, clock)
    for machines in (0, 1, 4, 4):
        engine.count = machines
        counts.record()
    release(db, clock)
    engine.count = 0
    MachineCounts(db, clock, engine).record()  # as the next server does
    seen = [(sample.machines, sample.current) for sample in actions.samples(db, lab)]
    assert seen == [(None, 4), (0, 4), (1, 4), (4, 4), (4, 4), (4, 0), (0, 0)]
    question_count = engine.asked
    counts.record()
    assert engine.asked == question_count
    assert [sample.reason for sample in actions.samples(db, lab)][2:4] == [
        "ray has 1 machine",
        "ray has 4 machines",
    ]


def test_an_engine_that_does_not_answer_changes_nothing(
    db: Database, clock: FakeClock, lab: Compute
) -> None:
    engine = Engine()
    engine.count, counts = 2, MachineCounts(db, clock, engine)
    hold(db, clock)
    counts.record()
    before = actions.samples(db, lab)
    engine.unreachable = True
    counts.record()
    assert actions.samples(db, lab) == before and before[-1].machines == 2


def test_an_engine_that_keeps_its_machines_is_asked_seldom(
    db: Database, clock: FakeClock, lab: Compute
) -> None:
    engine = Engine()
    engine.count, counts = 2, MachineCounts(db, clock, engine)
    hold(db, clock)
    counts.record()
    release(db, clock)
    for _ in range(5):
        counts.record()
    assert engine.asked == 1
