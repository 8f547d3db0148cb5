"""How a sweep searches: `sampling_algorithm` and `torchyard: {sampler, seed, constraints}`.

Owns: `Sampling`; which algorithms there are and what each can search.
Leaves: suggesting to search/.
Always: `algorithm` is one of `ALGORITHMS`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.base.documents.checks import At, By, Choice, Key
from torchyard.base.documents.models import declared
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described
from torchyard.sweeps.spec.search_space import Choice as ChoiceParameter
from torchyard.sweeps.spec.search_space import Parameter, Randint, SearchSpace, walk
from torchyard.sweeps.spec.search_space import Uniform as UniformParameter
from torchyard.sweeps.spec.typed import Typed, Types

OPTUNA = ("tpe", "gp", "cmaes", "qmc", "nsgaii", "nsgaiii")
"""Samplers of Optuna's, by their names there."""
ALGORITHMS = ("random", "sobol", "grid", *OPTUNA)
MOST_SOBOL = 65
# Optuna's name for what the grid does.
_EXHAUSTIVE = "brute_force"
_MOST_SEED = 2**32 - 1
_LEAST_BASE, _MOST_BASE = 1.0001, 1e6
SAMPLERS = Choice(**dict.fromkeys((*ALGORITHMS, _EXHAUSTIVE), Key()))


@dataclass(frozen=True)
class Sampling:
    """`seed` is None until one is drawn at submission. `is_seeded` says that the file gave it: such
    a sweep is repeatable.

    `constraints` are metrics; one above 0 makes the parameters of a trial infeasible.
    """

    algorithm: str
    seed: int | None = None
    is_seeded: bool = False
    logbase: float | None = None
    constraints: tuple[str, ...] = ()

    @property
    def is_adaptive(self) -> bool:
        """Whether suggestions depend on what earlier trials gave, or may."""
        return self.algorithm in OPTUNA

    @property
    def base(self) -> float:
        return math.e if self.logbase is None else self.logbase


def read_seed(value: Any, at: At) -> int:
    try:
        number = int(value) if isinstance(value, int | str) and len(str(value)) < 20 else -1
    except ValueError:
        number = -1
    if isinstance(value, bool) or not 0 <= number <= _MOST_SEED:
        raise InvalidSpec(
            f"`seed` must be a whole number from 0 to {_MOST_SEED}, not {described(value)}",
            "for example `seed: 42`",
            at=at,
        )
    return number


def _logbase(value: Any, at: At) -> float:
    if value in ("e", "E"):
        return math.e
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not _LEAST_BASE <= number <= _MOST_BASE:
        raise InvalidSpec(
            f"`logbase` must be a number above 1, or `e`, not {described(value)}",
            "for example `logbase: 10`",
            at=at,
        )
    return number


class RandomFile(Typed):
    seed: int | None = declared(None, check=By(read_seed))
    rule: str = declared("random", check=Choice(random=Key(), sobol=Key()))
    logbase: float | None = declared(None, check=By(_logbase))


TYPES = Types(
    "a sampling algorithm",
    {
        "random": (RandomFile, "each value by itself; `rule: sobol` for an even spread"),
        "grid": (
            Typed,
            "every combination once, the last name's values change fastest; no continuous ranges",
        ),
        "bayesian": (
            Typed,
            "Optuna's TPE; needs `pip install 'torchyard[sweeps]'` beside the server",
        ),
    },
    refused={
        name: Key(
            f"write `torchyard: {{sampler: {name}}}` for algorithms that Azure has not", "refused"
        )
        for name in ("sobol", *OPTUNA)
    },
)


def read(value: Any, at: At) -> Sampling | None:
    """None for an empty name.

    Raises:
        InvalidSpec: what is wrong, with its place.
    """
    if isinstance(value, str):
        kind: str = TYPES.read({str(at[-1]): value}, str(at[-1]), at[:-1], None)
        value = {"type": kind}
        if not kind:
            return None
    if not isinstance(value, Mapping):
        raise InvalidSpec(
            f"`sampling_algorithm` must be a name or a mapping, not {described(value)}",
            f"use one of: {', '.join(TYPES.files)}",
            at=at,
        )
    kind, file = TYPES.read_mapping(value or {"type": "random"}, at)
    if kind == "random":
        return Sampling(file.rule, file.seed, file.seed is not None, file.logbase)
    return Sampling("tpe" if kind == "bayesian" else kind)


def joined(
    written: Sampling | None, sampler: str | None, seed: int | None, constraints: tuple[str, ...]
) -> Sampling:
    """What `sampling_algorithm` and `torchyard:` say together; the latter's sampler goes first.

    Raises:
        InvalidSpec: neither names an algorithm, or their seeds differ.
    """
    if written is None and not sampler:
        raise InvalidSpec(
            "the sweep has no `sampling_algorithm`", f"use one of: {', '.join(TYPES.files)}"
        )
    written = written or Sampling("random")
    if None not in (seed, written.seed) and seed != written.seed:
        raise InvalidSpec(
            "the sweep has two seeds", "keep one", at=("properties", "torchyard.seed")
        )
    seed = written.seed if seed is None else seed
    algorithm = {_EXHAUSTIVE: "grid"}.get(sampler or "", sampler or written.algorithm)
    return Sampling(algorithm, seed, seed is not None, written.logbase, constraints)


def check(sampling: Sampling, space: SearchSpace, objectives: int) -> None:
    """The algorithm can search the space.

    Raises:
        InvalidSpec: it can't.
    """
    if sampling.algorithm == "grid":
        for name, parameter in walk(space):
            if not _is_finite(parameter):
                raise InvalidSpec(
                    f"`{name}` has a continuous range, which a grid can't search",
                    "use a choice, `randint` or `quniform`, or `sampling_algorithm: random`",
                    at=("search_space", *name.split(".")),
                )
    if sampling.algorithm == "sobol" and sum(1 for _ in walk(space)) > MOST_SOBOL:
        raise InvalidSpec(
            f"the search space has more than {MOST_SOBOL} hyperparameters, the most for sobol",
            "use `rule: random`, or `torchyard: {sampler: qmc}`",
            at=("sampling_algorithm",),
        )
    if sampling.algorithm == "cmaes" and objectives > 1:
        raise InvalidSpec(
            "cmaes searches for one objective, and the sweep has several",
            "use `torchyard: {sampler: tpe}` or `nsgaii`",
            at=("properties", "torchyard.sampler"),
        )


def _is_finite(parameter: Parameter) -> bool:
    return isinstance(parameter, ChoiceParameter | Randint) or (
        isinstance(parameter, UniformParameter) and parameter.q is not None
    )
