"""Times as Slurm writes them."""

from __future__ import annotations

import pytest

from torchyard.executors.slurm.durations import UNLIMITED, seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 5400.0),
        ("30:00", 1800.0),
        ("2:00:00", 7200.0),
        ("1-12", 129600.0),
        ("1-12:30", 131400.0),
        ("2-00:00:01", 172801.0),
        ("UNLIMITED", UNLIMITED),
        ("", 0.0),
        ("soon", 0.0),
        ("1-2-3", 0.0),
    ],
)
def test_times_in_all_of_slurms_forms(text: str, expected: float) -> None:
    assert seconds(text) == expected
