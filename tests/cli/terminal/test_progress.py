"""The bar of an upload or a download."""

from __future__ import annotations

import pytest

from torchyard.base.clock import FakeClock
from torchyard.cli.terminal.progress import Progress


@pytest.fixture
def now() -> FakeClock:
    return FakeClock()


def bar_at(now: FakeClock) -> Progress:
    return Progress("Uploading", lambda: now.now().timestamp())


def test_a_short_transfer_shows_no_bar(now: FakeClock, capsys: pytest.CaptureFixture[str]) -> None:
    bar = bar_at(now)
    now.advance(0.2)
    bar.sent(5_000_000, 10_000_000)
    bar.close()
    assert capsys.readouterr().err == ""


def test_a_bar_says_how_much_how_fast_and_how_long(
    now: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = bar_at(now)
    bar.total(150_000_000)
    now.advance(10.0)
    bar.add(1_000_000)
    bar.add(9_000_000)
    now.advance(10.0)
    bar.add(10_000_000)
    # Click leaves out the code that erases the line: this is not a terminal.
    first, second = capsys.readouterr().err.split("\r")[1:]
    assert first == f"Uploading [{'-' * 20}] 1.0 MB of 150 MB, 100 kB/s, 24:50 left"
    assert second == f"Uploading [##{'-' * 18}] 20.0 MB of 150 MB, 1.0 MB/s, 2:10 left"
    bar.close()
    assert capsys.readouterr().err == "\r"


def test_a_new_total_starts_over(now: FakeClock, capsys: pytest.CaptureFixture[str]) -> None:
    bar = bar_at(now)
    now.advance(100.0)
    bar.sent(1_000_000, 2_000_000)
    now.advance(1.0)
    bar.sent(4_000_000, 8_000_000)
    now.advance(1.0)
    bar.sent(4_000_000, 8_000_000)
    assert "4.0 MB of 8.0 MB, 4.0 MB/s" in capsys.readouterr().err
