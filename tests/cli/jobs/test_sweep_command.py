"""`yard job sweep` against the real server: wrong options, and sweeps that go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Yard
from cli.jobs.test_run_history import ask, real
from torchyard import InvalidInput, command
from torchyard.client.trials import documents

__all__ = ["ask", "real"]

JOB = """\
environment: python
command: python train.py ${{search_space.lr}}
limits: {timeout: 60}
"""
GOAL = ("--goal", "minimize:loss", "--trials", 4)
RANGE = ("--param", "lr=uniform:0,1")


@pytest.fixture
def job() -> str:
    Path("job.yml").write_text(JOB)
    return "job.yml"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--concurrent", 9), "error: --concurrent: `max_concurrent_trials` is 9"),
        (("--algorithm", "grid"), "error: --param lr: `lr` has a continuous range"),
        (("--algorithm", "grdi"), "error: --algorithm: `grdi` is not a sampling algorithm"),
        (("--param", "zz=int:1,2"), "error: --param zz: the command does not use"),
        (("--early-termination", "bandit:-1"), "error: --early-termination: `slack_factor`"),
        (("--early-termination", "truncation_selection:20.7"), "whole number from 1 to 99, not"),
        (("--set", "limits.timeout=x"), "error: --set limits.timeout: `trial_timeout` must be"),
        (("--set", "command=true ${{search_space.a}}"), "hint: add a range for `a` to the search"),
    ],
)
def test_what_an_option_says_wrong_is_told_at_the_option(
    ask: Yard, job: str, options: tuple[str | int, ...], message: str
) -> None:
    answer = ask("job", "sweep", "-f", job, *RANGE, *GOAL, *options)
    assert answer.code == 2 and message in answer.err, answer.err


def test_what_the_file_says_wrong_is_told_at_its_line(ask: Yard, job: str) -> None:
    Path(job).write_text(JOB.replace("60", "never"))
    answer = ask("job", "sweep", "-f", job, *RANGE, *GOAL)
    assert answer.code == 2 and "error: job.yml:3:10: `trial_timeout` must" in answer.err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("loguniform:1e-1,1e-5", "the first number must be below the second"),
        ("uniform:1,1", "the first number must be below the second"),
        ("quniform:2,1,1", "the first number must be below the second"),
        ("qloguniform:2,1,1", "the first number must be below the second"),
        ("uniform:a,1", "`a` is not a number"),
        ("normal:0,b", "`b` is not a number"),
        ("int:1,5.5", "`5.5` is not a whole number"),
        ("randint:many", "`many` is not a whole number"),
    ],
)
def test_a_wrong_range_is_told_in_its_own_numbers(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        documents.range_of("lr", text)
    assert caught.value.message == f"`{text}` is not a range for `lr`: {reason}"


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("bandit:0.1", {"type": "bandit", "slack_factor": 0.1}),
        ("Median-Stopping", {"type": "median_stopping"}),
        (
            "truncation_selection:20",
            {"type": "truncation_selection", "truncation_percentage": 20},
        ),
        (
            "truncation_selection:20.7",
            {"type": "truncation_selection", "truncation_percentage": 20.7},
        ),
        ("bandit", None),
        ("bandit:x", None),
        ("bandit:nan", None),
        ("median_stopping:1", None),
        ("median", None),
    ],
)
def test_a_policy_is_text_or_refused(text: str, policy: Any) -> None:
    if policy is not None:
        assert documents.policy_of(text) == policy
        return
    with pytest.raises(InvalidInput, match="is not a policy of early termination"):
        documents.policy_of(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameters": "lr=uniform:0,1"}, "the search space is not a mapping"),
        ({"parameters": {"lr": 5}}, "`5` is not a range for `lr`"),
        ({"parameters": {"lr": ["a", "b"]}}, "is not a range for `lr`"),
        ({"goal": None}, "`None` is not a goal"),
        ({"goal": "min:loss"}, "`min:loss` is not a goal"),
        ({"early_termination": "bandt:1"}, "`bandt:1` is not a policy"),
        ({"early_termination": 5}, "`5` is not a policy"),
    ],
)
def test_wrong_types_in_python_are_refused_by_name(changes: Any, message: str) -> None:
    job = command(command="python train.py ${{search_space.lr}}", environment="python")
    options = {"parameters": {"lr": "uniform:0,1"}, "goal": "minimize:loss", "trials": 4}
    with pytest.raises(InvalidInput, match=message):
        job.sweep(**{**options, **changes})


def test_a_sweep_goes_on_by_either_command(ask: Yard, job: str) -> None:
    made = ask("job", "sweep", "-f", job, *RANGE, *GOAL, "-n", "tuning", "-o", "json")
    assert made.code == 0, made.err
    for count, verb in ((7, ("sweep", "--extend")), (9, ("sweep-extend", "-n"))):
        answer = ask("job", *verb, "tuning", "--trials", count)
        assert answer.code == 0, answer.err
        again = ask("job", *verb, "tuning", "--trials", count)
        assert again.code == 2 and f"hint: give a number above {count}" in again.err
    assert ask("job", "cancel", "-n", "tuning").code == 0


@pytest.mark.parametrize(
    "option", [GOAL[:2], RANGE, ("-f", "job.yml"), ("--seed", 1), ("--concurrent", 1), ("-n", "b")]
)
def test_a_sweep_that_goes_on_takes_no_other_space(
    ask: Yard, job: str, option: tuple[str | int, ...]
) -> None:
    answer = ask("job", "sweep", "--extend", "tuning", "--trials", 9, *option)
    assert answer.code == 2 and "does not go with `--extend`" in answer.err


@pytest.mark.parametrize("missing", ["--file", "--param", "--goal", "--trials"])
def test_a_new_sweep_needs_a_file_a_range_a_goal_and_trials(ask: Yard, missing: str) -> None:
    options = {"--file": "job.yml", "--param": "lr=int:1,2", "--goal": "minimize:a", "--trials": 2}
    options.pop(missing)
    answer = ask("job", "sweep", *(word for pair in options.items() for word in pair))
    assert answer.code == 2 and f"error: missing option `{missing}`" in answer.err, answer.err
