"""Which rank has another model than the others, by what DistributedDataParallel says."""

from __future__ import annotations

import pytest

from torchyard.worker.diagnosis import unlike_ranks


def error(own: int, has: int, other: int, others: int) -> tuple[int, str]:
    return own, (
        f"RuntimeError: DDP expects same model across all ranks, but Rank {own} has {has} params, "
        f"while rank {other} has inconsistent {others} params."
    )


@pytest.mark.parametrize(
    ("errors", "blamed"),
    [
        # Rank 0 compares itself with rank 1 before.
        ([error(0, 4, 2, 6)], 2),
        ([error(1, 4, 2, 6)], 2),
        ([error(3, 4, 1, 6)], 1),
        ([error(0, 4, 1, 6), error(2, 4, 1, 6)], 1),
        ([error(2, 6, 0, 4), error(1, 4, 2, 6)], 2),
        # Of two nobody knows who is right.
        ([error(0, 4, 1, 6)], None),
        ([error(1, 6, 0, 4)], None),
        ([error(0, 4, 1, 6), error(2, 6, 0, 4), error(3, 4, 1, 6)], None),
        ([error(0, 4, 2, 6), error(3, 8, 0, 4)], None),
        ([(1, "ValueError: x"), error(0, 4, 2, 6)], 2),
        # Ranks 1, 3 and 5 are a group of their own, which numbers them from 0.
        ([(1, error(0, 6, 1, 8)[1]), (3, error(1, 8, 0, 6)[1])], None),
        ([error(0, 6, 2, 8), (2, error(1, 6, 2, 8)[1])], None),
        ([error(0, 4, 2, 6), (1, error(0, 9, 1, 9)[1])], None),
    ],
)
def test_the_one_rank_with_another_model_is_found(
    errors: list[tuple[int, str]], blamed: int | None
) -> None:
    sentence = unlike_ranks.other_model(errors, errors[-1][1])
    assert bool(sentence) == (blamed is not None)
    assert sentence.startswith(f"rank {blamed} has " if sentence else "")


def test_only_an_error_of_that_kind_is_explained() -> None:
    assert not unlike_ranks.other_model([error(0, 4, 2, 6)], "ValueError: x")


def test_the_numbers_are_told() -> None:
    assert unlike_ranks.other_model([error(0, 4, 2, 6)], error(0, 4, 2, 6)[1]) == (
        "rank 2 has a model of 6 parameters (tensors) where the others have 4"
    )
