"""Slurm's reasons for waiting in plain words."""

from __future__ import annotations

import pytest

from torchyard.executors.slurm import pending_reasons


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("Priority", "other jobs have a higher priority"),
        ("(Resources)", "its nodes are in use"),
        ("QOSMaxJobsPerUserLimit", "its QOS reached a limit of running jobs"),
        ("AssocGrpGRES", "all jobs of its account together reached a limit of GPUs"),
        ("AssocGrpCPUMinutesLimit", "all jobs of its account together reached a limit of core min"),
        ("QOSGrpNodeLimit", "all jobs of its QOS together reached a limit of nodes"),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-3]", "nodes that it names are not available"),
        ("PartitionTimeLimit", "its time limit is above the partition's"),
        ("InvalidAccount", "its account is not valid"),
        ("Job's account not permitted to use this partition (closed allows physics not lab)",
         "its account may not use the partition"),
        ("BeginTime", "its begin time has not come"),
        ("SomethingNew", "Slurm says SomethingNew"),
        ("", "Slurm has not considered it yet"),
    ],
)  # fmt: skip
def test_a_reason_is_a_sentence(reason: str, text: str) -> None:
    assert text in pending_reasons.text(reason)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("Priority", False),
        ("QOSMaxJobsPerUserLimit", False),
        ("PartitionNodeLimit", False),
        ("Dependency", False),
        ("PartitionTimeLimit", True),
        ("QOSMaxNodePerJobLimit", True),
        ("DependencyNeverSatisfied", True),
        ("Job's account not permitted to use this partition (x)", True),
    ],
)
def test_only_reasons_that_never_pass_are_hopeless(reason: str, expected: bool) -> None:
    assert pending_reasons.is_hopeless(reason) is expected
