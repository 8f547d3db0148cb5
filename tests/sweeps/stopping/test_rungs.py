from __future__ import annotations

import math

from torchyard.sweeps.spec.early_termination import Asha, Hyperband
from torchyard.sweeps.stopping.rungs import Climb, next_rung, promotable, reason, rungs, table

ASHA = Asha(max_intervals=27, reduction_factor=3)


def test_rungs_are_the_powers_of_the_factor_below_the_end() -> None:
    assert rungs(ASHA, 0) == (1, 3, 9)
    assert rungs(Asha(100, 10, 4), 5) == (10, 40)
    assert [next_rung(ASHA, 0, promotions) for promotions in range(4)] == [1, 3, 9, None]


def test_the_best_third_of_a_rung_is_promoted() -> None:
    climbs = {number: Climb([float(number)]) for number in range(7)}
    assert promotable(ASHA, "minimize", climbs) == [0, 1]
    assert promotable(ASHA, "maximize", climbs) == [6, 5]


def test_two_of_three_wait_for_a_third() -> None:
    climbs = {0: Climb([0.1]), 1: Climb([0.2])}
    assert promotable(ASHA, "minimize", climbs) == []
    assert promotable(ASHA, "minimize", {**climbs, 2: Climb([0.3])}) == [0]


def test_nobody_is_promoted_twice_at_a_rung() -> None:
    climbs = {number: Climb([float(number)]) for number in range(3)}
    climbs[0] = Climb([0.0], promotions=1)
    assert promotable(ASHA, "minimize", climbs) == []


def test_higher_rungs_come_first() -> None:
    climbs = {number: Climb([number / 10] * 3, promotions=1) for number in range(3)}
    climbs.update({number: Climb([number / 100]) for number in range(3, 12)})
    assert promotable(ASHA, "minimize", climbs) == [0, 3, 4, 5]


def test_a_trial_that_logged_more_before_it_was_stopped_still_waits() -> None:
    climbs = {0: Climb([0.1, 0.05, 0.04]), 1: Climb([0.2]), 2: Climb([0.3])}
    assert promotable(ASHA, "minimize", climbs) == [0]
    assert next_rung(ASHA, 0, climbs[0].promotions) == 1


def test_those_that_ended_or_diverged_are_not_promoted() -> None:
    climbs = {
        0: Climb([0.1], has_ended=True),
        1: Climb([math.nan]),
        **{number: Climb([float(number)]) for number in range(2, 6)},
    }
    assert promotable(ASHA, "minimize", climbs) == [2]


def test_the_reason_says_where_the_trial_stood() -> None:
    climbs = {number: Climb([float(number)]) for number in range(6)}
    text = reason(ASHA, "minimize", 4, climbs)
    assert text == "asha: value 4 at interval 1 is number 5 of 6 trials, of which 2 went on"


def test_hyperband_fills_its_brackets_one_by_one() -> None:
    policy = Hyperband(max_intervals=9, reduction_factor=3)
    starts = [rungs(policy, number) for number in range(34)]
    assert starts[:9] == [(1, 3)] * 9
    assert starts[9:14] == [(3,)] * 5
    assert starts[14:17] == [()] * 3
    assert starts[17:26] == [(1, 3)] * 9


def test_brackets_of_hyperband_compete_apart() -> None:
    policy = Hyperband(max_intervals=9, reduction_factor=3)
    climbs = {number: Climb([float(number)] * 3) for number in (9, 10, 11)}
    climbs.update({number: Climb([0.0]) for number in (0, 1)})
    assert promotable(policy, "minimize", climbs) == [9]
    assert "bracket 1" in reason(policy, "minimize", 10, climbs)


def test_a_promoted_trial_that_is_back_at_a_checkpoint_keeps_its_place() -> None:
    climbs = {number: Climb([float(number)]) for number in range(7)}
    climbs[0], climbs[1] = Climb([], promotions=1), Climb([], promotions=1)
    assert promotable(ASHA, "minimize", climbs) == []


def test_a_trial_that_logs_on_until_it_stops_is_at_no_rung_that_it_was_not_promoted_to() -> None:
    climbs = {number: Climb([float(number)] * 3) for number in range(3)}
    climbs.update({number: Climb([1.0] * 3, promotions=1) for number in (3, 4)})
    assert promotable(ASHA, "minimize", climbs) == [0]
    stopped = {number: Climb([0.0] * 3, has_ended=True, was_stopped=True) for number in (5, 6)}
    assert [r.interval for r in table(ASHA, "minimize", stopped)] == [1, 1]


def test_the_table_says_what_became_of_each_trial_at_each_rung() -> None:
    climbs = {
        0: Climb([0.3, 0.2, 0.1, 0.1], promotions=1),
        1: Climb([0.5]),
        2: Climb([0.6], has_ended=True, was_stopped=True),
        3: Climb([0.4] * 27, has_ended=True),
    }
    results = [
        (r.number, r.interval, r.value, r.rank, r.reached, r.decision)
        for r in table(ASHA, "minimize", climbs)
    ]
    assert results == [
        (0, 1, 0.3, 1, 4, "promoted"),
        (3, 1, 0.4, 2, 4, "ended"),
        (1, 1, 0.5, 3, 4, "waiting"),
        (2, 1, 0.6, 4, 4, "stopped"),
        (0, 3, 0.1, 1, 2, "waiting"),
        (3, 3, 0.4, 2, 2, "ended"),
        (3, 9, 0.4, 1, 1, "ended"),
    ]


def test_the_table_has_brackets_apart() -> None:
    policy = Hyperband(max_intervals=9, reduction_factor=3)
    climbs = {number: Climb([1.0] * 3) for number in (0, 9, 14)}
    rows = [(r.bracket, r.number, r.interval) for r in table(policy, "minimize", climbs)]
    assert rows == [(0, 0, 1), (1, 9, 3)]
