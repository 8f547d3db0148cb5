"""What stands between brackets, however many are opened."""

from __future__ import annotations

from functools import partial
from typing import Any

import steps
from torchyard.shared import brackets


def test_contents_and_replacements() -> None:
    text = "a ${{ x }} b ${{y}}}} ${{ z"
    assert list(brackets.contents(text, "${{", "}}")) == [" x ", "y"]
    assert brackets.replaced(text, "${{", "}}", lambda part: f"<{part}>") == "a < x > b <y>}} ${{ z"
    assert not brackets.is_closed(text, "${{", "}}")
    assert brackets.is_closed("${{ ${{ }} }}", "${{", "}}")


class _Counted(str):
    """Counts the characters that are searched."""

    searched = 0

    def find(self, *arguments: Any) -> int:
        index = super().find(*arguments)
        self.searched += (len(self) if index < 0 else index) - arguments[1]
        return index


def _all_contents(text: str) -> list[str]:
    return list(brackets.contents(text, "${{", "}}"))


def test_many_open_brackets_take_no_longer() -> None:
    for text in ("${{" * 100_000, "${{" + " " * 300_000, "${{a}}" * 50_000):
        counted = _Counted(text)
        steps.at_most(2_000_000, partial(_all_contents, counted))
        assert counted.searched <= 3 * len(text), "it is searched again for each bracket"
        steps.at_most(2_000_000, partial(brackets.replaced, text, "${{", "}}", str.upper))
