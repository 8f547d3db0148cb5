"""From points of the unit cube to hyperparameters.

Owns: which coordinates a search space has, and the values that they stand for.
Leaves: the distributions to spec/search_space.py, choosing points to independent.py.
Always: each hyperparameter of each nested space has a coordinate of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from torchyard.sweeps.spec.search_space import (
    Choice,
    Normal,
    Parameter,
    Randint,
    SearchSpace,
    Uniform,
    Value,
)

# The normal distribution has no value at 0 and 1.
_LEAST, _MOST = 2.0**-53, 1 - 2.0**-53


def values(
    space: SearchSpace, quantile: Callable[[str], float], prefix: str = ""
) -> dict[str, Value]:
    """
    Args:
        quantile: from 0 to 1, of a coordinate by its name.
    """
    return {
        name: _value(parameter, quantile, f"{prefix}{name}")
        for name, parameter in space.parameters.items()
    }


def coordinates(space: SearchSpace, prefix: str = "") -> list[str]:
    """Their names, of nested spaces `choice/index/name`."""
    names = []
    for name, parameter in space.parameters.items():
        names.append(f"{prefix}{name}")
        if isinstance(parameter, Choice):
            for index, value in enumerate(parameter.values):
                if isinstance(value, SearchSpace):
                    names += coordinates(value, f"{prefix}{name}/{index}/")
    return names


def _value(parameter: Parameter, quantile: Callable[[str], float], name: str) -> Value:
    position = min(max(quantile(name), _LEAST), _MOST)
    if isinstance(parameter, Uniform | Normal):
        return parameter.at(position)
    if isinstance(parameter, Randint):
        return min(int(position * parameter.upper), parameter.upper - 1)
    index = min(int(position * len(parameter.values)), len(parameter.values) - 1)
    chosen = parameter.values[index]
    if isinstance(chosen, SearchSpace):
        return values(chosen, quantile, f"{name}/{index}/")
    return chosen
