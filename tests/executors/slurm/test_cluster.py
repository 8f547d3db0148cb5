"""Slurm's nodes in our words."""

from __future__ import annotations

import pytest

from torchyard.executors.slurm import cluster
from torchyard.executors.slurm.commands import fields_of


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,7],login", ["n1", "n2", "n3", "n7", "login"]),
        ("gpu[08-10]-ib", ["gpu08-ib", "gpu09-ib", "gpu10-ib"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("", []),
    ],
)
def test_lists_of_nodes_are_expanded(listed: str, names: list[str]) -> None:
    assert list(cluster.names_of(listed)) == names


def test_a_hostile_list_ends() -> None:
    assert len(list(cluster.names_of("n[0-999999999][0-999999999]"))) <= 100_000


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("IDLE", "idle"),
        ("MIXED", "running"),
        ("ALLOCATED+DRAIN", "draining"),
        ("IDLE+DRAIN", "draining"),
        ("DOWN*", "down"),
        ("IDLE*", "down"),
        ("IDLE+PLANNED", "idle"),
        ("IDLE+POWERED_DOWN", "idle"),
        ("ALLOCATED+POWERING_UP", "joining"),
    ],
)
def test_states_of_nodes(state: str, expected: str) -> None:
    assert cluster.state_of(state) == expected


def test_values_of_scontrol_may_have_spaces() -> None:
    fields = fields_of("NodeName=n1 State=DOWN Reason=Not responding [root@2026] CPUTot=4")
    assert fields["Reason"] == "Not responding [root@2026]"
    assert fields["CPUTot"] == "4"
