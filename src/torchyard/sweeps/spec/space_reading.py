"""Read `search_space` of a sweep file.

Owns: the functions by their names, their keys, what is refused in them.
Leaves: what the distributions mean to search_space.py.
Always: an error says where by `at`; a space is bounded in size and depth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torchyard.base.errors import InvalidSpec, did_you_mean
from torchyard.base.fields import described, unknown_key
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
from torchyard.sweeps.spec.words import plain

At = tuple[str | int, ...]

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

KEYS: dict[str, tuple[str, ...]] = {
    "choice": ("values",),
    "randint": ("upper",),
    "uniform": ("min_value", "max_value"),
    "quniform": ("min_value", "max_value", "q"),
    "loguniform": ("min_value", "max_value"),
    "qloguniform": ("min_value", "max_value", "q"),
    "normal": ("mu", "sigma"),
    "qnormal": ("mu", "sigma", "q"),
    "lognormal": ("mu", "sigma"),
    "qlognormal": ("mu", "sigma", "q"),
}


def read(value: Any, at: At, base: float = math.e, depth: int = 0) -> SearchSpace:
    """
    Args:
        base: of the functions whose bounds are exponents.

    Raises:
        InvalidSpec: the first thing that is wrong, with its place.
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
    parameters = {
        _name(name, at): _parameter(body, (*at, str(name)), base, depth)
        for name, body in value.items()
    }
    space = SearchSpace(parameters)
    if not depth and sum(1 for _ in walk(space)) > _MOST_PARAMETERS:
        raise InvalidSpec(
            f"the search space has more than {_MOST_PARAMETERS} hyperparameters",
            "leave some of them out",
            at=at,
        )
    return space


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


def _name(name: Any, at: At) -> str:
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= _LONGEST_NAME
        or not _NAME_CHARACTERS.issuperset(name)
    ):
        raise InvalidSpec(
            f"`{str(name)[:80]}` is not a valid name for a hyperparameter",
            "use letters, digits, `_` and `-`",
            at=(*at, str(name)),
        )
    return name


def _parameter(body: Any, at: At, base: float, depth: int) -> Parameter:
    if depth and not isinstance(body, Mapping):
        return Choice((_scalar(body, at),))
    if not isinstance(body, Mapping):
        raise InvalidSpec(
            f"hyperparameter `{at[-1]}` must be a mapping with a `type`, not {described(body)}",
            f"for example `{at[-1]}: {{type: choice, values: [1, 2]}}`",
            at=at,
        )
    kind = _kind(body, at)
    keys = KEYS[kind]
    for key in body:
        if key not in (*keys, "type"):
            raise unknown_key(str(key), ("type", *keys), at, inside=kind)
    for key in keys:
        if body.get(key) is None:
            raise InvalidSpec(f"`{at[-1]}`: `{kind}` needs `{key}`", f"add `{key}: …`", at=at)
    if kind == "choice":
        return _choice(body, at, base, depth)
    if kind == "randint":
        return Randint(_upper(body, at))
    log = "log" in kind
    q = _positive(body, "q", at) if "q" in keys else None
    if "sigma" in keys:
        return _normal(body, at, log, q, base)
    return _uniform(body, at, log, q, base)


def _kind(body: Mapping[Any, Any], at: At) -> str:
    written = body.get("type")
    kind = plain(written) if isinstance(written, str) else ""
    if kind in KEYS:
        return kind
    if written is None and "spec" in body:
        raise unknown_key("spec", ("type",), at, inside=str(at[-1]))
    if written is None:
        raise InvalidSpec(
            f"hyperparameter `{at[-1]}` has no `type`", f"use one of: {', '.join(KEYS)}", at=at
        )
    raise InvalidSpec(
        f"`{str(written)[:80]}` is not a type of hyperparameter",
        did_you_mean(str(written), KEYS),
        at=(*at, "type"),
    )


def _choice(body: Mapping[Any, Any], at: At, base: float, depth: int) -> Choice:
    values = body["values"]
    at = (*at, "values")
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
            read(value, (*at, index), base, depth + 1)
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


def _uniform(body: Mapping[Any, Any], at: At, log: bool, q: float | None, base: float) -> Uniform:
    low, high = _number(body, "min_value", at), _number(body, "max_value", at)
    if low >= high:
        raise InvalidSpec(
            f"`min_value` of `{at[-1]}` is {low:g}, which is not below `max_value`, {high:g}",
            "swap them, or use a choice of one value",
            at=(*at, "min_value"),
        )
    if log:
        _check_exponent(low, base, (*at, "min_value"))
        _check_exponent(high, base, (*at, "max_value"))
    uniform = Uniform(low, high, log, q, base)
    if q is not None and uniform.multiples[0] > uniform.multiples[1]:
        bounds = "{:g} and {:g}".format(*uniform.bounds)
        raise InvalidSpec(
            f"no multiple of {q:g} lies between {bounds}",
            "lower `q`, or move the bounds",
            at=(*at, "q"),
        )
    return uniform


def _normal(body: Mapping[Any, Any], at: At, log: bool, q: float | None, base: float) -> Normal:
    mu, sigma = _number(body, "mu", at), _positive(body, "sigma", at)
    if log:
        _check_exponent(abs(mu) + 10 * sigma, base, (*at, "sigma"))
    return Normal(mu, sigma, log, q, base)


def _check_exponent(exponent: float, base: float, at: At) -> None:
    if abs(exponent * math.log(base)) > _GREATEST_EXPONENT:
        raise InvalidSpec(
            f"{base:.4g} to the power of {exponent:g} is out of range",
            "the numbers of this function are exponents: write -11.5 for 1e-5",
            at=at,
        )


def _upper(body: Mapping[Any, Any], at: At) -> int:
    upper = body["upper"]
    if isinstance(upper, float) and upper.is_integer():
        upper = int(upper)
    if isinstance(upper, bool) or not isinstance(upper, int) or not 1 <= upper <= 2**53:
        raise InvalidSpec(
            f"`upper` must be a whole number of 1 or more, not {described(body['upper'])}",
            "values are 0 to `upper` - 1",
            at=(*at, "upper"),
        )
    return upper


def _positive(body: Mapping[Any, Any], key: str, at: At) -> float:
    value = _number(body, key, at)
    if value < 1e-12:
        raise InvalidSpec(
            f"`{key}` must be above 0, not {value:g}", f"for example `{key}: 0.1`", at=(*at, key)
        )
    return value


def _number(body: Mapping[Any, Any], key: str, at: At) -> float:
    value = body[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        # YAML 1.1 reads 1e-5 as text.
        try:
            value = float(value) if isinstance(value, str) and len(value) < 50 else None
        except ValueError:
            value = None
        if value is None:
            raise InvalidSpec(
                f"`{key}` must be a number, not {described(body[key])}",
                f"for example `{key}: 0.5`",
                at=(*at, key),
            )
    return _finite(value, (*at, key))


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
