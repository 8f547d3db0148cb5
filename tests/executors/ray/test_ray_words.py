"""What is asked of Ray, and what its numbers mean in our words."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.executors.executor import EngineRefused
from torchyard.executors.ray import bridge, bridge_program, engine, node_labels
from torchyard.shared.plan import LaunchPlan

OWN = {"start": True}


def plan(**changes: Any) -> LaunchPlan:
    texts = dict.fromkeys(
        ("attempt_id", "job", "workspace", "experiment", "command", "server_url"), "x"
    )
    return LaunchPlan(
        **{**texts, "attempt": 1, "report_token": "", "run_token": "", "scratch": "", **changes}
    )


def test_a_node_asks_for_its_size_and_for_the_cluster_s_own_resources() -> None:
    bundle = engine.resources(
        plan(
            cores=8,
            memory_bytes=10_000,
            gpus_per_node=2,
            engine_settings={**OWN, "resources": {"fast_disk": 1}},
        )
    )
    assert bundle == {"CPU": 8, "GPU": 2, "memory": 6000, "fast_disk": 1}
    assert engine.resources(plan(engine_settings=OWN)) == {"CPU": 1}
    with pytest.raises(EngineRefused, match=r"`resources\.fast_disk` must be a number"):
        engine.resources(plan(engine_settings={**OWN, "resources": {"fast_disk": "much"}}))


WAITING = {"group": "torchyard-s-a", "state": "PENDING", "for_s": 5.0, "most_nodes": 0}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"big_enough": 1, "free": 0}, "needs 4 machines of its size, and the Ray cluster has 1"),
        ({"big_enough": 1, "free": 0, "most_nodes": 3}, "autoscaler starts 3 at the most"),
        ({"big_enough": 9, "free": 2}, "needs 4 machines, and 2 are free"),
        ({"big_enough": 9, "free": 9}, "waits for Ray to place it"),
        ({"big_enough": 9, "free": 9, "for_s": 90.0}, "not placed it for 90 s, although"),
        ({"big_enough": 9, "free": 9, "for_s": 90.0, "state": "CREATED"}, "not started its nodes"),
    ],
)
def test_a_waiting_group_says_for_what(changes: dict[str, Any], reason: str) -> None:
    assert reason in engine._reason({**WAITING, "count": 4, **changes})


@pytest.mark.parametrize(
    ("found", "name"),
    [({node_labels.MACHINE: "lab-3"}, "lab-3"), ({}, "box"), ({"zone": "a"}, "box")],
)
def test_a_machine_that_joined_has_one_name(found: dict[str, str], name: str) -> None:
    node = {
        "address": "10.0.0.3",
        "host": "box",
        "total": {"CPU": 4.0},
        "available": {"CPU": 4.0},
        "labels": found,
        "draining": False,
        "users": [],
    }
    assert engine._engine_node(node).name == name


def test_machines_that_a_job_may_not_have_are_not_counted() -> None:
    waiting = {**WAITING, "count": 2, "big_enough": 1, "other_labels": 3, "free": 1}
    drained = engine._reason({**waiting, "unmet_labels": {node_labels.MACHINE: 3}}, True)
    assert "has 1, not counting 3 drained or without its labels: see `yard node list`" in drained
    mixed = engine._reason(
        {**waiting, "unmet_labels": {node_labels.OWNER: 1, node_labels.MACHINE: 3}}, True
    )
    assert (
        "has 1, not counting 1 that runs only the jobs of who joined it and 2 drained or without "
        "its labels: an owner of the server can join machines for everybody: `yard node join "
        "--runner`" in mixed
    )
    assert "has 1, not counting 3 without the labels" in engine._reason(waiting)


@pytest.mark.parametrize(
    ("selector", "is_chosen"),
    [
        ({}, True),
        ({"owner": "ann"}, True),
        ({"owner": "bob"}, False),
        ({"zone": "a"}, False),
        ({"owner": "in(bob,ann)"}, True),
        ({"owner": "in(bob)"}, False),
        ({"owner": "ann", "machine": "!in(lab-2, lab-3)"}, True),
        ({"owner": "ann", "machine": "!in(lab-1)"}, False),
        ({"machine": "!lab-1"}, False),
        ({"machine": "!lab-2", "zone": "!a"}, True),
    ],
)
def test_a_node_is_chosen_by_its_labels(selector: dict[str, str], is_chosen: bool) -> None:
    node = {"owner": "ann", "machine": "lab-1"}
    assert (bridge_program._unmet_labels(selector, node) == []) is is_chosen


def test_a_persons_jobs_go_to_their_machines_and_to_those_for_everybody() -> None:
    selector = node_labels.selector("ann", ["lab-2"])

    def takes(owner: str, machine: str) -> bool:
        node = {node_labels.OWNER: owner, node_labels.MACHINE: machine}
        return not bridge_program._unmet_labels(selector, node)

    assert takes("ann", "lab-1") and takes(node_labels.EVERYBODY, "lab-1")
    assert not takes("bob", "lab-1") and not takes("ann", "lab-2")
    # Nobody's name makes their machine one for everybody.
    assert node_labels.person_label(node_labels.EVERYBODY) != node_labels.EVERYBODY


@pytest.mark.parametrize(
    ("said", "is_stranger"),
    [
        ({}, False),
        # What a node says of itself, at its own address.
        ({"owner": node_labels.EVERYBODY}, True),
        ({"machine": "shared", "owner": node_labels.EVERYBODY}, True),
        ({"machine": "lab-2", "owner": "bob"}, True),
        ({"machine": "unheard-of"}, True),
        ({"machine": ""}, True),
        # What it says of another one's address, where it can't be called.
        ({"machine": "shared", "owner": node_labels.EVERYBODY, "address": "10.0.0.9"}, True),
        ({"called": "10.0.0.66"}, True),
        # One that joined by loopback is this machine, whichever of its addresses Ray takes.
        ({"machine": "here", "address": "127.0.0.1", "called": "127.0.0.1"}, False),
        ({"machine": "here"}, True),
        ({"node": "n2"}, True),
    ],
)
def test_a_node_is_the_machine_that_joined_with_its_token_or_is_told_nothing(
    said: dict[str, str], is_stranger: bool
) -> None:
    machines = {
        "lab-1": ["10.0.0.1", "ann"],
        "lab-2": ["10.0.0.2", "bob"],
        "shared": ["10.0.0.9", node_labels.EVERYBODY],
        "here": ["127.0.0.5", "ann"],
    }
    said = {"machine": "lab-1", "owner": "ann", "address": "10.0.0.1", **said}
    shown = {node_labels.MACHINE: said["machine"], node_labels.OWNER: said["owner"]}
    nodes = {"n1": {"address": said["address"], "labels": shown}}
    called = {"NodeID": said.get("node", "n1"), "IPAddress": said.get("called", "10.0.0.1")}
    assert bridge_program._is_stranger(called, nodes, machines) is is_stranger
    assert (bridge_program.OWNER, bridge_program.MACHINE) == (
        node_labels.OWNER,
        node_labels.MACHINE,
    )


@pytest.mark.parametrize("address", ["", "head", "head:0", "head:70000", "http://head:1", "a b:1"])
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    with pytest.raises(EngineRefused, match="`address`"):
        engine._address({"address": address})


def test_a_bridge_gets_neither_the_token_nor_anything_else_of_this_process() -> None:
    environ = {"PATH": "/bin", "TORCHYARD_TOKEN": "t", "RAY_AUTH_TOKEN": "t", "RAY_USE_TLS": "1"}
    environ["RAY_AUTH_TOKEN_PATH"] = "/elsewhere"
    variables = bridge.variables(environ)
    assert variables["RAY_USE_TLS"] == "1" and variables["PATH"] == "/bin"
    assert variables["RAY_AUTH_MODE"] == "disabled"  # until it is told one
    assert not {"t", "/elsewhere"} & set(variables.values())
