from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from torchyard.sweeps.spec.early_termination import (
    Asha,
    Bandit,
    MedianStopping,
    Policy,
    TruncationSelection,
)
from torchyard.sweeps.stopping.stopping import Scores


def flat(value: float, intervals: int = 100) -> list[float]:
    return [value] * intervals


def stop_reason(
    policy: Policy | None, goal: str, series: Sequence[float], others: Sequence[Sequence[float]]
) -> str | None:
    """What is said at the last value of `series`, logged after all of the others."""
    scores = Scores(policy, goal)
    for number, values in enumerate(others):
        for value in values:
            scores.add(number, value)
    reason = None
    for value in series:
        reason = scores.add(-1, value)
    return reason


@pytest.mark.parametrize(("best", "stops"), [(0.66, True), (0.67, False), (0.8, False)])
def test_bandit_by_factor_is_the_documents_example(best: float, stops: bool) -> None:
    """The best has 0.8 after 100 intervals, slack is 0.2: what is below 0.8 / 1.2 ends."""
    policy = Bandit(slack_factor=0.2, evaluation_interval=100)
    reason = stop_reason(policy, "maximize", flat(best), [flat(0.8), flat(0.3)])
    assert bool(reason) == stops
    if reason:
        assert "0.66 at interval 100" in reason and "0.8, the best" in reason


@pytest.mark.parametrize(("best", "stops"), [(0.59, True), (0.61, False)])
def test_bandit_by_amount_is_the_documents_example(best: float, stops: bool) -> None:
    policy = Bandit(slack_amount=0.2, evaluation_interval=100)
    assert bool(stop_reason(policy, "maximize", flat(best), [flat(0.8)])) == stops


def test_bandit_waits_for_the_interval_and_the_delay() -> None:
    policy = Bandit(slack_factor=0.2, evaluation_interval=100, delay_evaluation=200)
    ends = [
        n for n in range(1, 301) if stop_reason(policy, "maximize", flat(0.1, n), [flat(0.8, 300)])
    ]
    assert ends == [200, 300]


def test_bandit_of_a_lower_goal_allows_more_above() -> None:
    policy = Bandit(slack_factor=0.5)
    assert stop_reason(policy, "minimize", [1.51], [[1.0]])
    assert not stop_reason(policy, "minimize", [1.49], [[1.0]])
    assert not stop_reason(policy, "minimize", [-0.7], [[-1.0]])
    assert not stop_reason(policy, "maximize", [-1.4], [[-1.0]])


def test_bandit_compares_at_the_same_interval() -> None:
    policy = Bandit(slack_factor=0.1)
    assert not stop_reason(policy, "maximize", [0.5], [[0.5, 0.9, 0.95]])
    assert stop_reason(policy, "maximize", [0.5, 0.5], [[0.5, 0.9, 0.95]])


def test_bandit_goes_by_a_trials_best_value() -> None:
    policy = Bandit(slack_factor=0.1)
    assert not stop_reason(policy, "maximize", [0.9, 0.1], [[0.5, 0.9]])


def test_median_stopping_is_the_documents_example() -> None:
    """At interval 5 the best value is compared to the median of the averages of 1 to 5."""
    policy = MedianStopping(delay_evaluation=5)
    others = [[0.1, 0.2, 0.3, 0.4, 0.5], [0.5] * 5, [0.9] * 5]  # averages 0.3, 0.5, 0.9
    assert not stop_reason(policy, "maximize", flat(0.1, 4), others)
    reason = stop_reason(policy, "maximize", flat(0.39, 5), others)  # median of 0.3 0.39 0.5 0.9
    assert reason and "0.445" in reason
    assert not stop_reason(policy, "maximize", [0.1, 0.1, 0.1, 0.1, 0.45], others)


def test_truncation_selection_is_the_documents_example() -> None:
    """At interval 5 a trial ends that is in the lowest 20 % of all at interval 5."""
    policy = TruncationSelection(20, delay_evaluation=5)
    others = [[0.1] * 4 + [0.1 * rank] for rank in range(2, 11)]
    assert stop_reason(policy, "maximize", flat(0.15, 5), others)
    assert not stop_reason(policy, "maximize", flat(0.35, 5), others)
    assert not stop_reason(policy, "maximize", flat(0.15, 4), others)


def test_truncation_ends_nobody_while_all_are_equal_or_few() -> None:
    assert not stop_reason(TruncationSelection(50), "maximize", [0.5], [[0.5]] * 9)
    assert not stop_reason(TruncationSelection(20), "maximize", [0.1], [[0.5]] * 3)


def test_truncation_may_leave_out_trials_that_have_ended() -> None:
    def reason(policy: Policy) -> str | None:
        scores = Scores(policy, "maximize")
        for number in range(5):
            scores.add(number, 0.9)
            scores.finish(number)
        for number in (5, 6):
            scores.add(number, 0.4)
        return scores.add(7, 0.3)

    assert reason(TruncationSelection(40))
    assert not reason(TruncationSelection(30, exclude_finished_jobs=True))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("goal", ["minimize", "maximize"])
class TestNoFiniteNumber:
    @pytest.mark.parametrize("policy", [None, Bandit(slack_factor=9.0), Asha(9)])
    def test_ends_no_trial_that_has_a_good_value(
        self, policy: Policy | None, goal: str, value: float
    ) -> None:
        others = [[0.5, 0.5]]
        assert stop_reason(policy, goal, [value, 0.5], others) is None
        assert stop_reason(policy, goal, [0.5, value], others) is None

    @pytest.mark.parametrize(
        "policy", [Bandit(slack_amount=1.0), MedianStopping(), TruncationSelection(50)]
    )
    def test_is_worse_than_any_number_for_a_policy(
        self, policy: Policy, goal: str, value: float
    ) -> None:
        reason = stop_reason(policy, goal, [value, value], [[0.5, 0.5]] * 3)
        assert reason and "no finite number" in reason
        assert stop_reason(policy, goal, [value, value], [[value, value]] * 3) is None


def test_without_a_policy_trials_go_on() -> None:
    assert stop_reason(None, "minimize", [9.0], [[0.1]]) is None


def test_scores_are_the_same_when_they_are_added_again() -> None:
    policy = MedianStopping()
    values = [(number % 7, ((number * 37) % 11) / 11) for number in range(200)]
    runs = []
    for _ in range(2):
        scores = Scores(policy, "minimize")
        runs.append([scores.add(number, value) for number, value in values])
    assert runs[0] == runs[1]
    assert any(runs[0])
