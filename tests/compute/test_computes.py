"""Clusters, their nodes and scaling, on both databases and with a clock that stands."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput, InvalidSpec, NotFound
from torchyard.compute import accounts, actions, nodes, scaling, sizes
from torchyard.compute.types import Compute

HERE = "default"


def cluster(db: Database, clock: FakeClock, **keys: Any) -> Compute:
    return actions.create(db, clock, HERE, {"name": "cpu", **keys})


def hold(db: Database, clock: FakeClock, attempt: str, count: int, **more: Any) -> str:
    with db.write() as connection:
        return actions.Holding(connection).try_hold(
            HERE, "cpu", count, attempt, clock.now(), **more
        )


def release(db: Database, clock: FakeClock, attempt: str) -> None:
    with db.write() as connection:
        actions.release(connection, attempt, clock.now())


def demand_of(
    nodes: dict[tuple[str, str], int], connection: Connection
) -> dict[tuple[str, str], int]:
    return nodes


def scale(db: Database, clock: FakeClock, target: int = 0) -> None:
    scaling.resize_clusters(db, clock, lambda connection: {(HERE, "cpu"): target})


def counts(db: Database) -> dict[str, int]:
    node_counts = actions.use(db, actions.get(db, HERE, "cpu")).counts
    return {state: count for state, count in node_counts.items() if count}


def test_from_zero_to_two_and_back(db: Database, clock: FakeClock) -> None:
    made = cluster(db, clock, max_instances=2, idle_time_before_scale_down=60)
    assert counts(db) == {}
    assert hold(db, clock, "one", 2) == ""
    assert counts(db) == {"running": 2}
    clock.advance(30)
    release(db, clock, "one")
    assert counts(db) == {"idle": 2}
    clock.advance(59)
    scale(db, clock)
    assert counts(db) == {"idle": 2}
    clock.advance(1)
    scale(db, clock)
    assert counts(db) == {}
    seen = [(sample.current, sample.running) for sample in actions.samples(db, made)]
    assert seen == [(2, 2), (2, 0), (0, 0)]
    usage = actions.usage(db, clock, made)
    assert [round(day.node_hours * 3600) for day in usage] == [2 * 90]
    assert [round(day.busy_hours * 3600) for day in usage] == [2 * 30]


def test_idle_nodes_come_before_new_ones(db: Database, clock: FakeClock) -> None:
    cluster(db, clock, max_instances=4)
    hold(db, clock, "one", 1)
    hold(db, clock, "two", 1)
    release(db, clock, "two")
    assert hold(db, clock, "three", 1) == ""
    with db.read() as connection:
        assert actions.slots_of(connection, "three") == [1]
        assert actions.available_nodes(connection, HERE, "cpu") == 2
    assert counts(db) == {"running": 2}


def test_a_job_gets_all_its_nodes_or_none(db: Database, clock: FakeClock) -> None:
    cluster(db, clock, max_instances=3)
    assert hold(db, clock, "one", 2) == ""
    assert hold(db, clock, "two", 2) == "needs 2 nodes; 2 of 3 nodes of `cpu` are busy"
    assert counts(db) == {"running": 2}


def test_the_minimum_is_made_at_once_and_stays(db: Database, clock: FakeClock) -> None:
    cluster(db, clock, min_instances=2, max_instances=3, idle_time_before_scale_down=10)
    assert counts(db) == {"idle": 2}
    hold(db, clock, "one", 3)
    release(db, clock, "one")
    clock.advance(1000)
    scale(db, clock)
    assert counts(db) == {"idle": 2}
    cluster(db, clock, min_instances=1, max_instances=3, idle_time_before_scale_down=10)
    clock.advance(10)
    scale(db, clock)
    assert counts(db) == {"idle": 1}


def test_nodes_that_a_waiting_job_could_use_stay(db: Database, clock: FakeClock) -> None:
    cluster(db, clock, max_instances=4, idle_time_before_scale_down=10)
    hold(db, clock, "one", 3)
    release(db, clock, "one")
    clock.advance(100)
    scale(db, clock, target=2)
    assert counts(db) == {"idle": 2}
    scale(db, clock)
    assert counts(db) == {}


def test_a_lowered_maximum_lets_nodes_leave_with_their_jobs(db: Database, clock: FakeClock) -> None:
    cluster(db, clock, max_instances=4)
    hold(db, clock, "low", 1)
    hold(db, clock, "high", 3)
    cluster(db, clock, max_instances=2)
    assert counts(db) == {"running": 2, "leaving": 2}
    use = actions.use(db, actions.get(db, HERE, "cpu"))
    assert (use.current, use.target) == (4, 2)
    assert "4 of 2 nodes" in hold(db, clock, "next", 1)
    release(db, clock, "low")
    assert counts(db) == {"running": 1, "leaving": 2}
    release(db, clock, "high")
    assert counts(db) == {"idle": 2}
    assert hold(db, clock, "next", 2) == ""


def test_avoided_nodes_are_taken_only_where_there_are_no_others(
    db: Database, clock: FakeClock
) -> None:
    cluster(db, clock, max_instances=3)
    assert hold(db, clock, "one", 2, avoided=[0]) == ""
    with db.read() as connection:
        assert actions.slots_of(connection, "one") == [1, 2]
    # Node 0 alone is free: who can wait for another does.
    assert hold(db, clock, "two", 1, avoided=[0]) != ""
    release(db, clock, "one")
    assert hold(db, clock, "two", 3, avoided=[0]) == ""


def test_preempted_nodes_are_counted_as_such(db: Database, clock: FakeClock) -> None:
    cluster(db, clock, max_instances=3)
    hold(db, clock, "low", 2)
    with db.write() as connection:
        actions.preempt(connection, "low")
    assert counts(db) == {"preempted": 2}
    release(db, clock, "low")
    assert counts(db) == {"idle": 2}
    hold(db, clock, "high", 2)
    assert counts(db) == {"running": 2}


def test_deleting_waits_for_the_last_node(db: Database, clock: FakeClock) -> None:
    cluster(db, clock, max_instances=3)
    hold(db, clock, "one", 2)
    with pytest.raises(Conflict, match="jobs hold 2 nodes"):
        actions.delete(db, clock, HERE, "cpu")
    assert not actions.delete(db, clock, HERE, "cpu", force=True)
    assert actions.get(db, HERE, "cpu").deleting
    assert hold(db, clock, "two", 1) == "compute `cpu` was deleted"
    with pytest.raises(Conflict, match="being deleted"):
        cluster(db, clock)
    clock.advance(3600)
    scale(db, clock)
    assert counts(db) == {"running": 2}
    release(db, clock, "one")
    scale(db, clock)
    with pytest.raises(NotFound):
        actions.get(db, HERE, "cpu")
    # What it has cost is kept.
    usage = actions.usage(db, clock, cluster(db, clock))
    assert [(day.node_hours, day.busy_hours) for day in usage] == [(2.0, 2.0)]


def test_the_size_stays_while_jobs_run(db: Database, clock: FakeClock) -> None:
    made = cluster(db, clock, size="STANDARD_D2_V2", min_instances=1)
    assert (made.cores, made.gpus, made.memory_bytes) == (2, 0, 7 << 30)
    hold(db, clock, "one", 1)
    with pytest.raises(Conflict, match="hold 1 nodes"):
        cluster(db, clock, size="Standard_NC6")
    cluster(db, clock, size="standard_d2_v2", max_instances=9)
    release(db, clock, "one")
    assert cluster(db, clock, size="Standard_NC6").gpus == 1


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"min_instances": 5}, "`min_instances` is 5"),
        ({"max_instances": 0}, "`max_instances` must be a whole number from 1"),
        (
            {"min_instances": -1},
            "`min_instances` must be a whole number from 0 to 100000, not `-1`",
        ),
        ({"max_instances": -2}, "must be a whole number"),
        ({"max_instances": 1.5}, "must be a whole number"),
        ({"max_instances": True}, "must be a whole number"),
        ({"max_instances": 10**7}, "from 1 to 100000, not `10000000`"),
        ({"idle_time_before_scale_down": 2**40}, "from 0 to 2147483647"),
        ({"size": "STANDARD_D2_V22"}, "there is no size `STANDARD_D2_V22`"),
        ({"size": 5}, "`size` must be text"),
        ({"engine": "slurm"}, "engine `slurm` is not served yet"),
        ({"engine": "lokal"}, "`lokal` is not an engine"),
        ({"tier": "spot"}, "`tier` is `spot`"),
        ({"type": "computeinstance"}, "`computeinstance` is not served"),
        ({"network_settings": {"vnet_name": "v"}}, "`network_settings` is not served"),
        ({"ssh_public_access_enabled": True}, "`ssh_public_access_enabled: true` is not served"),
        ({"max_instance": 3}, "unknown key `max_instance`"),
        ({"tags": [1]}, "`tags` must be a mapping"),
    ],
)
def test_wrong_documents_are_refused(
    db: Database, clock: FakeClock, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidSpec) as raised:
        cluster(db, clock, **keys)
    assert message in raised.value.message
    assert raised.value.at and raised.value.at[0] in ({*keys, "max_instances"})


def test_hints_name_the_nearest(db: Database, clock: FakeClock) -> None:
    for keys, hint in (
        ({"size": "STANDARD_D2_V22"}, "`Standard_D2_v2`"),
        ({"engine": "lokal"}, "`local`"),
        ({"max_instance": 3}, "`max_instances`"),
    ):
        with pytest.raises(InvalidSpec) as raised:
            cluster(db, clock, **keys)
        assert hint in raised.value.hint


def test_a_cluster_keeps_its_engine_unless_the_document_names_another(
    db: Database, clock: FakeClock
) -> None:
    def create(**keys: Any) -> Compute:
        document = {"name": "lab", **keys}
        return actions.create(db, clock, HERE, document, engines=("local", "ray"))

    create(torchyard={"engine": "ray", "start": True, "resources": {"disk": 1}})
    changed = create(max_instances=8)
    assert (changed.engine, changed.max_instances) == ("ray", 8)
    assert changed.engine_settings == {"start": True, "resources": {"disk": 1}}
    changed = create(torchyard={"resources": {"disk": 2}}, tags={"torchyard.labels": '{"a": "b"}'})
    assert changed.engine_settings == {
        "start": True,
        "resources": {"disk": 2},
        "labels": {"a": "b"},
    }
    changed = create(torchyard={"engine": "ray", "address": "head:6379"})
    assert changed.engine_settings == {"address": "head:6379"}
    assert create(engine="local").engine == "local"
    assert create().engine == "local"


@pytest.mark.parametrize(
    ("keys", "at"),
    [
        ({"torchyard": {"engine": "rya", "address": "head:6379"}}, ("torchyard", "engine")),
        ({"engine": "rya", "torchyard": {"address": "head:6379", "labells": 3}}, ("engine",)),
        (
            {"tags": {"torchyard.engine": "rya", "torchyard.address": "head:6379"}},
            ("tags", "torchyard.engine"),
        ),
    ],
)
def test_settings_of_an_engine_that_is_none_are_not_blamed(
    db: Database, clock: FakeClock, keys: dict[str, Any], at: tuple[str, ...]
) -> None:
    document = {"name": "lab", **keys, "max_instance": 3}
    with pytest.raises(InvalidSpec) as raised:
        actions.create(db, clock, HERE, document, engines=("local", "ray"))
    faults = [raised.value, *raised.value.others]
    assert sorted(fault.at for fault in faults) == sorted([at, ("max_instance",)])


def test_keys_that_are_satisfied_anyway(db: Database, clock: FakeClock) -> None:
    made = cluster(
        db, clock, ssh_public_access_enabled=False, enable_node_public_ip=False, location="westus",
        tier="LowPriority", type="AmlCompute", **{"$schema": "https://…"},
    )  # fmt: skip
    assert made.tier == "low_priority"


@pytest.mark.parametrize(
    "written",
    ["STANDARD_NC6S_V3", "Standard_NC6s_v3", "nc6s_v3", "NC6sv3", "standard nc6s v3", "Nc6s-V3"],
)
def test_sizes_in_any_spelling(written: str) -> None:
    size = sizes.find(written)
    assert (size.name, size.cores, size.gpus, size.gpu_kind) == (
        "Standard_NC6s_v3", 6, 1, "V100",
    )  # fmt: skip


def test_sizes_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "sizes.yml").write_text("box: {cores: 8, memory_gb: 32, gpus: 2, gpu_kind: X}\n")
    size = sizes.find("BOX", sizes.all_sizes(tmp_path))
    assert (size.cores, size.memory_bytes, size.gpus, size.custom) == (8, 32 << 30, 2, True)
    for text, message in (
        ("box: {core: 8}", "unknown key `core`"),
        ("box: {cores: 0, memory_gb: 1}", "`cores` of size `box`"),
        ("box: 3", "mapping"),
        ("- box", "must be a mapping of names"),
        ("Standard_NC6: {cores: 1, memory_gb: 1}", "one of Azure's sizes"),
        ("box: {", "can't be read"),
    ):
        (tmp_path / "sizes.yml").write_text(text)
        with pytest.raises(InvalidInput) as raised:
            sizes.all_sizes(tmp_path)
        assert message in raised.value.message


def test_use_over_midnight_is_split_by_day() -> None:
    start = datetime(2026, 2, 28, 23, 0, tzinfo=timezone.utc)
    assert list(accounts.by_day(start, start + timedelta(hours=26))) == [
        ("2026-02-28", 3600.0), ("2026-03-01", 86400.0), ("2026-03-02", 3600.0),
    ]  # fmt: skip


@given(
    maximum=st.integers(1, 12),
    busy=st.sets(st.integers(0, 15)),
    idle=st.sets(st.integers(0, 15)),
    avoided=st.sets(st.integers(0, 15)),
    count=st.integers(1, 14),
)
@settings(deadline=None)
def test_a_choice_never_passes_the_maximum(
    maximum: int, busy: set[int], idle: set[int], avoided: set[int], count: int
) -> None:
    compute = Compute("cpu", HERE, datetime.now(timezone.utc), max_instances=maximum)
    idle = {number for number in idle - busy if number < maximum}
    choice = nodes.choose(compute, sorted(idle), sorted(busy), count, avoided)
    if choice.why_not:
        return
    assert len(set(choice.numbers)) == count
    assert not set(choice.numbers) & busy and max(choice.numbers) < maximum
    assert len(busy) + count <= maximum
    made = set(choice.numbers) - idle
    assert not made or not (idle - set(choice.numbers) - avoided), "idle ones come first"


@pytest.mark.slow
@given(seed=st.integers(0, 10**9))
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_scaling_under_a_random_load(db: Database, clock: FakeClock, seed: int) -> None:
    """Never above the maximum, no node idle for long while a fitting job waits, back to min."""
    dice = random.Random(seed)
    name = f"cluster{seed}"
    maximum, least, idle_s = dice.randint(1, 6), dice.randint(0, 2), dice.choice([0, 5, 60])
    least = min(least, maximum)
    document = {
        "name": name, "max_instances": maximum, "min_instances": least,
        "idle_time_before_scale_down": idle_s,
    }  # fmt: skip
    made = actions.create(db, clock, HERE, document)
    queue = [(f"{seed}-{n}", dice.randint(1, maximum), dice.randint(1, 40)) for n in range(8)]
    running: list[tuple[str, datetime]] = []
    while queue or running:
        for attempt, until in list(running):
            if until <= clock.now():
                running.remove((attempt, until))
                release(db, clock, attempt)
        while queue:
            attempt, count, length_s = queue[0]
            with db.write() as connection:
                available = actions.available_nodes(connection, HERE, name)
                why = actions.Holding(connection).try_hold(HERE, name, count, attempt, clock.now())
            assert bool(why) == (available < count), "a job that fits is never left waiting"
            if why:
                break
            queue.pop(0)
            running.append((attempt, clock.now() + timedelta(seconds=length_s)))
        requested_nodes = sum(count for _, count, _ in queue)
        before = actions.use(db, made).counts["idle"]
        scaling.resize_clusters(db, clock, partial(demand_of, {(HERE, name): requested_nodes}))
        use = actions.use(db, made)
        assert use.current <= maximum
        assert use.current >= least
        assert use.counts["idle"] >= min(before, requested_nodes), "a node was taken from who waits"
        clock.advance(dice.randint(2, 15))
    clock.advance(idle_s)
    scaling.resize_clusters(db, clock, lambda connection: {})
    assert actions.use(db, made).current == least
    assert max(sample.current for sample in actions.samples(db, made)) <= maximum
    with db.write() as connection:
        actions.forget_all(connection, HERE)
