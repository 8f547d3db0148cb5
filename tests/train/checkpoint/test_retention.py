"""Which checkpoints are kept."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.train.checkpoint import CheckpointError, Retention

pytestmark = pytest.mark.torch

METRICS = {10: 0.5, 20: 0.3, 30: 0.9, 40: None, 50: 0.4}


@pytest.mark.parametrize(
    ("rule", "expired"),
    [
        (Retention(), ()),
        (Retention(last=2), (10, 20, 30)),
        (Retention(every=20), (10, 30)),
        (Retention(last=1, every=30), (10, 20, 40)),
        (Retention(best=2), (10, 30, 40)),
        (Retention(best=1, mode="max"), (10, 20, 40)),
        (Retention(last=9), ()),
    ],
)
def test_what_no_rule_keeps_is_deleted_and_the_newest_stays(
    rule: Retention, expired: tuple[int, ...]
) -> None:
    assert rule.expired(METRICS) == expired


def test_a_metric_that_is_nan_is_never_the_best() -> None:
    assert Retention(best=1).expired({1: float("nan"), 2: 0.5, 3: 0.7}) == (1,)


@pytest.mark.parametrize(
    ("rule", "message"),
    [({"last": 0}, "`keep_last`"), ({"every": -5}, "`keep_every`"), ({"mode": "low"}, "`best`")],
)
def test_a_rule_that_makes_no_sense_is_named(rule: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        Retention(**rule)
