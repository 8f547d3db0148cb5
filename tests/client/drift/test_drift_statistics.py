"""The formulas, against scipy and against values worked out by hand."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from torchyard.client.drift import statistics

scipy_stats = pytest.importorskip("scipy.stats")
scipy_distance = pytest.importorskip("scipy.spatial.distance")
scipy_special = pytest.importorskip("scipy.special")


def normal(seed: int, count: int, mean: float = 0.0, digits: int = 15) -> list[float]:
    numbers = random.Random(seed)
    return sorted(round(numbers.gauss(mean, 1), digits) for _ in range(count))


def test_psi_is_the_sum_written_out() -> None:
    expected = 0.1 * math.log(0.6 / 0.5) + -0.1 * math.log(0.4 / 0.5)
    index = statistics.population_stability_index([0.5, 0.5], [0.6, 0.4])
    assert index == pytest.approx(expected) == pytest.approx(0.0405465, abs=1e-6)
    assert statistics.population_stability_index([0.2, 0.8, 0], [0.2, 0.8, 0]) == 0


def test_an_empty_bin_counts_as_the_smallest_share() -> None:
    index = statistics.population_stability_index([0.5, 0.5], [0.0, 1.0])
    assert index == pytest.approx((1e-4 - 0.5) * math.log(1e-4 / 0.5) + 0.5 * math.log(2))


@pytest.mark.parametrize("shares", [([0.5, 0.5, 0], [0.1, 0.2, 0.7]), ([1, 0], [0, 1])])
def test_jensen_shannon_is_scipys(shares: tuple[list[float], list[float]]) -> None:
    expected = scipy_distance.jensenshannon(*shares, base=2)
    assert statistics.jensen_shannon_distance(*shares) == pytest.approx(expected)


@pytest.mark.parametrize("digits", [15, 1])
@pytest.mark.parametrize("mean", [0.0, 0.1, 1.5])
def test_kolmogorov_smirnov_is_scipys(mean: float, digits: int) -> None:
    there, other = normal(1, 900, 0, digits), normal(2, 400, mean, digits)
    distance, p_value = statistics.kolmogorov_smirnov(there, other)
    expected = scipy_stats.ks_2samp(there, other, method="asymp")
    assert distance == pytest.approx(expected.statistic)
    limit = scipy_stats.kstwobign.sf(distance * math.sqrt(900 * 400 / 1300))
    assert p_value == pytest.approx(limit, rel=1e-9, abs=1e-300)
    # scipy's own p value is that of a sample of finite size.
    assert p_value == pytest.approx(expected.pvalue, rel=0.15, abs=1e-12)


@pytest.mark.parametrize("x", [0.0, 0.05, 0.3, 0.7, 0.999, 1.0, 1.001, 1.5, 3.0, 8.0])
def test_the_distribution_of_kolmogorov_is_scipys(x: float) -> None:
    expected = float(scipy_special.kolmogorov(x))
    assert statistics.kolmogorov(x) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("mean", [0.0, 0.7, -3.0])
def test_the_wasserstein_distance_is_scipys(mean: float) -> None:
    there, other = normal(3, 300, 0, 1), normal(4, 211, mean, 1)
    expected = scipy_stats.wasserstein_distance(there, other)
    assert statistics.wasserstein_distance(there, other) == pytest.approx(expected)


@pytest.mark.parametrize("other", [{"a": 60, "b": 40}, {"a": 5, "b": 20, "c": 75}])
def test_chi_squared_is_scipys(other: dict[str, int]) -> None:
    there = {"a": 500, "b": 300, "c": 200}
    table = [[each.get(name, 0) for name in there] for each in (there, other)]
    expected = scipy_stats.chi2_contingency(table, correction=False)
    statistic, p_value, freedom = statistics.chi_squared(there, other)
    assert statistic == pytest.approx(expected.statistic)
    assert p_value == pytest.approx(expected.pvalue, rel=1e-9, abs=1e-300)
    assert freedom == expected.dof


def test_rare_categories_are_counted_as_one() -> None:
    there = {"a": 100, "b": 100, **{f"r{n}": 2 for n in range(10)}}
    other = {"a": 100, "b": 100, **{f"s{n}": 2 for n in range(10)}}
    statistic, p_value, freedom = statistics.chi_squared(there, other)
    assert (statistic, freedom) == (0.0, 2) and p_value == 1.0
    assert statistics.chi_squared({"a": 9}, {"a": 90}) == (0.0, 1.0, 0)


@pytest.mark.parametrize("a", [0.5, 1.0, 4.5, 50.0, 500.0])
@pytest.mark.parametrize("ratio", [0.01, 0.5, 1.0, 1.1, 3.0])
def test_the_incomplete_gamma_function_is_scipys(a: float, ratio: float) -> None:
    expected = float(scipy_special.gammaincc(a, a * ratio))
    assert statistics.upper_gamma(a, a * ratio) == pytest.approx(expected, rel=1e-8, abs=1e-250)


def test_bins_hold_about_a_tenth_each() -> None:
    there = normal(5, 1000)
    bins = statistics.bins_of(there)
    assert len(bins.edges) == 9 and not bins.by_value
    assert bins.shares(there) == pytest.approx([0.1] * 10)
    assert sum(bins.shares(normal(6, 77, 2))) == pytest.approx(1)


def test_few_values_are_bins_of_their_own() -> None:
    bins = statistics.bins_of([0.0] * 6 + [1.0] * 4)
    assert bins.shares([0.0] * 6 + [1.0] * 4) == [0, 0.6, 0, 0.4, 0]
    assert bins.shares([-1.0, 0.5, 1.0, 2.0]) == [0.25, 0, 0.25, 0.25, 0.25]


@pytest.mark.slow
def test_psi_of_equal_samples_stays_below_its_quantile() -> None:
    """Yurdakul (2018): it is (1/n + 1/m) times chi-squared with B - 1 degrees of freedom."""
    n, m = 2000, 500
    limit = float(scipy_stats.chi2.ppf(0.95, 9)) * (1 / n + 1 / m)
    above: Counter[bool] = Counter()
    for seed in range(200):
        there, other = normal(2 * seed + 1000, n), normal(2 * seed + 1001, m)
        bins = statistics.bins_of(there)
        shares = bins.shares(there), bins.shares(other)
        above[statistics.population_stability_index(*shares) > limit] += 1
    assert 1 <= above[True] <= 24
