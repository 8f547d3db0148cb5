"""What counts as drift of a column, and what does not."""

from __future__ import annotations

import random
from typing import Any

import pytest

from torchyard.base.errors import InvalidInput
from torchyard.client.drift.columns import (
    CATEGORICAL,
    NUMERIC,
    Thresholds,
    compare,
    thresholds_from,
)


def normal(seed: int, count: int, mean: float = 0.0) -> list[float]:
    numbers = random.Random(seed)
    return [numbers.gauss(mean, 1) for _ in range(count)]


def reasons(result: Any) -> set[str]:
    return {each.statistic for each in result.reasons}


def test_a_shifted_column_has_drifted_and_an_equal_one_has_not() -> None:
    there = normal(1, 5000)
    shifted = compare("x", there, normal(2, 200, 1.0), Thresholds(), 2)
    assert (shifted.kind, shifted.result) == (NUMERIC, "drifted")
    assert {"psi", "ks_p_value"} <= reasons(shifted)
    assert shifted.statistics["psi"] > 0.25 and shifted.statistics["ks_p_value"] < 1e-9
    equal = compare("x", there, normal(3, 200), Thresholds(), 2)
    assert equal.result == "stable" and not equal.reasons
    assert equal.collected.count == 200 and equal.reference.count == 5000


def test_small_equal_samples_are_seldom_called_drifted() -> None:
    results = [
        compare("x", normal(2 * seed, 200), normal(2 * seed + 1, 40), Thresholds()).result
        for seed in range(200)
    ]
    assert results.count("drifted") <= 20


def test_a_small_shift_of_many_rows_is_moderate() -> None:
    moved = compare("x", normal(1, 20_000), normal(2, 20_000, 0.4), Thresholds())
    assert moved.result == "moderate" and 0.1 <= moved.statistics["psi"] < 0.25
    assert compare("x", normal(1, 20_000), normal(2, 20_000, 0.05), Thresholds()).result == "stable"


def test_text_of_a_csv_file_and_numbers_of_a_request_are_one_column() -> None:
    there = [f"{value:.3f}" for value in normal(1, 500)]
    assert compare("x", there, normal(2, 200), Thresholds()).kind == NUMERIC
    codes = ["1", "2"] * 100
    same = compare("x", codes, [1, 2.0] * 100, Thresholds(), kind=CATEGORICAL)
    assert (same.kind, same.result, same.new_categories) == (CATEGORICAL, "stable", ())


def test_new_categories_are_named() -> None:
    there = ["red", "green"] * 100
    result = compare("colour", there, ["red", "green", "blue", "blue"] * 25, Thresholds())
    assert result.result == "drifted" and result.new_categories == ("blue",)
    assert "new_categories" in reasons(result)
    assert result.statistics["new_categories"] == 0.5


def test_a_change_of_shares_is_drift() -> None:
    there = ["a"] * 500 + ["b"] * 500
    assert compare("x", there, ["a"] * 95 + ["b"] * 5, Thresholds()).result == "drifted"
    assert compare("x", there, ["a"] * 48 + ["b"] * 52, Thresholds()).result == "stable"
    assert compare("x", [True, False] * 50, [True, False] * 50, Thresholds()).kind == CATEGORICAL


def test_missing_values_are_drift() -> None:
    there = normal(1, 1000)
    result = compare("x", there, [*normal(2, 150), *[None] * 50], Thresholds())
    assert result.result == "drifted" and reasons(result) == {"missing"}
    assert (result.collected.missing, result.collected.missing_share) == (50, 0.25)
    comparison = compare("x", there, ["", "NaN", float("nan"), None] * 50, Thresholds())
    assert comparison.result == "drifted" and reasons(comparison) == {"missing"}


def test_values_beyond_the_range_are_drift() -> None:
    there = [number / 1000 for number in range(1000)]
    result = compare("x", there, [*there[::10], *[5.0] * 10], Thresholds())
    assert "out_of_range" in reasons(result) and result.result == "drifted"
    assert result.statistics["out_of_range"] == pytest.approx(10 / 110)


def test_a_constant_column_that_changes_has_drifted() -> None:
    assert compare("x", [1] * 100, [1] * 100, Thresholds()).result == "stable"
    changed = compare("x", [1] * 100, [0] * 100, Thresholds())
    assert changed.result == "drifted" and "normalized_wasserstein" not in changed.statistics


def test_text_in_a_column_of_numbers_is_drift() -> None:
    result = compare("x", normal(1, 200), ["low", "high"] * 50, Thresholds())
    assert result.result == "drifted" and reasons(result) == {"not_numeric"}


def test_few_values_give_no_statistics() -> None:
    result = compare("x", [1, *[None] * 99], [2, *[None] * 99], Thresholds())
    assert result.result == "unknown" and not result.statistics


def test_values_of_any_kind_are_compared() -> None:
    odd = [{"a": 1}, [1, 2], "\x1b[2J", "1e999", float("inf"), 10**400, True] * 10
    result = compare("x", odd, odd, Thresholds())
    assert (result.kind, result.result) == (CATEGORICAL, "stable")


def test_thresholds_are_checked() -> None:
    assert thresholds_from({"psi": 0.5}).psi == 0.5
    with pytest.raises(InvalidInput, match="not a threshold"):
        thresholds_from({"pis": 0.5})
    with pytest.raises(InvalidInput, match="above 0"):
        thresholds_from({"psi": float("nan")})
