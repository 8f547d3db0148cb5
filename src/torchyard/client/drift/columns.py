"""One column of two samples, compared.

Owns: what kind a column is, its counts and statistics, the thresholds, what counts as drift.
Leaves: the formulas to statistics.py, the rows to comparison.py.
Always: a column has drifted by a distance only if a test says, too, that chance does not explain
it; every reason names its statistic, its value and the threshold.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from torchyard.base.errors import InvalidInput, did_you_mean
from torchyard.client.drift import statistics
from torchyard.client.drift.statistics import Numbers

NUMERIC, CATEGORICAL = "numeric", "categorical"
DRIFTED, MODERATE, STABLE, UNKNOWN = "drifted", "moderate", "stable", "unknown"
LEAST_ROWS = 30
_MISSING = ("", "nan", "NaN", "NA", "N/A", "null", "None", "<NA>")
_MOST_NEW = 10
_MOST_TEXT = 200
_OTHER = "(others)"
_MOST_CATEGORIES = 1000


@dataclass(frozen=True)
class Thresholds:
    """A column has drifted from `psi`, or one of the four after it, on; `moderate_psi` is half way.

    `p_value` is the level of significance of all columns together. `missing` is of the difference
    of the shares, `new_categories` and `out_of_range` are shares of the values.

    Source: 0.1 and 0.25 of the PSI are Siddiqi's, Credit Risk Scorecards, 2006.
    """

    psi: float = 0.25
    moderate_psi: float = 0.1
    p_value: float = 0.05
    missing: float = 0.05
    new_categories: float = 0.05
    out_of_range: float = 0.05


def thresholds_from(values: Mapping[str, float]) -> Thresholds:
    """
    Raises:
        InvalidInput: another name, or a number that is not above 0.
    """
    names = list(Thresholds.__dataclass_fields__)
    for name, value in values.items():
        if name not in names:
            hint = did_you_mean(name, names)
            raise InvalidInput(f"`{name[:50]}` is not a threshold", hint)
        if not 0 < value < math.inf:
            raise InvalidInput(f"the threshold `{name}` must be a number above 0", "see the guide")
    return Thresholds(**values)


@dataclass(frozen=True)
class Reason:
    """Why a column is not stable: `value` is at or beyond `threshold`."""

    statistic: str
    value: float
    threshold: float


@dataclass(frozen=True)
class Side:
    """A column of one sample. `count` is of all rows, `missing` of those without a value. `mean`,
    `least` and `most` are of numbers, None for others.
    """

    count: int
    missing: int
    missing_share: float
    mean: float | None = None
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class ColumnDrift:
    """One column compared.

    Attributes:
        kind: numeric or categorical.
        result: drifted, moderate, stable, or unknown where too few values are there.
        statistics: by name; what does not apply to the kind is left out.
        new_categories: the most frequent ones that the training data lacks.
    """

    column: str
    kind: str
    result: str
    reasons: tuple[Reason, ...]
    statistics: Mapping[str, float]
    collected: Side
    reference: Side
    new_categories: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        body = asdict(self)
        body["reasons"] = [asdict(reason) for reason in self.reasons]
        body["new_categories"] = list(self.new_categories)
        return body


def is_missing(value: Any) -> bool:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return isinstance(value, str) and value.strip() in _MISSING


def number_of(value: Any) -> float | None:
    """None for what is not a finite number, or a text of one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def compare(
    column: str,
    reference: Sequence[Any],
    collected: Sequence[Any],
    thresholds: Thresholds,
    tests: int = 1,
    kind: str = "",
) -> ColumnDrift:
    """
    Args:
        reference: the column's values in the training data, None where a row has none.
        collected: likewise, of the collected rows.
        tests: how many columns are compared: each is tested at `p_value / tests` (Bonferroni).
        kind: numeric or categorical; that of the training data's values when empty.
    """
    there = [value for value in reference if not is_missing(value)]
    other = [value for value in collected if not is_missing(value)]
    kind = kind or kind_of(there)
    level = thresholds.p_value / max(tests, 1)
    if kind == NUMERIC:
        return _numeric(column, (reference, collected), (there, other), thresholds, level)
    return _categorical(column, (reference, collected), (there, other), thresholds, level)


def kind_of(values: Sequence[Any]) -> str:
    """Numeric where every value is a number; truth values are categories."""
    is_numeric = bool(values) and all(number_of(value) is not None for value in values)
    return NUMERIC if is_numeric else CATEGORICAL


_Pair = tuple[Sequence[Any], Sequence[Any]]


def _numeric(
    column: str, rows: _Pair, values: _Pair, thresholds: Thresholds, level: float
) -> ColumnDrift:
    there, other = (
        np.sort([number for value in each if (number := number_of(value)) is not None])
        for each in values
    )
    sides = _side(rows[0], len(values[0]), there), _side(rows[1], len(values[1]), other)
    # Text in a column of numbers.
    not_numeric = 1 - len(other) / len(values[1]) if values[1] else 0.0
    if len(there) < LEAST_ROWS or len(other) < LEAST_ROWS:
        is_text = len(values[1]) >= LEAST_ROWS and not_numeric >= thresholds.missing
        more = [Reason("not_numeric", not_numeric, thresholds.missing)] if is_text else []
        return _with_few(column, NUMERIC, sides, thresholds, level, more)
    edges = statistics.bin_edges(there)
    shares = statistics.shares(there, edges), statistics.shares(other, edges)
    distance, p_value = statistics.kolmogorov_smirnov(there, other)
    deviation = statistics.standard_deviation(there)
    wasserstein = statistics.wasserstein_distance(there, other)
    outside = float(np.mean((other < there[0]) | (other > there[-1])))
    computed = {
        "psi": statistics.population_stability_index(*shares),
        "ks": distance,
        "ks_p_value": p_value,
        "jensen_shannon": statistics.jensen_shannon_distance(*shares),
        **({"normalized_wasserstein": wasserstein / deviation} if deviation else {}),
        "out_of_range": outside,
        "not_numeric": not_numeric,
    }
    shares_beyond = {"not_numeric": thresholds.missing}
    # The range of a small sample is left by chance, once on either side.
    if _differ((2, len(there)), (round(outside * len(other)), len(other)), level):
        shares_beyond["out_of_range"] = thresholds.out_of_range
    result, reasons = _judged(computed, "ks_p_value", shares_beyond, sides, thresholds, level)
    return ColumnDrift(column, NUMERIC, result, reasons, computed, sides[1], sides[0])


