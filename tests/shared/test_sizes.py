"""Sizes as people read them."""

from __future__ import annotations

import pytest

from torchyard.shared.sizes import size_text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1_449_999, "1.4 MB"),
        (99_960_000, "100 MB"),
        (999_600_000, "1.0 GB"),
        (67_400_000_000, "67.4 GB"),
        (2_500_000_000_000_000, "2,500 TB"),
    ],
)
def test_a_size_is_in_powers_of_a_thousand(count: int, text: str) -> None:
    assert size_text(count) == text
