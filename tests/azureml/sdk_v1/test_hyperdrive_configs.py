"""SDK v1's HyperDriveConfig as a sweep's file and back, with what its client sends."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.azureml.arm import sweep_resources
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.sdk_v1 import hyperdrive_configs
from torchyard.base.errors import TorchyardError
from torchyard.sweeps.spec import sweep_spec
from torchyard.sweeps.spec.sweep_spec import SweepSpec

COMMAND = "python train.py --num_epochs 3"


def config(**changes: Any) -> dict[str, Any]:
    return {
        "generator_config": {
            "name": "RANDOM",
            "parameter_space": {
                "--lr": ["uniform", [0.1, 0.2]],
                "opt": ["choice", [["a", "b c"]]],
            },
        },
        "max_concurrent_jobs": 2,
        "max_duration_minutes": 10080,
        "max_total_jobs": 4,
        "name": "hd",
        "platform": "AML",
        "policy_config": {"name": "Default"},
        "primary_metric_config": {"goal": "maximize", "name": "acc"},
        **changes,
    }


def spec_of(**changes: Any) -> SweepSpec:
    keys = hyperdrive_configs.sweep_keys(config(**changes))
    command = hyperdrive_configs.with_parameters(COMMAND, keys["search_space"])
    trial = {"command": command, "environment": "azureml:python:1"}
    return sweep_spec.read({"type": "sweep", "name": "HD_1", **keys, "trial": trial})


def refusal(**changes: Any) -> TorchyardError:
    with pytest.raises(TorchyardError) as refused:
        spec_of(**changes)
    return refused.value


def test_parameters_are_arguments_behind_the_scripts_own() -> None:
    trial = spec_of().trial_document(0, {"--lr": 0.125, "opt": "b c"})
    assert trial["name"] == "HD_1_0"
    assert trial["command"] == f"{COMMAND} --lr 0.125 --opt 'b c'"


def test_limits_and_objective() -> None:
    spec = spec_of()
    assert (spec.limits.max_total_trials, spec.limits.max_concurrent_trials) == (4, 2)
    assert spec.limits.timeout_s == 10080 * 60
    assert (spec.objective.primary_metric, spec.objective.goal) == ("acc", "maximize")


def test_more_runs_at_once_than_there_are_run_all_at_once() -> None:
    assert spec_of(max_concurrent_jobs=50).limits.max_concurrent_trials == 4


@pytest.mark.parametrize("name", ["RANDOM", "GRID", "BayesianOptimization"])
def test_each_sampling_is_read_and_shown_again(name: str) -> None:
    space = {"n": ["choice", [[0, 1, 2]]], "m": ["choice", [[1]]]}
    generator = {"name": name, "parameter_space": space}
    spec = spec_of(generator_config=generator)
    shown = sweep_resources.space(spec.space)
    assert hyperdrive_configs.generator_json(spec.sampling.algorithm, shown) == generator


@pytest.mark.parametrize(
    "policy",
    [
        {
            "name": "Bandit",
            "properties": {"evaluation_interval": 1, "delay_evaluation": 10, "slack_factor": 0.15},
        },
        {
            "name": "Bandit",
            "properties": {"evaluation_interval": 2, "delay_evaluation": 0, "slack_amount": 0.2},
        },
        {"name": "MedianStopping", "properties": {"evaluation_interval": 1, "delay_evaluation": 5}},
        {
            "name": "TruncationSelection",
            "properties": {
                "evaluation_interval": 1,
                "delay_evaluation": 5,
                "truncation_percentage": 20,
                "exclude_finished_jobs": True,
            },
        },
        {"name": "Default"},
    ],
    ids=lambda policy: policy["name"],
)
def test_each_policy_is_read_and_shown_again(policy: dict[str, Any]) -> None:
    spec = spec_of(policy_config=policy)
    assert hyperdrive_configs.policy_json(spec.early_termination) == policy


def test_a_value_that_is_no_function_is_the_only_choice() -> None:
    space = {"n": 3, "m": ["choice", [["x", "y"]]]}
    spec = spec_of(generator_config={"name": "RANDOM", "parameter_space": space})
    assert sweep_resources.space(spec.space)["n"] == ["choice", [[3]]]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"generator_config": {"name": "Magic", "parameter_space": {"a": 1}}}, "`Magic`"),
        ({"policy_config": {"name": "Patience"}}, "`Patience`"),
        ({"policy_config": {"name": "Bandit", "properties": {"patience": 3}}}, "`patience`"),
        ({"max_total_jobs": None}, "max_total_runs"),
        ({"max_total_jobs": 0}, "max_total_runs"),
        ({"primary_metric_config": {"goal": "upwards", "name": "acc"}}, "`upwards`"),
    ],
)
def test_what_has_no_meaning_is_refused_by_its_name(changes: dict[str, Any], says: str) -> None:
    assert says in str(refusal(**changes))


def test_pipelines_are_refused_by_their_name() -> None:
    error = refusal(platform="AMLPipelines")
    assert isinstance(error, NotServed) and "`pipeline`" in error.message