def _categorical(
    column: str, rows: _Pair, values: _Pair, thresholds: Thresholds, level: float
) -> ColumnDrift:
    there, other = (Counter(map(_category, each)) for each in values)
    sides = _side(rows[0], len(values[0])), _side(rows[1], len(values[1]))
    if len(values[0]) < LEAST_ROWS or len(values[1]) < LEAST_ROWS:
        return _with_few(column, CATEGORICAL, sides, thresholds, level)
    new = Counter({name: count for name, count in other.items() if name not in there})
    common_names = {name for name, _ in (there + other).most_common(_MOST_CATEGORIES)}
    there, other = _folded(there, common_names), _folded(other, common_names)
    names = list({**there, **other})
    shares = [np.array([each[name] for name in names]) / each.total() for each in (there, other)]
    statistic, p_value = statistics.chi_squared(there, other)
    computed = {
        "psi": statistics.population_stability_index(*shares),
        "chi_squared": statistic,
        "chi_squared_p_value": p_value,
        "jensen_shannon": statistics.jensen_shannon_distance(*shares),
        "new_categories": new.total() / other.total(),
    }
    beyond = {}
    if _differ((0, there.total()), (new.total(), other.total()), level):
        beyond["new_categories"] = thresholds.new_categories
    result, reasons = _judged(computed, "chi_squared_p_value", beyond, sides, thresholds, level)
    new_values = tuple(name[:_MOST_TEXT] for name, _ in new.most_common(_MOST_NEW))
    return ColumnDrift(
        column, CATEGORICAL, result, reasons, computed, sides[1], sides[0], new_values
    )


def _judged(
    computed: Mapping[str, float],
    p_name: str,
    beyond: Mapping[str, float],
    sides: tuple[Side, Side],
    thresholds: Thresholds,
    level: float,
) -> tuple[str, tuple[Reason, ...]]:
    reasons = [
        Reason(name, computed[name], threshold)
        for name, threshold in beyond.items()
        if computed[name] >= threshold
    ]
    reasons += _of_missing(sides, thresholds, level)
    result = DRIFTED if reasons else STABLE
    psi, p_value = computed["psi"], computed[p_name]
    if p_value <= level and psi >= thresholds.moderate_psi:
        is_large = psi >= thresholds.psi
        threshold = thresholds.psi if is_large else thresholds.moderate_psi
        reasons = [Reason("psi", psi, threshold), Reason(p_name, p_value, level), *reasons]
        if is_large:
            result = DRIFTED
        elif result == STABLE:
            result = MODERATE
    return result, tuple(reasons)


def _of_missing(sides: tuple[Side, Side], thresholds: Thresholds, level: float) -> list[Reason]:
    reference, collected = sides
    difference = abs(collected.missing_share - reference.missing_share)
    if difference < thresholds.missing:
        return []
    pairs = [(side.missing, side.count) for side in (reference, collected)]
    if not _differ(pairs[0], pairs[1], level):
        return []
    return [Reason("missing", difference, thresholds.missing)]


def _differ(reference: tuple[int, int], other: tuple[int, int], level: float) -> bool:
    """Whether two shares, each (how many, of how many), differ by more than chance."""
    counts = [{"such": some, "others": total - some} for some, total in (reference, other)]
    return statistics.chi_squared(*counts)[1] <= level


def _with_few(
    column: str,
    kind: str,
    sides: tuple[Side, Side],
    thresholds: Thresholds,
    level: float,
    more: Sequence[Reason] = (),
) -> ColumnDrift:
    """Too few values for anything but how many are missing."""
    reasons = (*more, *_of_missing(sides, thresholds, level))
    result = DRIFTED if reasons else UNKNOWN
    return ColumnDrift(column, kind, result, reasons, {}, sides[1], sides[0])


def _side(rows: Sequence[Any], values: int, numbers: Numbers | None = None) -> Side:
    missing = len(rows) - values
    share = missing / len(rows) if rows else 0.0
    if numbers is None or not len(numbers):
        return Side(len(rows), missing, share)
    mean = math.fsum(numbers) / len(numbers)
    return Side(len(rows), missing, share, mean, float(numbers[0]), float(numbers[-1]))


def _category(value: Any) -> str:
    """Numbers as JSON has them, so that `1` of a CSV file and 1 of a request are one category."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, sort_keys=True, default=str)


def _folded(counts: Counter[str], common_names: set[str]) -> Counter[str]:
    folded: Counter[str] = Counter()
    for name, count in counts.items():
        folded[name if name in common_names else _OTHER] += count
    return folded
