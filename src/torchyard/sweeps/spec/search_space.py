"""The search space: which values each hyperparameter may have.

Owns: `SearchSpace` and its distributions; whether a value lies in it; its parts by dotted names.
Leaves: drawing values to search/; reading a file to space_reading.py.
Always: a distribution is valid: its bounds are finite and in order, a choice has values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist
from typing import Any

Scalar = str | int | float | bool
Value = str | int | float | bool | dict[str, Any]
"""A hyperparameter's value; a mapping when a choice is one between mappings."""

_STANDARD_NORMAL = NormalDist()
# What lies between two multiples of `q` by no more than this share of `q` counts as the nearer one.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Choice:
    """One of `values`; one that is a `SearchSpace` has hyperparameters of its own."""

    values: tuple[Scalar | SearchSpace, ...]

    @cached_property
    def positions(self) -> Mapping[tuple[bool, Scalar], int]:
        """The first position of each scalar, beside whether it is a truth value."""
        positions: dict[tuple[bool, Scalar], int] = {}
        for position, value in enumerate(self.values):
            if not isinstance(value, SearchSpace):
                positions.setdefault((isinstance(value, bool), value), position)
        return positions


@dataclass(frozen=True)
class Randint:
    """A whole number from 0 to `upper` - 1."""

    upper: int


@dataclass(frozen=True)
class Uniform:
    """From `min_value` to `max_value`; a power of `base` with that exponent when `log`; then the
    nearest multiple of `q` inside, if any.
    """

    min_value: float
    max_value: float
    log: bool = False
    q: float | None = None
    base: float = math.e

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest value, as a trial gets them, before `q`."""
        if not self.log:
            return self.min_value, self.max_value
        return _power(self.base, self.min_value), _power(self.base, self.max_value)

    @property
    def multiples(self) -> tuple[int, int]:
        """The least and the greatest multiple of `q` inside the bounds, as factors."""
        assert self.q is not None
        low, high = (bound / self.q for bound in self.bounds)
        return math.ceil(low - _TOLERANCE), math.floor(high + _TOLERANCE)

    def at(self, quantile: float) -> float:
        low, high = self.bounds
        position = self.min_value + quantile * (self.max_value - self.min_value)
        value = _power(self.base, position) if self.log else position
        return self.rounded(min(max(value, low), high))

    def rounded(self, value: float) -> float:
        """The nearest value that the distribution has."""
        if self.q is None:
            return value
        least, maximum = self.multiples
        return multiple(min(max(round(value / self.q), least), maximum), self.q)


@dataclass(frozen=True)
class Normal:
    """From the normal distribution; a power of `base` with that exponent when `log`; then the
    nearest multiple of `q`, if any.
    """

    mu: float
    sigma: float
    log: bool = False
    q: float | None = None
    base: float = math.e

    def at(self, quantile: float) -> float:
        """Args: quantile: inside 0 and 1, without either."""
        position = self.mu + self.sigma * _STANDARD_NORMAL.inv_cdf(quantile)
        value = _power(self.base, position) if self.log else position
        return value if self.q is None else multiple(round(value / self.q), self.q)

    def quantile(self, value: float) -> float | None:
        """Where `at` gives the value; None outside the distribution."""
        if self.log and value <= 0:
            return 0.5 / self._cells(value) if self.q is not None and value == 0 else None
        position = math.log(value) / math.log(self.base) if self.log else value
        quantile = _STANDARD_NORMAL.cdf((position - self.mu) / self.sigma)
        return min(max(quantile, 1e-12), 1 - 1e-12)

    def _cells(self, value: float) -> float:
        """Turns the mass that is rounded to 0 into its middle."""
        assert self.q is not None
        edge = math.log(self.q / 2) / math.log(self.base)
        mass = _STANDARD_NORMAL.cdf((edge - self.mu) / self.sigma)
        return 1 / max(mass, 1e-12)


Parameter = Choice | Randint | Uniform | Normal


@dataclass(frozen=True)
class SearchSpace:
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


def multiple(factor: int, q: float) -> int | float:
    """A multiple without the digits that binary fractions add; an int where `q` is whole."""
    return factor * int(q) if q == int(q) else float(f"{factor * q:.15g}")


def walk(space: SearchSpace, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
    """Every parameter with its dotted name, those of nested spaces behind their choice.

    A name comes once for each mapping that has it.
    """
    for name, parameter in space.parameters.items():
        yield f"{prefix}{name}", parameter
        for branch in branches(parameter):
            yield from walk(branch, f"{prefix}{name}.")


def branches(parameter: Parameter) -> list[SearchSpace]:
    """The nested spaces of a choice."""
    if not isinstance(parameter, Choice):
        return []
    return [value for value in parameter.values if isinstance(value, SearchSpace)]


def flat(parameters: Mapping[str, Value], prefix: str = "") -> dict[str, Scalar]:
    """A trial's parameters with dotted names instead of mappings, for tables."""
    values: dict[str, Scalar] = {}
    for name, value in parameters.items():
        if isinstance(value, Mapping):
            values.update(flat(value, f"{prefix}{name}."))
        else:
            values[f"{prefix}{name}"] = value
    return values


def contains(space: SearchSpace, parameters: Mapping[str, Any]) -> bool:
    """Whether the parameters are all of the space's, each with a value that it may have."""
    return set(parameters) == set(space.parameters) and all(
        has_value(parameter, parameters[name]) for name, parameter in space.parameters.items()
    )


def has_value(parameter: Parameter, value: Any) -> bool:
    if isinstance(parameter, Choice):
        return choice_index(parameter, value) is not None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    if isinstance(parameter, Randint):
        return value == int(value) and 0 <= value < parameter.upper
    if parameter.q is not None and not _is_multiple(value, parameter.q):
        return False
    if isinstance(parameter, Normal):
        return not parameter.log or value > 0 or (parameter.q is not None and value == 0)
    low, high = parameter.bounds
    slack = _TOLERANCE * max(abs(low), abs(high))
    return low - slack <= value <= high + slack


def choice_index(choice: Choice, value: Any) -> int | None:
    """Which of the choice's values this is; of equal ones the first."""
    if isinstance(value, str | int | float | bool):
        return choice.positions.get((isinstance(value, bool), value))
    for index, candidate in enumerate(choice.values):
        if isinstance(candidate, SearchSpace) and isinstance(value, Mapping):
            if contains(candidate, value):
                return index
    return None


def _power(base: float, exponent: float) -> float:
    return math.exp(exponent) if base == math.e else math.pow(base, exponent)


def _is_multiple(value: float, q: float) -> bool:
    quotient = value / q
    if not math.isfinite(quotient):
        return False
    # A product has 15 digits.
    return abs(quotient - round(quotient)) < max(1e-6, 1e-14 * abs(quotient))
