"""Suggest the parameters of trials.

Owns: `Search`, which picks the algorithm and keeps the processes in which Optuna runs; whether
what an algorithm needs is installed.
Leaves: random and grid search to independent.py; adaptive samplers to study_process.py.
Always: where the file gives a seed, a suggestion depends on the seed, its number and the trials
that `needed` names, never on when it is asked for.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import threading
from collections import OrderedDict
from collections.abc import Sequence

from torchyard.base.errors import InvalidSpec
from torchyard.sweeps.search import independent
from torchyard.sweeps.search.known_trials import KnownTrial, Setup, needed
from torchyard.sweeps.search.study_process import StudyProcess
from torchyard.sweeps.spec.search_space import Value
from torchyard.sweeps.spec.sweep_spec import SweepSpec

__all__ = ["KnownTrial", "Search", "needed"]

_MOST_PROCESSES = 4
_LEAST_OPTUNA = 5
_NEEDED_PACKAGES = {"cmaes": ("cmaes",), "qmc": ("scipy",), "gp": ("scipy", "torch")}


class Search:
    """Suggests parameters; one for a server. Thread-safe."""

    def __init__(self, timeout_s: float = 120.0) -> None:
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._processes: OrderedDict[str, tuple[Setup, StudyProcess]] = OrderedDict()

    def check(self, spec: SweepSpec) -> None:
        """For submission.

        Raises:
            InvalidSpec: the sampler needs a package that is not installed.
        """
        if not spec.sampling.is_adaptive:
            return
        name = spec.sampling.algorithm
        missing = [
            package
            for package in ("optuna", *_NEEDED_PACKAGES.get(name, ()))
            if importlib.util.find_spec(package) is None
        ]
        if not missing and _optuna_release() < _LEAST_OPTUNA:
            missing = [f"optuna>={_LEAST_OPTUNA}"]
        if missing:
            extra = "pip install 'torchyard[sweeps]'"
            if "torch" in missing:
                extra += " torch"
            raise InvalidSpec(
                f"the sampler `{name}` needs {' and '.join(missing)} beside the server",
                f"run `{extra}` there, or use `sampling_algorithm: random`",
                code="extra_missing",
                at=("sampling_algorithm",),
            )

    def suggest(
        self,
        spec: SweepSpec,
        number: int,
        trials: Sequence[KnownTrial],
        *,
        key: str = "",
        earlier: Sequence[KnownTrial] = (),
    ) -> dict[str, Value] | None:
        """The parameters of trial `number`; None when the space is exhausted.

        Args:
            trials: all of the sweep's trials so far, those still running too.
            key: the sweep's id, under which a study is cached.
            earlier: trials of another sweep that this one goes on from; the same at each call.

        Raises:
            Timeout, Internal: the sampler did not answer in time, or failed.
        """
        points = () if isinstance(spec.warm_start, str) else spec.warm_start
        if number < len(points):
            return dict(points[number])
        seed = spec.sampling.seed or 0
        if spec.sampling.algorithm == "random":
            return independent.random_point(spec.space, seed, number)
        if spec.sampling.algorithm == "sobol":
            return independent.sobol_point(spec.space, seed, number - len(points))
        if spec.sampling.algorithm == "grid":
            return independent.grid_point(spec.space, number - len(points))
        process = self._process(key or spec.name, _setup(spec, earlier))
        return process.suggest(number, [trial for trial in trials if trial.number < number])

    def forget(self, key: str) -> None:
        """Drop what is cached of a sweep that has ended."""
        with self._lock:
            cached = self._processes.pop(key, None)
        if cached is not None:
            cached[1].close()

    def close(self) -> None:
        """End the processes."""
        with self._lock:
            cached = list(self._processes.values())
            self._processes.clear()
        for _, process in cached:
            process.close()

    def _process(self, key: str, setup: Setup) -> StudyProcess:
        dropped = []
        with self._lock:
            cached = self._processes.pop(key, None)
            if cached is not None and cached[0] != setup:
                dropped.append(cached[1])
                cached = None
            if cached is None:
                cached = (setup, StudyProcess(setup, self._timeout_s))
            self._processes[key] = cached
            while len(self._processes) > _MOST_PROCESSES:
                dropped.append(self._processes.popitem(last=False)[1][1])
        for process in dropped:
            process.close()
        return cached[1]


def _setup(spec: SweepSpec, earlier: Sequence[KnownTrial]) -> Setup:
    points = () if isinstance(spec.warm_start, str) else spec.warm_start
    return Setup(
        spec.space,
        spec.sampling.algorithm,
        spec.sampling.seed or 0,
        tuple(objective.goal for objective in spec.objectives),
        spec.limits.max_concurrent_trials if spec.sampling.is_seeded else 0,
        tuple(points),
        tuple(earlier),
        spec.sampling.constraints,
    )


def _optuna_release() -> int:
    """The first number of the release that is installed."""
    try:
        return int(importlib.metadata.version("optuna").partition(".")[0])
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return 0
