"""A sweep of the digits: the best value after 60 trials, and what early termination saves.

    python benchmarks/sweep_digits.py [--trials 60] [--seeds 20] [--epochs 27] [--at-once 4]

An objective is a real training: a network of one hidden layer, by NumPy, of scikit-learn's digits
in this process; its value is the loss on 360 images that it has not seen. The first table has our
TPE beside Optuna's own `optimize` and beside random search; runs are equal where all values are.
The second plays policies over the same recorded trainings of random parameters, trials at once as
the keeper runs them: what share of the trials' time is left, and the best value that was found,
beside Optuna's own pruners. Needs `torchyard[sweeps]` and scikit-learn.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np
import optuna
from sklearn.datasets import load_digits  # type: ignore[import-not-found,import-untyped,unused-ignore]
from sweep_search import ours, sweep

from torchyard.sweeps.search.search import Search
from torchyard.sweeps.spec.early_termination import (
    Asha,
    Bandit,
    Hyperband,
    MedianStopping,
    Policy,
    TruncationSelection,
)
from torchyard.sweeps.stopping import rungs
from torchyard.sweeps.stopping.rungs import Climb
from torchyard.sweeps.stopping.stopping import Scores

# The powers of ten of the learning rate and of the weight decay, the momentum, the weights' scale.
BOUNDS = [(-4.0, 0.5), (-6.0, -1.0), (0.0, 0.99), (0.1, 2.0)]
HIDDEN, BATCH, TEST_IMAGES, SEED = 32, 32, 360, 7
Curve = list[tuple[float, float]]
"""By epoch: the value after it, and the seconds that it took."""


class Digits:
    """The 1,797 digits, shuffled once and split. N images, P pixels, K classes."""

    def __init__(self) -> None:
        digits = load_digits()
        order_N = np.random.default_rng(SEED).permutation(len(digits.target))
        images_NP, targets_NK = digits.data[order_N] / 16.0, np.eye(10)[digits.target[order_N]]
        self.train = images_NP[TEST_IMAGES:], targets_NK[TEST_IMAGES:]
        self.test = images_NP[:TEST_IMAGES], targets_NK[:TEST_IMAGES]

    def curve(self, point: Sequence[float], epochs: int) -> Curve:
        """Train with these parameters; the same ones give the same values."""
        rate, decay, momentum, scale = 10 ** point[0], 10 ** point[1], point[2], point[3]
        random = np.random.default_rng(SEED)
        images_NP, targets_NK = self.train
        weights = [
            random.normal(0.0, scale / np.sqrt(64), (64, HIDDEN)), np.zeros(HIDDEN),
            random.normal(0.0, scale / np.sqrt(HIDDEN), (HIDDEN, 10)), np.zeros(10),
        ]  # fmt: skip
        moving = [np.zeros_like(each) for each in weights]
        curve: Curve = []
        for _ in range(epochs):
            begun = time.perf_counter()
            order_N = random.permutation(len(images_NP))
            for start in range(0, len(order_N), BATCH):
                batch = order_N[start : start + BATCH]
                gradients = _gradients(weights, images_NP[batch], targets_NK[batch])
                for weight, each, gradient in zip(weights, moving, gradients, strict=True):
                    each *= momentum
                    each -= rate * (gradient + decay * weight)
                    weight += each
            curve.append((self.loss(weights), time.perf_counter() - begun))
        return curve

    def loss(self, weights: list[Any]) -> float:
        images_NP, targets_NK = self.test
        chances_NK = _forward(weights, images_NP)[1]
        # As high as a loss gets, so that a diverged training has a value, too.
        value = float(-np.log(np.maximum((chances_NK * targets_NK).sum(axis=1), 1e-30)).mean())
        return value if np.isfinite(value) else 70.0

    def value(self, point: Sequence[float], epochs: int) -> float:
        return self.curve(point, epochs)[-1][0]


def _forward(weights: list[Any], images_BP: Any) -> tuple[Any, Any]:
    hidden_BH = np.maximum(images_BP @ weights[0] + weights[1], 0.0)
    scores_BK = hidden_BH @ weights[2] + weights[3]
    powers_BK = np.exp(scores_BK - scores_BK.max(axis=1, keepdims=True))
    return hidden_BH, powers_BK / powers_BK.sum(axis=1, keepdims=True)


def _gradients(weights: list[Any], images_BP: Any, targets_BK: Any) -> tuple[Any, ...]:
    hidden_BH, chances_BK = _forward(weights, images_BP)
    error_BK = (chances_BK - targets_BK) / len(images_BP)
    error_BH = (error_BK @ weights[2].T) * (hidden_BH > 0)
    return images_BP.T @ error_BH, error_BH.sum(0), hidden_BH.T @ error_BK, error_BK.sum(0)


@dataclass(frozen=True)
class Played:
    """What was left of a sweep: seconds of training, and the best last value of a whole trial."""

    seconds: float
    best: float


def play(policy: Policy | None, curves: Sequence[Curve], at_once: int) -> Played:
    """The trials in the order of their numbers, `at_once` of them an epoch at a time."""
    if isinstance(policy, Asha | Hyperband):
        return _climb(policy, curves, at_once)
    scores, seconds, best = Scores(policy, "minimize"), 0.0, float("inf")
    waiting, running = list(range(len(curves)))[::-1], dict[int, int]()
    while waiting or running:
        while waiting and len(running) < at_once:
            running[waiting.pop()] = 0
        for number, epoch in list(running.items()):
            value, took_s = curves[number][epoch]
            seconds += took_s
            best = min(best, value)
            running[number] = epoch + 1
            if scores.add(number, value) or epoch + 1 == len(curves[number]):
                scores.finish(number)
                del running[number]
    return Played(seconds, best)


def _climb(policy: Asha | Hyperband, curves: Sequence[Curve], at_once: int) -> Played:
    """As running/climbing.py does it; a paused trial goes on at its own epoch."""
    series: dict[int, list[float]] = {}
    promotions: dict[int, int] = {}
    seconds, best, ended, running = 0.0, float("inf"), set[int](), set[int]()
    while True:
        climbs = {n: Climb(series[n], promotions[n], n in ended) for n in series}
        for number in rungs.promotable(policy, "minimize", climbs):
            if len(running) < at_once and number not in running:
                promotions[number] += 1
                running.add(number)
        while len(running) < at_once and len(series) < len(curves):
            running.add(len(series))
            promotions[len(series)], series[len(series)] = 0, []
        if not running:
            return Played(seconds, best)
        for number in sorted(running):
            value, took_s = curves[number][len(series[number])]
            series[number].append(value)
            seconds += took_s
            best = min(best, value)
            rung = rungs.next_rung(policy, number, promotions[number])
            if len(series[number]) == len(curves[number]):
                ended.add(number)
            if number in ended or len(series[number]) == rung:
                running.discard(number)


def pruned(pruner: optuna.pruners.BasePruner, curves: Sequence[Curve]) -> Played:
    """The same trials by Optuna, one after the other, as it prunes them."""
    seconds, best = 0.0, float("inf")
    study = optuna.create_study(pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=1))
    for curve in curves:
        trial = study.ask()
        for epoch, (value, took_s) in enumerate(curve, 1):
            seconds += took_s
            best = min(best, value)
            trial.report(value, epoch)
            if epoch < len(curve) and trial.should_prune():
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                break
        else:
            study.tell(trial, curve[-1][0])
    return Played(seconds, best)


def _policies(epochs: int) -> list[tuple[str, Policy, Callable[[], optuna.pruners.BasePruner]]]:
    """Ours, each with the most alike that Optuna has."""
    delay = max(epochs // 5, 1)
    median = lambda: optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=delay)  # noqa: E731
    halving = lambda: optuna.pruners.SuccessiveHalvingPruner(1, 3)  # noqa: E731
    band = lambda: optuna.pruners.HyperbandPruner(1, epochs, 3)  # noqa: E731
    threshold = lambda: optuna.pruners.PercentilePruner(80.0, 5, delay)  # noqa: E731
    return [
        ("bandit, slack_factor 0.5", Bandit(0.5, None, 1, delay), median),
        ("median_stopping", MedianStopping(1, delay), median),
        ("truncation_selection, 20 %", TruncationSelection(20, 1, delay), threshold),
        ("asha", Asha(epochs), halving),
        ("hyperband", Hyperband(epochs), band),
    ]


def search_table(digits: Digits, options: argparse.Namespace) -> None:
    search, equal = Search(), 0
    tpe: list[float] = []
    plain: list[float] = []
    random: list[float] = []
    for seed in range(options.seeds):

        def objective(point: Sequence[float]) -> float:
            return digits.value(point, options.search_epochs)

        spec = sweep(BOUNDS, "tpe", options.trials, seed)
        values = ours(objective, spec, search)
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        study.optimize(
            lambda trial: objective(
                [trial.suggest_float(f"x{n}", *pair) for n, pair in enumerate(BOUNDS)]
            ),
            n_trials=options.trials,
        )
        reference = [float(trial.value) for trial in study.trials if trial.value is not None]
        equal += values == reference
        tpe.append(min(values))
        plain.append(min(reference))
        spec = sweep(BOUNDS, "random", options.trials, seed)
        random.append(min(ours(objective, spec, search)))
    search.close()
    print(f"\nbest loss of {options.trials} trials, mean over {options.seeds} seeds")
    print("| search | best loss | ours/this | runs whose values are all equal |\n|---|---|---|---|")
    print(f"| ours, TPE | {mean(tpe):.4f} | 1.00 | |")
    print(f"| Optuna's TPE | {mean(plain):.4f} | {mean(tpe) / mean(plain):.2f} "
          f"| {equal} of {options.seeds} |")  # fmt: skip
    print(f"| random | {mean(random):.4f} | {mean(tpe) / mean(random):.2f} | |", flush=True)


def stopping_table(digits: Digits, options: argparse.Namespace) -> None:
    search, sweeps = Search(), []
    for seed in range(options.seeds):
        spec = sweep(BOUNDS, "random", options.trials, seed)
        points: list[Any] = [search.suggest(spec, n, []) for n in range(options.trials)]
        sweeps.append([digits.curve(list(each.values()), options.epochs) for each in points])
    sequential = [play(None, curves, options.at_once) for curves in sweeps]
    whole_s, best = (
        mean(each.seconds for each in sequential),
        mean(each.best for each in sequential),
    )
    shown = f"{whole_s:.1f} s of training, best loss {best:.4f}, mean over {options.seeds} seeds"
    print(
        f"\n{options.trials} trials of {options.epochs} epochs, {options.at_once} at once: {shown}"
    )
    print("| policy | share of the time | best loss | as good as without it "
          "| Optuna's pruner | its share | its best loss | time, ours/this |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for name, policy, make in _policies(options.epochs):
        sweeps_of_ours = [play(policy, curves, options.at_once) for curves in sweeps]
        peer = [pruned(make(), curves) for curves in sweeps]
        own_s, peer_s = (
            mean(each.seconds for each in sweeps_of_ours),
            mean(each.seconds for each in peer),
        )
        equal = sum(a.best <= b.best for a, b in zip(sweeps_of_ours, sequential, strict=True))
        print(
            f"| {name} | {own_s / whole_s:.2f} | {mean(each.best for each in sweeps_of_ours):.4f} "
            f"| {equal} of {options.seeds} | {type(make()).__name__} | {peer_s / whole_s:.2f} "
            f"| {mean(each.best for each in peer):.4f} | {own_s / peer_s:.2f} |",
            flush=True,
        )
    search.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=27, help="of a whole trial, second table")
    parser.add_argument("--search-epochs", type=int, default=5, help="of a trial, first table")
    parser.add_argument("--at-once", type=int, default=4)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    np.seterr(all="ignore")  # parameters that diverge are a part of the search
    digits = Digits()
    search_table(digits, options)
    stopping_table(digits, options)


if __name__ == "__main__":
    main()
