"""Distances and tests between two samples.

Owns: which definition each of them has, the bins.
Leaves: the arithmetic to scipy, which of them a column gets and what they mean to columns.py.
Always: a reference sample comes first, the other one second; neither is empty. Shares are of
non-missing values and add up to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Numbers = NDArray[np.float64]

_SMALLEST_SHARE = 1e-4
"""In place of a share of 0, whose logarithm is not finite."""
_LEAST_EXPECTED = 5.0


def population_stability_index(reference: Numbers, other: Numbers) -> float:
    """Sum of (q - p) ln(q / p) over the bins' shares; 0 for equal shares, without an upper bound.

    Source: Siddiqi, Credit Risk Scorecards, 2006; its distribution: Yurdakul, Statistical
    Properties of Population Stability Index, 2018.
    """
    p, q = np.maximum(reference, _SMALLEST_SHARE), np.maximum(other, _SMALLEST_SHARE)
    return float(((q - p) * np.log(q / p)).sum())


def jensen_shannon_distance(reference: Numbers, other: Numbers) -> float:
    """Square root of the Jensen-Shannon divergence in base 2: from 0 to 1.

    Source: Endres and Schindelin, A new metric for probability distributions, 2003.
    """
    middle = (reference + other) / 2
    divergence = sum(special.rel_entr(each, middle).sum() for each in (reference, other)) / 2
    return math.sqrt(max(divergence, 0.0) / math.log(2))


def kolmogorov_smirnov(reference: Numbers, other: Numbers) -> tuple[float, float]:
    """Largest difference of the two distribution functions, and its two-sided p value.

    The p value is that of Kolmogorov's limiting distribution at D * sqrt(n m / (n + m)).

    Source: Smirnov, Table for estimating the goodness of fit of empirical distributions, 1948.
    """
    distance = float(stats.ks_2samp(reference, other, method="asymp").statistic)
    n, m = len(reference), len(other)
    return distance, float(special.kolmogorov(distance * math.sqrt(n * m / (n + m))))


def wasserstein_distance(reference: Numbers, other: Numbers) -> float:
    """Area between the two distribution functions, in the values' unit."""
    return float(stats.wasserstein_distance(reference, other))


def standard_deviation(values: Numbers) -> float:
    """Of the population; exactly 0 where all values are equal."""
    return float(np.std(values)) if values.min() < values.max() else 0.0


def chi_squared(reference: Mapping[str, int], other: Mapping[str, int]) -> tuple[float, float]:
    """Pearson's statistic that both samples have the same shares, and its p value, which is 1 where
    there is one category only.

    Categories whose expected count is below 5 on a side are counted as one (Cochran's rule).

    Source: Pearson, On the criterion that a given system of deviations …, 1900; Cochran, Some
    methods for strengthening the common chi-squared tests, 1954.
    """
    sides = reference, other
    counts = np.array([[side.get(name, 0) for side in sides] for name in {**reference, **other}])
    totals = counts.sum(axis=0)
    is_rare = counts.sum(axis=1) * (totals.min() / totals.sum()) < _LEAST_EXPECTED
    joined = np.vstack([counts[~is_rare], counts[is_rare].sum(axis=0)])
    joined = joined[joined.any(axis=1)]
    if len(joined) < 2:
        return 0.0, 1.0
    result: Any = stats.chi2_contingency(joined, correction=False)
    return float(result.statistic), float(result.pvalue)


def bin_edges(reference: Numbers, count: int = 10) -> Numbers:
    """Of `count` bins with about equal shares of a sorted sample; where at most `count` of its
    values are different, of each value and of what lies between two. The outer bins are open.
    """
    different = np.unique(reference)
    if len(different) <= count:
        edges = np.stack([different, np.nextafter(different, np.inf)], axis=1).ravel()
    else:
        edges = np.unique(reference[np.arange(1, count) * len(reference) // count])
    return np.concatenate([[-np.inf], edges, [np.inf]])


def shares(values: Numbers, edges: Numbers) -> Numbers:
    """Of the bins, each from its edge to before the next one."""
    counts, _ = np.histogram(values, edges)
    return counts / len(values)
