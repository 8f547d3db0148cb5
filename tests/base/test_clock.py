"""Lengths of time that survive that somebody sets the clock."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from torchyard.base import clock
from torchyard.base.clock import FakeClock, Moment, SystemClock


def test_the_systems_moments_know_the_steady_clock() -> None:
    system = SystemClock()
    first, second = system.now(), system.now()
    assert isinstance(first, Moment) and first.tzinfo is timezone.utc
    assert abs((datetime.now(timezone.utc) - first).total_seconds()) < 5
    assert 0 <= clock.seconds_since(first, clock.steady_text(first), second) < 5


def test_seconds_are_those_of_the_steady_clock() -> None:
    fake = FakeClock()
    start = fake.now()
    text = clock.steady_text(start)
    fake.advance(7)
    fake.set_by(-3600)
    assert clock.seconds_since(start, text, fake.now()) == 7


def test_without_a_reading_of_the_same_boot_the_times_count() -> None:
    fake = FakeClock()
    start = fake.now()
    fake.advance(7)
    assert clock.seconds_since(start, "", fake.now()) == 7
    assert clock.seconds_since(start, "another 1.0", fake.now()) == 7
    elsewhere = datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert clock.steady_text(elsewhere) == ""
    assert clock.seconds_since(elsewhere, "fake 0.000", elsewhere + timedelta(seconds=9)) == 9
    assert clock.seconds_since(elsewhere, "", elsewhere - timedelta(seconds=9)) == 0
