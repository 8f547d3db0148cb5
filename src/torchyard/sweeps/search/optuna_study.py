"""One sweep as a study of Optuna's.

Owns: the samplers by their names; the search space in Optuna's terms; the study, rebuilt from a
sweep's trials.
Leaves: running in a process of its own to process.py.
Always: the first suggestions come from one sampler asked in the order of the trials, as Optuna's
own `optimize` does; a study that was rebuilt asks again for those before, and so has the same
state. This module is imported by process.py alone: it imports Optuna.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler
from optuna.trial import Trial, TrialState

from torchyard.sweeps.search.known_trials import KnownTrial, Setup
from torchyard.sweeps.spec.search_space import (
    Choice,
    Normal,
    Parameter,
    Randint,
    SearchSpace,
    Uniform,
    Value,
    branches,
    choice_index,
    contains,
    multiple,
)

# Asking again takes as long as asking did. From this trial on TPE is seeded for each by itself.
_MOST_ASKED_AGAIN = {"tpe": 100, "gp": 0}
_ALL = 10**9
_LEAST_QUANTILE = 1e-9


class SweepStudy:
    """Suggests parameters, trial after trial; `known` has all that was ever told."""

    def __init__(self, setup: Setup) -> None:
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._setup = setup
        self._study = optuna.create_study(
            directions=list(setup.directions), sampler=self._sampler(setup.seed)
        )
        self._known: dict[int, KnownTrial] = {}
        self._trials: list[Trial] = []
        self._suggested: list[dict[str, Value]] = []
        self._reported: set[int] = set()
        for trial in setup.earlier:
            if contains(setup.space, trial.parameters):
                self._end(self._add(trial.parameters), trial)

    def suggest(self, number: int, trials: Sequence[KnownTrial]) -> dict[str, Value]:
        """
        Args:
            trials: those that are new or have changed since the last call.
        """
        self._known.update((trial.number, trial) for trial in trials)
        while len(self._suggested) <= number:
            self._next(is_last=len(self._suggested) == number)
        return self._suggested[number]

    def _next(self, is_last: bool) -> None:
        number = len(self._suggested)
        trial = self._known.get(number)
        asked_again = _MOST_ASKED_AGAIN.get(self._setup.algorithm, _ALL)
        if not is_last and trial is not None and (number >= asked_again or not self._setup.lag):
            self._trials.append(self._add(trial.parameters))
            self._suggested.append(trial.parameters)
            return
        self._tell_ended(number)
        if number >= asked_again or not self._setup.lag:
            self._study.sampler = self._sampler(_seed_of(self._setup.seed, number))
        if number < len(self._setup.warm_start):
            point = self._setup.warm_start[number]
            self._study.enqueue_trial(_encoded(self._setup.space, point)[0])
        optuna_trial = self._study.ask()
        parameters = _suggested(optuna_trial, self._setup.space)
        if number >= asked_again:
            _forget_relative(optuna_trial)
        if trial is not None and trial.parameters != parameters:
            # Made by another release of Optuna, or by a person: what was run counts.
            asked_id = optuna_trial.number
            self._study.tell(asked_id, state=TrialState.FAIL)
            optuna_trial, parameters = self._add(trial.parameters), trial.parameters
        self._trials.append(optuna_trial)
        self._suggested.append(parameters)

    def _tell_ended(self, number: int) -> None:
        """Tell what may be known when trial `number` is suggested."""
        lag = self._setup.lag
        behind = number - lag + 1 if lag else number
        for ended in range(behind):
            trial = self._known.get(ended)
            if ended in self._reported or trial is None or trial.state == "running":
                continue
            self._reported.add(ended)
            self._end(self._trials[ended], trial)

    def _add(self, parameters: Mapping[str, Value]) -> Trial:
        """A running trial with these parameters, without asking the sampler."""
        values, distributions = _encoded(self._setup.space, parameters)
        self._study.add_trial(
            optuna.trial.create_trial(
                state=TrialState.RUNNING, params=values, distributions=distributions
            )
        )
        newest = self._study.get_trials(deepcopy=False)[-1]
        return Trial(self._study, newest._trial_id)

    def _end(self, trial: Trial, outcome: KnownTrial) -> None:
        for metric, value in zip(self._setup.constraints, outcome.constraints, strict=False):
            if math.isfinite(value):
                trial.set_constraint(metric, value)
        is_valued = len(outcome.values) == len(self._setup.directions)
        if (
            outcome.state == "failed"
            or not is_valued
            or not all(map(math.isfinite, outcome.values))
        ):
            self._study.tell(trial.number, state=TrialState.FAIL)
        elif outcome.state == "stopped" and len(outcome.values) == 1:
            trial.report(outcome.values[0], outcome.intervals)
            self._study.tell(trial.number, state=TrialState.PRUNED)
        else:
            self._study.tell(trial.number, list(outcome.values))

    def _sampler(self, seed: int) -> BaseSampler:
        is_nested = any(branches(parameter) for parameter in self._setup.space.parameters.values())
        makers: dict[str, Callable[[], BaseSampler]] = {
            "tpe": lambda: optuna.samplers.TPESampler(
                seed=seed, group=is_nested and len(self._setup.directions) == 1
            ),
            "gp": lambda: optuna.samplers.GPSampler(seed=seed, deterministic_objective=False),
            "cmaes": lambda: optuna.samplers.CmaEsSampler(
                seed=seed, warn_independent_sampling=False
            ),
            "qmc": lambda: optuna.samplers.QMCSampler(
                seed=seed,
                scramble=True,
                warn_independent_sampling=False,
                warn_asynchronous_seeding=False,
            ),
            "nsgaii": lambda: optuna.samplers.NSGAIISampler(seed=seed),
            "nsgaiii": lambda: optuna.samplers.NSGAIIISampler(seed=seed),
        }
        return makers[self._setup.algorithm]()


def _forget_relative(trial: Trial) -> None:
    """Leave of a running trial what one that was added has, too: its parameters."""
    for key in trial.storage.get_trial_system_attrs(trial._trial_id):
        if "relative_params" in key:
            trial.storage.set_trial_system_attr(trial._trial_id, key, "")


def _seed_of(seed: int, number: int) -> int:
    return random.Random(f"{seed}:{number}").getrandbits(32)


def _suggested(trial: Trial, space: SearchSpace, prefix: str = "") -> dict[str, Value]:
    return {
        name: _suggested_value(trial, parameter, f"{prefix}{name}")
        for name, parameter in space.parameters.items()
    }


def _suggested_value(trial: Trial, parameter: Parameter, name: str) -> Value:
    distribution = _distribution(parameter)
    if isinstance(distribution, CategoricalDistribution):
        assert isinstance(parameter, Choice)
        suggested = trial.suggest_categorical(name, distribution.choices)
        if not _is_by_index(parameter):
            assert isinstance(suggested, str | int | float | bool)
            return suggested
        assert isinstance(suggested, int)
        chosen = parameter.values[suggested]
        if isinstance(chosen, SearchSpace):
            return _suggested(trial, chosen, f"{name}/{suggested}/")
        return chosen
    if isinstance(distribution, IntDistribution):
        return int(trial.suggest_int(name, distribution.low, distribution.high))
    assert isinstance(distribution, FloatDistribution)
    number = trial.suggest_float(
        name, distribution.low, distribution.high, step=distribution.step, log=distribution.log
    )
    if isinstance(parameter, Normal):
        return parameter.at(number)
    assert isinstance(parameter, Uniform)
    return parameter.rounded(number)


def _distribution(parameter: Parameter) -> BaseDistribution:
    if isinstance(parameter, Choice):
        if _is_by_index(parameter):
            return CategoricalDistribution(range(len(parameter.values)))
        return CategoricalDistribution(
            [value for value in parameter.values if not isinstance(value, SearchSpace)]
        )
    if isinstance(parameter, Randint):
        return IntDistribution(0, parameter.upper - 1)
    if isinstance(parameter, Normal):
        return FloatDistribution(_LEAST_QUANTILE, 1 - _LEAST_QUANTILE)
    if parameter.q is None:
        return FloatDistribution(*parameter.bounds, log=parameter.log)
    low, high = (float(multiple(factor, parameter.q)) for factor in parameter.multiples)
    if parameter.log:
        return FloatDistribution(low, high, log=True)
    return FloatDistribution(low, high, step=parameter.q)


def _is_by_index(choice: Choice) -> bool:
    """Whether Optuna, which takes 1 and True for the same, gets positions instead of values."""
    return len(set(choice.values) if not branches(choice) else ()) < len(choice.values)


def _encoded(
    space: SearchSpace, parameters: Mapping[str, Any], prefix: str = ""
) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
    """A trial's parameters as Optuna has them; they lie in the space."""
    values: dict[str, Any] = {}
    distributions: dict[str, BaseDistribution] = {}
    for name, parameter in space.parameters.items():
        path, value = f"{prefix}{name}", parameters[name]
        distribution = distributions[path] = _distribution(parameter)
        if isinstance(parameter, Choice):
            index = choice_index(parameter, value)
            assert index is not None
            chosen = parameter.values[index]
            values[path] = index if _is_by_index(parameter) else chosen
            if isinstance(chosen, SearchSpace):
                nested = _encoded(chosen, value, f"{path}/{index}/")
                values.update(nested[0])
                distributions.update(nested[1])
        elif isinstance(distribution, IntDistribution):
            values[path] = int(value)
        else:
            assert isinstance(distribution, FloatDistribution)
            number = parameter.quantile(value) if isinstance(parameter, Normal) else float(value)
            assert number is not None
            values[path] = min(max(number, distribution.low), distribution.high)
    return values, distributions
