"""How often a job file has the worker sample."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.jobs.spec import own_properties, system_metrics


def interval_s(written: Any) -> float:
    """Of a job file with this below `torchyard: {system_metrics: …}`."""
    job = own_properties.with_mapping({"torchyard": {"system_metrics": written}})
    own_properties.check(job["properties"])
    return system_metrics.interval_s(job["properties"])


def test_every_ten_seconds_by_default() -> None:
    assert system_metrics.interval_s({}) == 10


@pytest.mark.parametrize(
    ("written", "seconds"),
    [({"interval": "5s"}, 5), ({"interval": "2m"}, 120), ({"interval": 1}, 1), (True, 10)],
)
def test_the_interval_is_a_time(written: Any, seconds: float) -> None:
    assert interval_s(written) == seconds


def test_false_turns_it_off() -> None:
    assert interval_s(False) == 0
    # As Azure's clients carry it.
    assert system_metrics.interval_s({"torchyard.system_metrics": "False"}) == 0


@pytest.mark.parametrize("written", [{"interval": "0.5s"}, {"interval": "2d"}, {"interval": "x"}])
def test_an_interval_out_of_range_is_refused(written: Any) -> None:
    with pytest.raises(InvalidSpec, match=r"system_metrics\.interval` is") as refused:
        interval_s(written)
    assert refused.value.hint == "a time from `1s` to `1d`, as `5s` or `1m`"


def test_a_time_in_the_wrong_place_is_refused_with_the_right_one() -> None:
    with pytest.raises(InvalidSpec) as refused:
        interval_s("5s")
    assert "system_metrics: {interval: 5s}" in refused.value.hint


def test_a_slip_of_the_pen_is_refused() -> None:
    with pytest.raises(InvalidSpec) as refused:
        interval_s({"intervall": "5s"})
    assert refused.value.hint == "did you mean `torchyard.system_metrics.interval`?"
