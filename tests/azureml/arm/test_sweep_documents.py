"""Azure's sweep as our document and back, with what its clients send."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.azureml.arm import sweep_documents, sweep_resources
from torchyard.azureml.arm.job_documents import Reader
from torchyard.base.errors import InvalidSpec
from torchyard.sweeps.spec import sweep_spec

READER = Reader("default", lambda code: "a" * 64)
TRIAL = {
    "codeId": "/codes/x/versions/1",
    "environmentId": "azureml:python:1",
    "command": "python t.py --x ${{search_space.x}}",
    "environmentVariables": {"A": "b"},
    "distribution": {"distributionType": "PyTorch", "processCountPerInstance": 2},
    "resources": {"instanceCount": 2, "properties": {}},
}


def properties(**changes: Any) -> dict[str, Any]:
    return {
        "jobType": "Sweep",
        "displayName": "d",
        "experimentName": "e",
        "isArchived": False,
        "tags": {"a": "b"},
        "searchSpace": {"x": ["uniform", [0.1, 0.2]]},
        "samplingAlgorithm": {"samplingAlgorithmType": "Random"},
        "objective": {"goal": "minimize", "primaryMetric": "loss"},
        "limits": {
            "jobLimitsType": "Sweep",
            "maxTotalTrials": 6,
            "maxConcurrentTrials": 2,
            "timeout": "PT2H",
            "trialTimeout": "PT10M",
        },
        "trial": TRIAL,
        "resources": TRIAL["resources"],
        "computeId": "local",
        **changes,
    }


def read(**changes: Any) -> dict[str, Any]:
    return sweep_documents.read(READER, "s", properties(**changes))


def refusal(**changes: Any) -> InvalidSpec:
    with pytest.raises(InvalidSpec) as refused:
        sweep_spec.read(read(**changes))
    return refused.value


def test_a_sweep_of_the_sdk_is_a_sweep_file() -> None:
    assert read() == {
        "type": "sweep",
        "name": "s",
        "display_name": "d",
        "experiment_name": "e",
        "tags": {"a": "b"},
        "search_space": {"x": {"type": "uniform", "min_value": 0.1, "max_value": 0.2}},
        "sampling_algorithm": {"type": "random"},
        "objective": {"goal": "minimize", "primary_metric": "loss"},
        "limits": {
            "max_total_trials": 6,
            "max_concurrent_trials": 2,
            "timeout": 7200,
            "trial_timeout": 600,
        },
        "trial": {
            "code": f"snapshot:{'a' * 64}",
            "environment": "azureml:python:1",
            "command": "python t.py --x ${{search_space.x}}",
            "environment_variables": {"A": "b"},
            "distribution": {"type": "pytorch", "process_count_per_instance": 2},
            "resources": {"instance_count": 2},
        },
        "compute": "azureml:local",
    }


@pytest.mark.parametrize(
    "expression",
    [
        ["choice", [["a", 2, 0.5, True]]],
        ["choice", [[{"m": "a", "l": ["uniform", [0, 1]]}, {"m": "b", "k": 3}]]],
        ["randint", [5]],
        ["uniform", [-0.5, 2]],
        ["quniform", [1, 9, 2]],
        ["loguniform", [-6, -1]],
        ["qloguniform", [0, 3, 1]],
        ["normal", [1, 0.5]],
        ["qnormal", [10, 2, 1]],
        ["lognormal", [0, 1.5]],
        ["qlognormal", [1, 2, 1]],
    ],
    ids=lambda expression: expression[0],
)
def test_each_function_of_a_space_is_read_and_shown_again(expression: list[Any]) -> None:
    spec = sweep_spec.read(read(searchSpace={"x": expression}))
    assert sweep_resources.space(spec.space) == {"x": expression}


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ({"samplingAlgorithmType": "random", "seed": 3}, {"seed": 3}),
        (
            {"samplingAlgorithmType": "Random", "rule": "sobol", "seed": 3, "logbase": 10},
            {"rule": "Sobol", "seed": 3, "logbase": 10},
        ),
        ({"samplingAlgorithmType": "Grid"}, {}),
        ({"samplingAlgorithmType": "Bayesian"}, {}),
    ],
)
def test_each_sampling_is_read_and_shown_again(sent: dict[str, Any], shown: dict[str, Any]) -> None:
    spec = sweep_spec.read(read(samplingAlgorithm=sent, searchSpace={"x": ["randint", [4]]}))
    kind = sent["samplingAlgorithmType"].capitalize()
    assert sweep_resources.sampling(spec.sampling) == {"samplingAlgorithmType": kind, **shown}


@pytest.mark.parametrize(
    "policy",
    [
        {"policyType": "Bandit", "slackFactor": 0.1},
        {"policyType": "Bandit", "slackAmount": 0.2},
        {"policyType": "MedianStopping"},
        {"policyType": "TruncationSelection", "truncationPercentage": 20},
    ],
    ids=lambda policy: "-".join(policy),
)
def test_each_policy_is_read_and_shown_again(policy: dict[str, Any]) -> None:
    sent = {**policy, "evaluationInterval": 2, "delayEvaluation": 5}
    spec = sweep_spec.read(read(earlyTermination=sent))
    assert sweep_resources.termination(spec.early_termination) == sent


def test_the_slack_that_is_not_used_may_be_0() -> None:
    policy = {"policyType": "Bandit", "slackFactor": 0.0, "slackAmount": 0.2}
    spec = sweep_spec.read(read(earlyTermination=policy))
    shown = sweep_resources.termination(spec.early_termination)
    assert shown is not None and shown["slackAmount"] == 0.2 and "slackFactor" not in shown


def test_limits_are_shown_as_durations() -> None:
    assert sweep_resources.limits(sweep_spec.read(read()).limits) == {
        "jobLimitsType": "Sweep",
        "maxTotalTrials": 6,
        "maxConcurrentTrials": 2,
        "timeout": "PT2H",
        "trialTimeout": "PT10M",
    }


@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({"searchSpace": {"x": ["gamma", [1]]}}, ("properties", "searchSpace", "x")),
        ({"searchSpace": {"x": ["uniform", [1]]}}, ("properties", "searchSpace", "x")),
        ({"searchSpace": {"x": 3}}, ("properties", "searchSpace", "x")),
        ({"searchSpace": {"x": ["choice", ["a"]]}}, ("properties", "searchSpace", "x")),
        (
            {"samplingAlgorithm": {"samplingAlgorithmType": "Magic"}},
            ("properties", "samplingAlgorithm", "samplingAlgorithmType"),
        ),
        (
            {"earlyTermination": {"policyType": "Bandit", "patience": 3}},
            ("properties", "earlyTermination", "patience"),
        ),
        ({"limits": {"timeout": "two hours"}}, ("properties", "limits", "timeout")),
        ({"componentId": "x"}, ("properties", "componentId")),
    ],
)
def test_what_has_no_meaning_is_refused_with_its_place(
    changes: dict[str, Any], at: tuple[str, ...]
) -> None:
    assert tuple(refusal(**changes).at) == at


def test_a_space_that_is_nested_without_end_is_refused() -> None:
    expression: Any = ["randint", [2]]
    for _ in range(200):
        expression = ["choice", [[{"x": expression}]]]
    assert "nested" in refusal(searchSpace={"x": expression}).message
