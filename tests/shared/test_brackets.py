"""What stands between brackets, however many are opened."""

from __future__ import annotations

import time

from torchyard.shared import brackets


def test_contents_and_replacements() -> None:
    text = "a ${{ x }} b ${{y}}}} ${{ z"
    assert list(brackets.contents(text, "${{", "}}")) == [" x ", "y"]
    assert brackets.replaced(text, "${{", "}}", lambda part: f"<{part}>") == "a < x > b <y>}} ${{ z"
    assert not brackets.is_closed(text, "${{", "}}")
    assert brackets.is_closed("${{ ${{ }} }}", "${{", "}}")


def test_many_open_brackets_take_no_longer() -> None:
    started = time.thread_time()
    for text in ("${{" * 100_000, "${{" + " " * 300_000, "${{a}}" * 50_000):
        list(brackets.contents(text, "${{", "}}"))
        brackets.replaced(text, "${{", "}}", str.upper)
    assert time.thread_time() - started < 1
