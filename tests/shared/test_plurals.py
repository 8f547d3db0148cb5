from __future__ import annotations

import pytest

from torchyard.shared.plurals import plural


@pytest.mark.parametrize(
    ("noun", "count", "expected"),
    [("node", 1, "node"), ("node", 0, "nodes"), ("GPU", 4, "GPUs"), ("process", 2, "processes")],
)
def test_a_noun_stands_in_the_plural_unless_there_is_one(
    noun: str, count: int, expected: str
) -> None:
    assert plural(noun, count) == expected
