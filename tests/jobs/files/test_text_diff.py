"""Two texts compared line by line."""

from __future__ import annotations

import random

import pytest

import steps
from torchyard.jobs.files.text_diff import MOST_CHANGES, Line, changed_lines, hunks


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("", "", ""),
        ("ab", "ab", " a b"),
        ("", "a", "+a"),
        ("a", "", "-a"),
        ("abc", "axc", " a-b+x c"),
        ("abcabba", "cbabac", "-a-b c+b a b-b a+c"),
    ],
)
def test_a_change_has_the_fewest_lines(old: str, new: str, lines: str) -> None:
    assert "".join(sign + text for sign, text in changed_lines(old, new)) == lines


def test_both_texts_can_be_read_from_it() -> None:
    draw = random.Random(7)
    for _ in range(300):
        old, new = ([draw.choice("abc") for _ in range(draw.randrange(12))] for _ in range(2))
        lines = changed_lines(old, new)
        assert [text for sign, text in lines if sign != "+"] == old
        assert [text for sign, text in lines if sign != "-"] == new


def test_a_hunk_has_three_lines_around_each_change_and_the_numbers_of_its_first() -> None:
    old = [str(number) for number in range(1, 31)]
    new = ["0", *old[:19], "twenty", *old[20:]]
    first, second = hunks(old, new)
    assert (first.old_start, first.new_start) == (1, 1)
    assert first.lines == [("+", "0"), (" ", "1"), (" ", "2"), (" ", "3")]
    assert (second.old_start, second.new_start) == (17, 18)
    assert [sign for sign, _ in second.lines] == list("   -+   ")


def test_texts_that_have_little_in_common_take_no_longer_than_their_length_allows() -> None:
    draw = random.Random(3)
    old, new = ([draw.choice("ab") for _ in range(10_000)] for _ in range(2))
    made = list[list[Line]]()
    steps.at_most(5_000_000, lambda: made.append(changed_lines(old, new)))
    (lines,) = made
    assert sum(sign != " " for sign, _ in lines) > MOST_CHANGES
    assert [text for sign, text in lines if sign != "-"] == new
