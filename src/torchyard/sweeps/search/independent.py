"""Random, quasi-random and grid search: each trial by itself.

Owns: the points that they choose.
Leaves: the values at points to quantiles.py; searches that learn to optuna_study.py.
Always: a trial's parameters depend on the seed and its number alone.
"""

from __future__ import annotations

import random

from torchyard.sweeps.search import quantiles, sobol
from torchyard.sweeps.spec.search_space import (
    Choice,
    Parameter,
    Randint,
    Scalar,
    SearchSpace,
    Uniform,
    Value,
    multiple,
)


def random_point(space: SearchSpace, seed: int, number: int) -> dict[str, Value]:
    return quantiles.values(space, lambda name: random.Random(f"{seed}:{number}:{name}").random())


def sobol_point(space: SearchSpace, seed: int, number: int) -> dict[str, Value]:
    """Raises ValueError when the space has more coordinates than `sobol.MOST_COORDINATES`."""
    names = quantiles.coordinates(space)
    point = sobol.point(number, len(names), seed)
    return quantiles.values(space, dict(zip(names, point, strict=True)).__getitem__)


def grid_point(space: SearchSpace, number: int) -> dict[str, Value] | None:
    """The values of the last name change fastest; None behind the last combination."""
    if number >= grid_size(space):
        return None
    point: dict[str, Value] = {}
    for name, parameter in reversed(list(space.parameters.items())):
        size = _size(parameter)
        point[name] = _nth(parameter, number % size)
        number //= size
    return {name: point[name] for name in space.parameters}


def grid_size(space: SearchSpace) -> int:
    """How many combinations there are."""
    size = 1
    for parameter in space.parameters.values():
        size *= _size(parameter)
    return size


def _size(parameter: Parameter) -> int:
    if isinstance(parameter, Randint):
        return parameter.upper
    if isinstance(parameter, Choice):
        return sum(
            grid_size(value) if isinstance(value, SearchSpace) else 1
            for value in _distinct(parameter)
        )
    assert isinstance(parameter, Uniform), "checked at submission"
    least, maximum = parameter.multiples
    return maximum - least + 1


def _nth(parameter: Parameter, index: int) -> Value:
    if isinstance(parameter, Randint):
        return index
    if isinstance(parameter, Choice):
        for value in _distinct(parameter):
            size = grid_size(value) if isinstance(value, SearchSpace) else 1
            if index < size:
                break
            index -= size
        if isinstance(value, SearchSpace):
            point = grid_point(value, index)
            assert point is not None
            return point
        return value
    assert isinstance(parameter, Uniform) and parameter.q is not None
    return multiple(parameter.multiples[0] + index, parameter.q)


def _distinct(choice: Choice) -> list[Scalar | SearchSpace]:
    values: list[Scalar | SearchSpace] = []
    seen = set()
    for value in choice.values:
        key = repr(value) if isinstance(value, SearchSpace) else (isinstance(value, bool), value)
        if key not in seen:
            seen.add(key)
            values.append(value)
    return values
