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

from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described, unknown_key
from torchyard.sweeps.spec.search_space import Choice, Parameter, Randint, SearchSpace, walk
from torchyard.sweeps.spec.search_space import Uniform as UniformParameter
from torchyard.sweeps.spec.words import one_of

OPTUNA = ("tpe", "gp", "cmaes", "qmc", "nsgaii", "nsgaiii")
"""Samplers of Optuna's, by their names there."""
ALGORITHMS = ("random", "sobol", "grid", *OPTUNA)
MOST_SOBOL = 65
# Optuna's name for what the grid does.
_EXHAUSTIVE = "brute_force"
_AZURE = ("random", "grid", "bayesian")
_KEYS = {"random": ("seed", "rule", "logbase"), "grid": (), "bayesian": ()}
_MOST_SEED = 2**32 - 1
_LEAST_BASE, _MOST_BASE = 1.0001, 1e6


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


def read(
    value: Any, sampler: str | None, seed: Any, constraints: tuple[str, ...], seed_at: str
) -> Sampling:
    """
    Args:
        value: of `sampling_algorithm`; None when it is left out.
        sampler: of `torchyard: {sampler: …}`, which goes first.
        seed: of `torchyard: {seed: …}`, as it was written.
        seed_at: where that stands.

    Raises:
        InvalidSpec: the first thing that is wrong, with its place.
    """
    at = ("sampling_algorithm",)
    body = {"type": value} if isinstance(value, str) else value
    if body is None and sampler is None:
        raise InvalidSpec(
            "the sweep has no `sampling_algorithm`", f"use one of: {', '.join(_AZURE)}"
        )
    if body is not None and not isinstance(body, Mapping):
        raise InvalidSpec(
            f"`sampling_algorithm` must be a name or a mapping, not {described(value)}",
            f"use one of: {', '.join(_AZURE)}",
            at=at,
        )
    body = body or {"type": "random"}
    kind = _kind(body, value, at)
    for key in body:
        if key not in ("type", *_KEYS[kind]):
            raise unknown_key(str(key), ("type", *_KEYS[kind]), at, inside=kind)
    rule = "random"
    if body.get("rule") is not None:
        rule = one_of(body, "rule", ("random", "sobol"), at)
    algorithm = {"random": rule, "grid": "grid", "bayesian": "tpe"}[kind]
    if sampler is not None:
        names = (*ALGORITHMS, _EXHAUSTIVE)
        algorithm = one_of({"sampler": sampler}, "sampler", names, ("torchyard",))
        algorithm = "grid" if algorithm == _EXHAUSTIVE else algorithm
    seeds = [
        _seed(written, key_path)
        for written, key_path in (
            (body.get("seed"), (*at, "seed")),
            (seed, ("properties", seed_at)),
        )
        if written is not None
    ]
    if len(set(seeds)) > 1:
        raise InvalidSpec("the sweep has two seeds", "keep one", at=("properties", seed_at))
    return Sampling(
        algorithm, seeds[0] if seeds else None, bool(seeds), _logbase(body, at), constraints
    )


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
            at=("torchyard", "sampler"),
        )


def _kind(body: Mapping[Any, Any], value: Any, at: tuple[str, ...]) -> str:
    try:
        return one_of(body, "type", _AZURE, at)
    except InvalidSpec as error:
        name = str(body.get("type"))[:80].lower()
        hint = error.hint
        if name in ALGORITHMS:
            hint = f"write `torchyard: {{sampler: {name}}}` for algorithms that Azure has not"
        message = f"{described(body.get('type'))} is not a sampling algorithm"
        key_path = at if isinstance(value, str) else (*at, "type")
        raise InvalidSpec(message, hint, at=key_path) from error


def _is_finite(parameter: Parameter) -> bool:
    return isinstance(parameter, Choice | Randint) or (
        isinstance(parameter, UniformParameter) and parameter.q is not None
    )


def _seed(value: Any, at: tuple[str, ...]) -> int:
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


def _logbase(body: Mapping[Any, Any], at: tuple[str, ...]) -> float | None:
    value = body.get("logbase")
    if value is None:
        return None
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
            at=(*at, "logbase"),
        )
    return number
