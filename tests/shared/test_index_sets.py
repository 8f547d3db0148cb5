"""Which items of a list are asked for, in a URL."""

from __future__ import annotations

import base64
import random
import zlib

import pytest

from torchyard.shared import index_sets


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 20_000])
def test_what_is_encoded_is_decoded(length: int) -> None:
    source = random.Random(59)
    for indexes in ([], range(length), source.sample(range(length), length // 3)):
        word = index_sets.encode(indexes, length)
        assert index_sets.decode(word, length) == frozenset(indexes)
        assert all(character.isalnum() or character in "-_" for character in word)


def test_half_of_a_list_in_runs_is_short() -> None:
    indexes = [index for index in range(20_000) if index // 100 % 2]
    assert len(index_sets.encode(indexes, 20_000)) < 200


@pytest.mark.parametrize(
    "word",
    ["", "x", "ä", "not base64!", "AAAA", index_sets.encode([3], 80)[:-3],
     index_sets.encode([3], 88), index_sets.encode([3], 72),
     base64.urlsafe_b64encode(zlib.compress(bytes(100_000_000))).decode()],
    ids=["empty", "one", "letter", "spaces", "not zlib", "cut off", "longer", "shorter", "huge"],
)  # fmt: skip
def test_a_word_that_is_none_of_the_list_is_refused(word: str) -> None:
    with pytest.raises(ValueError):
        index_sets.decode(word, 80)
