"""Which jobs have nodes that keep copies of each other's checkpoints."""

from __future__ import annotations

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.jobs.spec import job_spec, own_properties

PROPERTY = "torchyard.checkpoint.peer_copies"


@pytest.mark.parametrize(
    ("properties", "is_kept"),
    [({}, True), ({PROPERTY: "False"}, False), ({PROPERTY: "true"}, True)],
)
def test_they_are_kept_unless_it_is_turned_off(properties: dict[str, str], is_kept: bool) -> None:
    assert own_properties.keeps_peer_copies(properties) is is_kept


@pytest.mark.parametrize("written", ["no", 0, "", "n1"])
def test_another_value_is_refused_in_place(written: object) -> None:
    job = {"command": "true", "torchyard": {"checkpoint": {"peer_copies": written}}}
    with pytest.raises(InvalidSpec, match=r"`torchyard\.checkpoint\.peer_copies` is") as error:
        job_spec.read({**job, "environment": {"pip_requirements": []}})
    assert error.value.hint == "true or false"
