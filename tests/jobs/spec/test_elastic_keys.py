from __future__ import annotations

from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.jobs.spec import elastic, job_spec
from torchyard.jobs.spec.elastic import Elastic

JOB = {"command": "true", "environment": "python"}


def read(torchyard: Any, **changes: Any) -> job_spec.JobSpec:
    return job_spec.read({**JOB, "torchyard": torchyard, **changes})


def test_the_mapping_and_the_properties_mean_the_same() -> None:
    mapping = read({"min_nodes": 2, "max_nodes": 4, "grow_after": "90s"})
    properties = job_spec.read(
        {
            **JOB,
            "properties": {
                "torchyard.min_nodes": "2",
                "torchyard.max_nodes": "4",
                "torchyard.grow_after": "90s",
            },
        }
    )
    assert mapping.elastic == properties.elastic == Elastic(2, 4, 90.0)


def test_it_starts_with_all_nodes_unless_it_says_how_many() -> None:
    assert read({"max_nodes": 4}).instance_count == 4
    wished = read({"max_nodes": 4}, resources={"instance_count": 3})
    assert (wished.instance_count, wished.fewest_nodes, wished.most_nodes) == (3, 1, 4)


def test_an_ordinary_job_is_not_elastic() -> None:
    job = job_spec.read({**JOB, "resources": {"instance_count": 3}})
    assert (job.elastic, job.fewest_nodes, job.most_nodes) == (None, 3, 3)


@pytest.mark.parametrize(
    ("torchyard", "changes", "at", "message"),
    [
        ({"max_nodes": 0}, {}, ("properties", "torchyard.max_nodes"), "is `0`"),
        ({"max_nodes": 1.5}, {}, ("properties", "torchyard.max_nodes"), "is `1.5`"),
        ({"max_nodes": "many"}, {}, ("properties", "torchyard.max_nodes"), "is `many`"),
        ({"max_nodes": 10**9}, {}, ("properties", "torchyard.max_nodes"), "is `1000000000`"),
        ({"max_nodes": [2]}, {}, ("properties", "torchyard.max_nodes"), "is `[2]`"),
        ({"max_nodes": "nan"}, {}, ("properties", "torchyard.max_nodes"), "is `nan`"),
        ({"min_nodes": -1, "max_nodes": 2}, {}, ("properties", "torchyard.min_nodes"), "is `-1`"),
        (
            {"min_nodes": 3, "max_nodes": 2},
            {},
            ("properties", "torchyard.min_nodes"),
            "`torchyard.min_nodes` is 3, and `torchyard.max_nodes` is 2",
        ),
        ({"min_nodes": 2}, {}, ("properties", "torchyard.min_nodes"), "no `torchyard.max_nodes`"),
        ({"grow_after": "5m"}, {}, ("properties", "torchyard.grow_after"), "may change"),
        (
            {"max_nodes": 2, "grow_after": "soon"},
            {},
            ("properties", "torchyard.grow_after"),
            "is `soon`",
        ),
        (
            {"max_nodes": 2, "grow_after": "8d"},
            {},
            ("properties", "torchyard.grow_after"),
            "is `8d`",
        ),
        (
            {"min_nodes": 2, "max_nodes": 4},
            {"resources": {"instance_count": 5}},
            ("resources", "instance_count"),
            "`instance_count` is 5, and the job has 2 to 4 nodes",
        ),
        (
            {"min_nodes": 2, "max_nodes": 4},
            {"resources": {"instance_count": 1}},
            ("resources", "instance_count"),
            "`instance_count` is 1",
        ),
        (
            {"max_nodes": 2},
            {"distribution": {"type": "tensorflow"}},
            ("properties", "torchyard.max_nodes"),
            "fixed number of tasks",
        ),
    ],
)
def test_what_is_wrong_is_named(
    torchyard: Any, changes: Any, at: tuple[str, str], message: str
) -> None:
    with pytest.raises(InvalidSpec) as error:
        read(torchyard, **changes)
    assert tuple(error.value.at) == at
    assert message in error.value.message
    assert error.value.hint


def test_a_long_value_is_cut() -> None:
    with pytest.raises(InvalidSpec) as error:
        read({"max_nodes": "9" * 100_000})
    assert len(error.value.message) < 200


def test_the_default_pause_is_read() -> None:
    sizes = elastic.read({"torchyard.max_nodes": "3"})
    assert sizes == Elastic(1, 3, 300.0)
