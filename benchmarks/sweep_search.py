"""The best value after 60 trials: ours, Optuna's own `optimize`, and random search.

    python benchmarks/sweep_search.py [--trials 60] [--seeds 20]

Three standard functions, each with the same seeds in the same run. Needs `torchyard[sweeps]`.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

import optuna

from torchyard.sweeps.search.search import KnownTrial, Search
from torchyard.sweeps.spec.sweep_spec import SweepSpec, read

Function = Callable[[Sequence[float]], float]


def branin(x: Sequence[float]) -> float:
    bowl = (x[1] - 5.1 * x[0] ** 2 / (4 * math.pi**2) + 5 * x[0] / math.pi - 6) ** 2
    return bowl + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x[0]) + 10


def hartmann6(x: Sequence[float]) -> float:
    alpha = (1.0, 1.2, 3.0, 3.2)
    a = (
        (10, 3, 17, 3.5, 1.7, 8),
        (0.05, 10, 17, 0.1, 8, 14),
        (3, 3.5, 1.7, 10, 17, 8),
        (17, 8, 0.05, 10, 0.1, 14),
    )
    p = (
        (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
        (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
        (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
        (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
    )
    return -sum(
        weight * math.exp(-sum(a[i][j] * (x[j] - p[i][j]) ** 2 for j in range(6)))
        for i, weight in enumerate(alpha)
    )


def ackley5(x: Sequence[float]) -> float:
    square = sum(value**2 for value in x) / len(x)
    wave = sum(math.cos(2 * math.pi * value) for value in x) / len(x)
    return -20 * math.exp(-0.2 * math.sqrt(square)) - math.exp(wave) + 20 + math.e


FUNCTIONS: dict[str, tuple[Function, list[tuple[float, float]], float]] = {
    "Branin": (branin, [(-5, 10), (0, 15)], 0.397887),
    "Hartmann-6": (hartmann6, [(0, 1)] * 6, -3.32237),
    "Ackley-5": (ackley5, [(-32.768, 32.768)] * 5, 0.0),
}


def sweep(bounds: list[tuple[float, float]], sampler: str, trials: int, seed: int) -> SweepSpec:
    words = " ".join(f"${{{{search_space.x{index}}}}}" for index in range(len(bounds)))
    return read(
        {
            "type": "sweep",
            "trial": {"command": f"train {words}", "environment": "python"},
            "search_space": {
                f"x{index}": {"type": "uniform", "min_value": low, "max_value": high}
                for index, (low, high) in enumerate(bounds)
            },
            "objective": {"goal": "minimize", "primary_metric": "value"},
            "limits": {"max_total_trials": trials, "max_concurrent_trials": 1},
            "torchyard": {"sampler": sampler, "seed": seed},
        }
    )


def ours(function: Function, spec: SweepSpec, search: Search) -> list[float]:
    history: list[KnownTrial] = []
    for number in range(spec.limits.max_total_trials):
        point: Any = search.suggest(spec, number, history, key="benchmark")
        history.append(KnownTrial(number, point, "completed", (function(list(point.values())),)))
    return [trial.values[0] for trial in history]


def optunas(
    function: Function, bounds: list[tuple[float, float]], trials: int, seed: int
) -> list[float]:
    def objective(trial: optuna.Trial) -> float:
        return function(
            [trial.suggest_float(f"x{index}", *pair) for index, pair in enumerate(bounds)]
        )

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=trials)
    return [float(trial.value) for trial in study.trials if trial.value is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    search = Search()
    print(f"best of {options.trials} trials, mean over {options.seeds} seeds")
    print("| function | optimum | ours, tpe | Optuna's TPE | random | equal runs |")
    print("|---|---|---|---|---|---|")
    suggesting_s = 0.0
    for name, (function, bounds, optimum) in FUNCTIONS.items():
        tpe, plain, random = [], [], []
        equal = 0
        for seed in range(options.seeds):
            started = time.monotonic()
            values = ours(function, sweep(bounds, "tpe", options.trials, seed), search)
            suggesting_s += time.monotonic() - started
            reference = optunas(function, bounds, options.trials, seed)
            equal += values == reference
            tpe.append(min(values))
            plain.append(min(reference))
            random.append(
                min(ours(function, sweep(bounds, "random", options.trials, seed), search))
            )
        print(
            f"| {name} | {optimum:.4g} | {mean(tpe):.4f} | {mean(plain):.4f} | {mean(random):.4f} "
            f"| {equal} of {options.seeds} |",
            flush=True,
        )
    search.close()
    suggestions = len(FUNCTIONS) * options.seeds * options.trials
    print(f"a suggestion of ours, processes' starts included: {suggesting_s / suggestions:.4f} s")


if __name__ == "__main__":
    main()
