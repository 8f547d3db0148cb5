"""Each sample of an epoch once, whatever the number of ranks was meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchyard.train import Batches
from torchyard.train.checkpoint.errors import CheckpointError
from train import training_ranks
from train.batch_ranks import SAMPLES

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]


@pytest.mark.parametrize("rule", [{"total": 8}, {"per_rank": 4}])
def test_every_sample_is_had_once_over_changes_of_the_ranks(
    tmp_path: Path, rule: dict[str, int]
) -> None:
    seen: list[list[int]] = [[], []]
    sizes: list[set[int]] = []
    for ranks, until in ((2, 3), (1, 8), (3, None)):
        answers = training_ranks.run(
            "train.batch_ranks:train_some", ranks, str(tmp_path), rule, until
        )
        first_epoch = [[len(batch) for batch in answer[0]] for answer in answers]
        sizes.append({sum(each) for each in zip(*first_epoch, strict=True)})
        for answer in answers:
            for epoch in (0, 1):
                seen[epoch] += [sample for batch in answer[epoch] for sample in batch]
    left_out = [sorted(set(range(SAMPLES)) - set(samples)) for samples in seen]
    assert [len(samples) for samples in seen] == [len(set(samples)) for samples in seen]
    # Fewer than one for each of three ranks at the end of an epoch.
    assert all(len(samples) < 3 for samples in left_out)
    # The last step of an epoch has what is left.
    if rule == {"total": 8}:
        assert sizes[:2] == [{8}, {8}] and 8 in sizes[2]
    else:
        assert sizes[:2] == [{8}, {4}] and 12 in sizes[2]


def test_one_order_for_each_epoch() -> None:
    batches = Batches(range(10), total=4, seed=1)
    orders = []
    for epoch in (0, 1, 0):
        batches.set_epoch(epoch)
        orders.append([sample for batch in batches for sample in batch])
    assert orders[0] == orders[2] != orders[1]
    assert sorted(orders[0]) == list(range(10))


def test_its_length_is_what_is_left() -> None:
    batches = Batches(range(10), per_rank=4, shuffle=False)
    assert (len(batches), list(batches)[-1]) == (3, [8, 9])
    batches.set_position(4)
    assert (len(batches), len(list(batches))) == (2, 2)
    batches.set_position(batches.after_step(8))
    assert (len(batches), list(batches)) == (0, [])


@pytest.mark.parametrize(
    "rule", [{}, {"total": 8, "per_rank": 4}, {"total": 0}, {"per_rank": -1}, {"total": 2.5}]
)
def test_a_rule_that_says_nothing_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="one of `total` and `per_rank`"):
        Batches(range(10), **rule)
