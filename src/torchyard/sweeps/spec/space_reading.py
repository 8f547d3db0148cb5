"""Read `search_space` of a sweep file.

Owns: the functions by their names, their keys, what is refused in them.
Leaves: what the distributions mean to search_space.py.
Always: an error says where by `at`; a space is bounded in size and depth.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from torchyard.base.documents.checks import At, By
from torchyard.base.documents.faults import entries
from torchyard.base.documents.models import declared, rule
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described
from torchyard.sweeps.spec.search_space import (
    Choice,
    Normal,
    Parameter,
    Randint,
    Scalar,
    SearchSpace,
    Uniform,
    walk,
)
from torchyard.sweeps.spec.typed import Typed, Types

# Azure's limit for the name of an input, and more characters: HyperDrive's names begin with `--`.
_LONGEST_NAME = 255
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_LONGEST_TEXT = 4096
_MOST_PARAMETERS = 500
_MOST_VALUES = 10_000
_MOST_MAPPINGS = 100
_DEEPEST = 5
_GREATEST = 1e300
# exp(690) is below the greatest float, also as a multiple of q.
_GREATEST_EXPONENT = 690.0


def _upper(value: Any, at: At) -> int:
    upper = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(upper, bool) or not isinstance(upper, int) or not 1 <= upper <= 2**53:
        raise InvalidSpec(
            f"`upper` must be a whole number of 1 or more, not {described(value)}",
            "values are 0 to `upper` - 1",
            at=at,
        )
    return upper


def _number(value: Any, at: At) -> float:
    number = value
    if isinstance(value, bool) or not isinstance(value, int | float):
        # YAML 1.1 reads 1e-5 as text.
        try:
            number = float(value) if isinstance(value, str) and len(value) < 50 else None
        except ValueError:
            number = None
    if number is None:
        raise InvalidSpec(
            f"`{at[-1]}` must be a number, not {described(value)}",
            f"for example `{at[-1]}: 0.5`",
            at=at,
        )
    return _finite(number, at)


def _positive(value: Any, at: At) -> float:
    number = _number(value, at)
    if number < 1e-12:
        raise InvalidSpec(
            f"`{at[-1]}` must be above 0, not {number:g}", f"for example `{at[-1]}: 0.1`", at=at
        )
    return number


class ChoiceFile(Typed):
    values: Any = declared(...)


class RandintFile(Typed):
    upper: int = declared(..., check=By(_upper))


class UniformFile(Typed):
    min_value: float = declared(..., check=By(_number))
    max_value: float = declared(..., check=By(_number))

    @rule("min_value", "max_value")
    def _order(self) -> None:
        low, high = self.min_value, self.max_value
        if low >= high:
            raise InvalidSpec(
                f"`min_value` is {low:g}, which is not below `max_value`, {high:g}",
                "swap them, or use a choice of one value",
                at=("min_value",),
            )


class QuniformFile(UniformFile):
    q: float = declared(..., check=By(_positive))


class NormalFile(Typed):
    mu: float = declared(..., check=By(_number))
    sigma: float = declared(..., check=By(_positive))


class QnormalFile(NormalFile):
    q: float = declared(..., check=By(_positive))


_ROUNDED = "the same, rounded to a multiple of `q`"
TYPES = Types(
    "a type of hyperparameter",
    {
        "choice": (ChoiceFile, "one of the list; a mapping in it is a space of its own"),
        "randint": (RandintFile, "a whole number from 0 to `upper` - 1"),
        "uniform": (UniformFile, "a number from `min_value` to `max_value`"),
        "quniform": (QuniformFile, f"{_ROUNDED} inside"),
        "loguniform": (UniformFile, "e^x, x uniform: the bounds are exponents"),
        "qloguniform": (QuniformFile, f"{_ROUNDED} inside"),
        "normal": (NormalFile, "normally distributed"),
        "qnormal": (QnormalFile, _ROUNDED),
        "lognormal": (NormalFile, "e^x, x normally distributed"),
        "qlognormal": (QnormalFile, _ROUNDED),
    },
)


def read(value: Any, at: At, base: float = math.e) -> SearchSpace:
    """
    Args:
        base: of the functions whose bounds are exponents.

    Raises:
        InvalidSpec: what is wrong, with its place.
    """
    return with_base(parse(value, at), base, at)


def parse(value: Any, at: At, depth: int = 0) -> SearchSpace:
    """The space, of which is still to be checked what depends on the base.

    Raises:
        InvalidSpec: what is wrong, with its place.
    """
    if not isinstance(value, Mapping) or not value:
        raise InvalidSpec(
            "`search_space` must be a mapping of at least one hyperparameter"
            if not depth
            else "a mapping among the values of a choice must have at least one key",
            "for example `search_space: {lr: {type: loguniform, min_value: -9, max_value: -2}}`",
            at=at,
        )
    if depth > _DEEPEST:
        raise InvalidSpec(
            f"choices are nested more than {_DEEPEST} deep", "flatten the search space", at=at
        )
    space = SearchSpace(entries(value, at, lambda body, here: _parameter(body, here, depth)))
    if not depth and sum(1 for _ in walk(space)) > _MOST_PARAMETERS:
        raise InvalidSpec(
            f"the search space has more than {_MOST_PARAMETERS} hyperparameters",
            "leave some of them out",
            at=at,
        )
    return space


def with_base(space: SearchSpace, base: float, at: At) -> SearchSpace:
    """The space with `base` to the power of exponents.

    Raises:
        InvalidSpec: a power is out of range, or no multiple of `q` lies between the bounds.
    """
    return SearchSpace(
        entries(space.parameters, at, lambda parameter, here: _with_base(parameter, base, here))
    )


def notices(space: SearchSpace) -> list[str]:
    """What is valid and often a mistake."""
    suspicions = []
    for name, parameter in walk(space):
        if isinstance(parameter, Uniform) and parameter.log and parameter.min_value >= 0:
            low, high = parameter.bounds
            if parameter.max_value <= 1:
                suspicions.append(
                    f"values of `{name}` lie between {low:.4g} and {high:.4g}: the bounds of "
                    "`loguniform` are exponents"
                )
    return suspicions


def _parameter(body: Any, at: At, depth: int) -> Parameter:
    _check_name(at)
    if depth and not isinstance(body, Mapping):
        return Choice((_scalar(body, at),))
    if not isinstance(body, Mapping):
        raise InvalidSpec(
            f"hyperparameter `{at[-1]}` must be a mapping with a `type`, not {described(body)}",
            f"for example `{at[-1]}: {{type: choice, values: [1, 2]}}`",
            at=at,
        )
    kind, file = TYPES.read_mapping(body, at)
    if kind == "choice":
        return _choice(file.values, (*at, "values"), depth)
    if kind == "randint":
        return Randint(file.upper)
    is_log, q = "log" in kind, getattr(file, "q", None)
    if isinstance(file, UniformFile):
        return Uniform(file.min_value, file.max_value, is_log, q)
    return Normal(file.mu, file.sigma, is_log, q)


def _check_name(at: At) -> None:
    name = at[-1]
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= _LONGEST_NAME
        or not _NAME_CHARACTERS.issuperset(name)
    ):
        raise InvalidSpec(
            f"`{str(name)[:80]}` is not a valid name for a hyperparameter",
            "use letters, digits, `_` and `-`",
            at=(*at[:-1], str(name)),
        )


def _choice(values: Any, at: At, depth: int) -> Choice:
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise InvalidSpec(
            f"the `values` of a choice must be a list, not {described(values)}",
            "for example `values: [16, 32]`",
            at=at,
        )
    if len(values) > _MOST_VALUES:
        raise InvalidSpec(
            f"a choice has {len(values)} values; the limit is {_MOST_VALUES}",
            "use `randint` or `quniform`",
            at=at,
        )
    if sum(1 for value in values if isinstance(value, Mapping)) > _MOST_MAPPINGS:
        raise InvalidSpec(
            f"a choice is one between more than {_MOST_MAPPINGS} mappings",
            "leave some of them out",
            at=at,
        )
    return Choice(
        tuple(
            parse(value, (*at, index), depth + 1)
            if isinstance(value, Mapping)
            else _scalar(value, (*at, index))
            for index, value in enumerate(values)
        )
    )


def _scalar(value: Any, at: At) -> Scalar:
    if isinstance(value, str):
        if len(value) > _LONGEST_TEXT or "\0" in value:
            raise InvalidSpec(
                f"a value of a choice has more than {_LONGEST_TEXT} characters, or a NUL character",
                "shorten it",
                at=at,
            )
        return value
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        number = _finite(value, at)
        return value if isinstance(value, int) else number
    raise InvalidSpec(
        f"a value of a choice must be text, a number, true, false or a mapping, "
        f"not {described(value)}",
        "write lists as text, for example `'[64, 64]'`",
        at=at,
    )


def _with_base(parameter: Parameter, base: float, at: At) -> Parameter:
    if isinstance(parameter, Choice):
        return Choice(
            tuple(
                with_base(value, base, (*at, "values", index))
                if isinstance(value, SearchSpace)
                else value
                for index, value in enumerate(parameter.values)
            )
        )
    if isinstance(parameter, Randint):
        return parameter
    if isinstance(parameter, Normal):
        if parameter.log:
            _check_exponent(abs(parameter.mu) + 10 * parameter.sigma, base, (*at, "sigma"))
        return dataclasses.replace(parameter, base=base)
    if parameter.log:
        _check_exponent(parameter.min_value, base, (*at, "min_value"))
        _check_exponent(parameter.max_value, base, (*at, "max_value"))
    uniform = dataclasses.replace(parameter, base=base)
    if uniform.q is not None and uniform.multiples[0] > uniform.multiples[1]:
        bounds = "{:g} and {:g}".format(*uniform.bounds)
        raise InvalidSpec(
            f"no multiple of {uniform.q:g} lies between {bounds}",
            "lower `q`, or move the bounds",
            at=(*at, "q"),
        )
    return uniform


def _check_exponent(exponent: float, base: float, at: At) -> None:
    if abs(exponent * math.log(base)) > _GREATEST_EXPONENT:
        raise InvalidSpec(
            f"{base:.4g} to the power of {exponent:g} is out of range",
            "the numbers of this function are exponents: write -11.5 for 1e-5",
            at=at,
        )


def _finite(value: int | float, at: At) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not abs(number) <= _GREATEST:
        raise InvalidSpec(
            f"`{at[-1]}` is not a number that can be searched",
            f"write a finite one, up to {_GREATEST:g}",
            at=at,
        )
    return number
