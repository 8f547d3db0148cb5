"""Every regular expression of the package takes time that grows with its text, and no faster.

A pattern that backtracks runs under Python's lock: one request with a text of 10 kB stopped the
whole server for seconds.
"""

from __future__ import annotations

import math
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from hostile_input import hostile_texts, regular_expressions
from hostile_input.hostile_texts import Make
from hostile_input.regular_expressions import Expression

SMALL, LARGE = 10_000, 100_000
# Seconds of processor time for the large text, and how many times that of the small one.
CEILING_S = 2.0
MOST_GROWTH = 40
# Shorter times say nothing of growth.
NOTICEABLE_S = 0.05
# What grows too fast does so each time; what a busy machine held up does not.
TRIES = 5


@pytest.fixture(scope="module")
def collected() -> tuple[list[Expression], list[str]]:
    return regular_expressions.collect()


def test_every_pattern_of_the_code_is_known(collected: tuple[list[Expression], list[str]]) -> None:
    expressions, unknown = collected
    assert unknown == [], "add where their patterns come from to regular_expressions.py"
    assert len(expressions) > 250


def test_a_pattern_that_backtracks_is_found() -> None:
    for pattern, searches in [
        (r"\$\{\{\s*(.*?)\s*\}\}", True),
        (r"(?:a+)+b", False),
        (r"a*a*b", False),
        (r".*x.*y.*z", False),
        (r"(?P<library>lib[\w.+-]+\.so[\w.]*): cannot open", True),
        (r"^(?P<type>[A-Za-z_][\w.]*?(?:Error|[A-Z]\w*))(?:: .*)?$", False),
        (r"(?:/(?:\\.|[^/])*/|[^,/])+", True),
    ]:
        expression = Expression("here", pattern, 0, searches)
        makes = hostile_texts.texts(pattern, 0)
        slow = (seconds(expression.compiled(), expression, make(SMALL), 0.1) for make in makes)
        assert any(time_s > NOTICEABLE_S for time_s in slow), pattern


def test_every_pattern_takes_linear_time(collected: tuple[list[Expression], list[str]]) -> None:
    complaints = []
    for expression in collected[0]:
        makes = hostile_texts.texts(expression.pattern, expression.flags)
        compiled = expression.compiled()
        # The text that takes longest at the small size is the one to try at the large one.
        times = [(seconds(compiled, expression, make(SMALL)), at) for at, make in enumerate(makes)]
        for _, at in sorted(times, reverse=True)[:1]:
            complaints.append(complaint(expression, makes[at]))
    assert [text for text in complaints if text] == []


@pytest.mark.long
def test_every_pattern_takes_linear_time_on_every_text(
    collected: tuple[list[Expression], list[str]],
) -> None:
    complaints = [
        complaint(expression, make)
        for expression in collected[0]
        for make in hostile_texts.texts(expression.pattern, expression.flags)
    ]
    assert [text for text in complaints if text] == []


def complaint(expression: Expression, make: Make, ceiling_s: float = CEILING_S) -> str:
    """What is wrong with a pattern on one kind of text, in each try; empty for nothing."""
    text = ""
    for attempt in range(TRIES):
        # Processor time is longer where another program shares the core.
        text = _complaint(expression, make, ceiling_s * (attempt + 1))
        if not text:
            break
    return text


def _complaint(expression: Expression, make: Make, ceiling_s: float) -> str:
    compiled = expression.compiled()
    large_s = seconds(compiled, expression, make(LARGE), ceiling_s)
    if large_s <= NOTICEABLE_S:
        return ""
    small_s = seconds(compiled, expression, make(SMALL), ceiling_s)
    if large_s <= max(NOTICEABLE_S, MOST_GROWTH * small_s) and math.isfinite(large_s):
        return ""
    return (
        f"{expression.place}: {expression.pattern!r} takes {small_s:.3f} s for {SMALL} and "
        f"{large_s:.3f} s for {LARGE} characters like {make(60)!r}"
    )


def seconds(
    compiled: re.Pattern[Any], expression: Expression, text: str, limit_s: float = CEILING_S
) -> float:
    """Processor time; infinite when it is interrupted."""
    subject: Any = text.encode() if isinstance(expression.pattern, bytes) else text
    started = time.thread_time()
    try:
        with limited(limit_s):
            if expression.searches:
                for _ in compiled.finditer(subject):
                    pass
            else:
                compiled.match(subject)
                compiled.fullmatch(subject)
    except TooLong:
        return float("inf")
    return time.thread_time() - started


class TooLong(Exception):
    pass


@contextmanager
def limited(limit_s: float) -> Iterator[None]:
    """Interrupt what takes longer; `re` looks for signals while it searches."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
