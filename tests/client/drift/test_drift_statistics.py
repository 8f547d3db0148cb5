"""The definitions, against values worked out by hand and those of the formulas in plain Python that
scipy's took the place of.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats

from torchyard.client.drift import statistics
from torchyard.client.drift.columns import Thresholds, compare
from torchyard.client.drift.statistics import Numbers


def normal(seed: int, count: int, mean: float = 0.0, digits: int = 15) -> list[float]:
    numbers = random.Random(seed)
    return [round(numbers.gauss(mean, 1), digits) for _ in range(count)]


def words(seed: int, count: int, names: str, weights: list[int]) -> list[str]:
    return random.Random(seed).choices(names, weights, k=count)


def array(*values: float) -> Numbers:
    return np.array(values, dtype=float)


def test_psi_is_the_sum_written_out() -> None:
    expected = 0.1 * math.log(0.6 / 0.5) + -0.1 * math.log(0.4 / 0.5)
    index = statistics.population_stability_index(array(0.5, 0.5), array(0.6, 0.4))
    assert index == pytest.approx(expected) == pytest.approx(0.0405465, abs=1e-6)
    equal = array(0.2, 0.8, 0)
    assert statistics.population_stability_index(equal, equal) == 0


def test_an_empty_bin_counts_as_the_smallest_share() -> None:
    index = statistics.population_stability_index(array(0.5, 0.5), array(0.0, 1.0))
    assert index == pytest.approx((1e-4 - 0.5) * math.log(1e-4 / 0.5) + 0.5 * math.log(2))


def test_jensen_shannon_is_between_0_and_1() -> None:
    assert statistics.jensen_shannon_distance(array(1, 0), array(0, 1)) == pytest.approx(1)
    assert statistics.jensen_shannon_distance(array(0.3, 0.7), array(0.3, 0.7)) == 0


def test_distances_of_two_small_samples() -> None:
    there, other = array(0, 0, 1, 2), array(1, 3)
    distance, p_value = statistics.kolmogorov_smirnov(there, other)
    x = 0.5 * math.sqrt(4 * 2 / 6)
    limit = 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * x) ** 2) for k in range(1, 20))
    assert distance == 0.5 and p_value == pytest.approx(limit, rel=1e-12)
    assert statistics.wasserstein_distance(there, other) == pytest.approx(1.25)
    assert statistics.standard_deviation(array(1, 3)) == 1
    assert statistics.standard_deviation(array(*[0.1] * 99)) == 0


def test_rare_categories_are_counted_as_one() -> None:
    there = {"a": 100, "b": 100, **{f"r{n}": 2 for n in range(10)}}
    other = {"a": 100, "b": 100, **{f"s{n}": 2 for n in range(10)}}
    assert statistics.chi_squared(there, other) == (0.0, 1.0)
    assert statistics.chi_squared({"a": 9}, {"a": 90}) == (0.0, 1.0)
    # Two by two, without Yates' correction: 200 (60·70 - 40·30)² / (100·100·90·110).
    statistic, p_value = statistics.chi_squared({"a": 60, "b": 40}, {"a": 30, "b": 70})
    assert statistic == pytest.approx(200 / 11)
    assert p_value == pytest.approx(math.erfc(math.sqrt(statistic / 2)))


def test_bins_hold_about_a_tenth_each() -> None:
    there = np.sort(normal(5, 1000))
    edges = statistics.bin_edges(there)
    assert statistics.shares(there, edges) == pytest.approx([0.1] * 10)
    assert sum(statistics.shares(np.sort(normal(6, 77, 2)), edges)) == pytest.approx(1)


def test_few_values_are_bins_of_their_own() -> None:
    there = array(*[0.0] * 6, *[1.0] * 4)
    edges = statistics.bin_edges(there)
    assert statistics.shares(there, edges).tolist() == [0, 0.6, 0, 0.4, 0]
    other = array(-1.0, 0.5, 1.0, 2.0)
    assert statistics.shares(other, edges).tolist() == [0.25, 0, 0.25, 0.25, 0.25]


CASES: dict[str, tuple[list[Any], list[Any], str, dict[str, float]]] = {
    "shifted numbers": (
        normal(1, 900), normal(2, 400, 1.5), "drifted",
        {"psi": 2.2050623072017297, "ks": 0.5277777777777778,
         "ks_p_value": 1.9993940060193018e-67, "jensen_shannon": 0.5387419944522179,
         "normalized_wasserstein": 1.4440925106653044, "out_of_range": 0.105, "not_numeric": 0},
    ),
    "ties": (
        normal(1, 900, 0, 1), normal(2, 400, 0.1, 1), "stable",
        {"psi": 0.010721611654145848, "ks": 0.03722222222222216,
         "ks_p_value": 0.8375789955741537, "jensen_shannon": 0.04395707460368004,
         "normalized_wasserstein": 0.05377518725771701, "out_of_range": 0.01, "not_numeric": 0},
    ),
    "few values": (
        [index % 7 for index in range(900)],
        [index % 5 + (index % 9 == 0) / 2 for index in range(400)], "drifted",
        {"psi": 2.7072469150879233, "ks": 0.2844444444444445,
         "ks_p_value": 6.916493139997015e-20, "jensen_shannon": 0.45292191869497755,
         "normalized_wasserstein": 0.4686744765857707, "out_of_range": 0, "not_numeric": 0},
    ),
    "large numbers": (
        [1.7e9 + 1e5 * value for value in normal(5, 700)],
        [1.7e9 + 1.2e5 * value for value in normal(6, 350)], "moderate",
        {"psi": 0.10759670793224463, "ks": 0.11857142857142855,
         "ks_p_value": 0.0028290757713661796, "jensen_shannon": 0.13848443179307768,
         "normalized_wasserstein": 0.21626891221456057, "out_of_range": 0.008571428571428572,
         "not_numeric": 0},
    ),
    "words": (
        words(7, 900, "abcdefgh", [50, 30, 10, 5, 2, 1, 1, 1]),
        words(8, 400, "abcdefxy", [45, 30, 12, 5, 3, 2, 2, 1]), "stable",
        {"psi": 0.30209258153418495, "chi_squared": 13.33011185426978,
         "chi_squared_p_value": 0.038083188897971465, "jensen_shannon": 0.18311962849904986,
         "new_categories": 0.035},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_column_has_the_numbers_that_it_had(case: str) -> None:
    there, other, result, expected = CASES[case]
    column = compare("x", there, other, Thresholds(), 3)
    assert column.result == result
    assert column.statistics == pytest.approx(expected, rel=1e-9, abs=1e-300)


@pytest.mark.slow
def test_psi_of_equal_samples_stays_below_its_quantile() -> None:
    """Yurdakul (2018): it is (1/n + 1/m) times chi-squared with B - 1 degrees of freedom."""
    n, m = 2000, 500
    limit = float(stats.chi2.ppf(0.95, 9)) * (1 / n + 1 / m)
    above: Counter[bool] = Counter()
    for seed in range(200):
        there, other = (np.sort(normal(2 * seed + start, k)) for start, k in ((1000, n), (1001, m)))
        edges = statistics.bin_edges(there)
        pair = statistics.shares(there, edges), statistics.shares(other, edges)
        above[statistics.population_stability_index(*pair) > limit] += 1
    assert 1 <= above[True] <= 24
