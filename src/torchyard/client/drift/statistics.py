"""Distances and tests between two samples, in plain Python.

Owns: the formulas.
Leaves: which of them a column gets, and what they mean, to columns.py.
Always: functions of numbers alone; shares are of non-missing values and add up to 1. A reference
sample comes first, the other one second.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

SMALLEST_SHARE = 1e-4
"""In place of a share of 0, whose logarithm is not finite."""
_MOST_TERMS = 10_000
_CLOSE = 1e-15
_LEAST_EXPECTED = 5.0


def population_stability_index(reference: Sequence[float], other: Sequence[float]) -> float:
    """Sum of (q - p) ln(q / p) over the bins' shares; 0 for equal shares, without an upper bound.

    Source: Siddiqi, Credit Risk Scorecards, 2006; its distribution: Yurdakul, Statistical
    Properties of Population Stability Index, 2018.
    """
    total = 0.0
    for p, q in zip(reference, other, strict=True):
        if p == q:
            continue
        p, q = max(p, SMALLEST_SHARE), max(q, SMALLEST_SHARE)
        total += (q - p) * math.log(q / p)
    return total


def jensen_shannon_distance(reference: Sequence[float], other: Sequence[float]) -> float:
    """Square root of the Jensen-Shannon divergence in base 2: from 0 to 1.

    Source: Endres and Schindelin, A new metric for probability distributions, 2003.
    """
    divergence = 0.0
    for p, q in zip(reference, other, strict=True):
        middle = (p + q) / 2
        divergence += sum(share * math.log2(share / middle) for share in (p, q) if share) / 2
    return math.sqrt(max(divergence, 0.0))


def kolmogorov_smirnov(reference: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Largest difference of the two distribution functions, and its two-sided p value.

    The p value is that of Kolmogorov's limiting distribution at D * sqrt(n m / (n + m)).

    Args:
        reference: sorted, not empty; so is `other`.

    Source: Smirnov, Table for estimating the goodness of fit of empirical distributions, 1948.
    """
    n, m = len(reference), len(other)
    i = j = 0
    distance = 0.0
    while i < n and j < m:
        value = min(reference[i], other[j])
        while i < n and reference[i] == value:
            i += 1
        while j < m and other[j] == value:
            j += 1
        distance = max(distance, abs(i / n - j / m))
    return distance, kolmogorov(distance * math.sqrt(n * m / (n + m)))


def kolmogorov(x: float) -> float:
    """Probability that Kolmogorov's statistic is larger than `x`."""
    if x <= 0:
        return 1.0
    if x < 1.0:
        # The other of Jacobi's forms of the same series, which is short where `x` is small.
        step = math.pi**2 / (8 * x * x)
        series = math.fsum(math.exp(-((2 * k - 1) ** 2) * step) for k in range(1, 8))
        return min(1.0, max(0.0, 1 - math.sqrt(2 * math.pi) / x * series))
    signs = (1, -1) * 6
    series = math.fsum(sign * math.exp(-2 * (k * x) ** 2) for k, sign in enumerate(signs, 1))
    return min(1.0, max(0.0, 2 * series))


def wasserstein_distance(reference: Sequence[float], other: Sequence[float]) -> float:
    """Area between the two distribution functions, in the values' unit.

    Args:
        reference: sorted, not empty; so is `other`.
    """
    n, m = len(reference), len(other)
    i = j = 0
    area = 0.0
    last = min(reference[0], other[0])
    while i < n or j < m:
        if j >= m or (i < n and reference[i] <= other[j]):
            value = reference[i]
        else:
            value = other[j]
        area += abs(i / n - j / m) * (value - last)
        last = value
        while i < n and reference[i] == value:
            i += 1
        while j < m and other[j] == value:
            j += 1
    return area


def standard_deviation(values: Sequence[float]) -> float:
    """Of the population."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def chi_squared(reference: Mapping[str, int], other: Mapping[str, int]) -> tuple[float, float, int]:
    """Pearson's statistic that both samples have the same shares, its p value, its degrees of
    freedom; p is 1 where there is one category only.

    Categories whose expected count is below 5 on a side are counted as one (Cochran's rule).

    Source: Pearson, On the criterion that a given system of deviations …, 1900; Cochran, Some
    methods for strengthening the common chi-squared tests, 1954.
    """
    totals = sum(reference.values()), sum(other.values())
    grand_total = sum(totals)
    smaller = min(totals) / grand_total
    rare = [0, 0]
    pairs: list[tuple[int, int]] = []
    for category in {**reference, **other}:
        pair = reference.get(category, 0), other.get(category, 0)
        if sum(pair) * smaller < _LEAST_EXPECTED:
            rare[0] += pair[0]
            rare[1] += pair[1]
        else:
            pairs.append(pair)
    if any(rare):
        pairs.append((rare[0], rare[1]))
    statistic = 0.0
    for pair in pairs:
        for count, total in zip(pair, totals, strict=True):
            expected = sum(pair) * total / grand_total
            statistic += (count - expected) ** 2 / expected
    freedom = len(pairs) - 1
    if freedom < 1:
        return 0.0, 1.0, 0
    return statistic, upper_gamma(freedom / 2, statistic / 2), freedom


def upper_gamma(a: float, x: float) -> float:
    """The regularized upper incomplete gamma function: a power series, or a continued fraction.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 6.5.29 and 6.5.31; the
    fraction as Lentz evaluates it (Applied Optics 15, 1976).
    """
    if x <= 0:
        return 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for n in range(1, _MOST_TERMS):
            term *= x / (a + n)
            total += term
            if term < total * _CLOSE:
                break
        return max(0.0, 1 - front * total)
    tiny = 1e-300
    b = x + 1 - a
    c, d = 1 / tiny, 1 / b
    fraction = d
    for n in range(1, _MOST_TERMS):
        numerator = -n * (n - a)
        b += 2
        d = numerator * d + b
        d = 1 / (d if abs(d) > tiny else tiny)
        c = b + numerator / c
        c = c if abs(c) > tiny else tiny
        fraction *= d * c
        if abs(d * c - 1) < _CLOSE:
            break
    return min(1.0, front * fraction)


@dataclass(frozen=True)
class Bins:
    """`edges` rise. With `by_value` each of them is a bin of its own, and so is what lies between
    two; otherwise a bin begins with its left edge and ends before its right one. The outer bins
    are open.
    """

    edges: tuple[float, ...]
    by_value: bool

    def shares(self, values: Sequence[float]) -> list[float]:
        """Of a sorted sample that is not empty."""
        ends = []
        for edge in self.edges:
            ends.append(bisect_left(values, edge))
            if self.by_value:
                ends.append(bisect_right(values, edge))
        bounds = [0, *ends, len(values)]
        return [(end - start) / len(values) for start, end in pairwise(bounds)]


def bins_of(reference: Sequence[float], count: int = 10) -> Bins:
    """`count` bins with about equal shares of a sorted sample; its values themselves where at most
    `count` are different.
    """
    different = sorted(set(reference))
    if len(different) <= count:
        return Bins(tuple(different), True)
    n = len(reference)
    return Bins(tuple(sorted({reference[k * n // count] for k in range(1, count)})), False)
