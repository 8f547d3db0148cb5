from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from torchyard.base.errors import InvalidSpec
from torchyard.jobs.spec import job_spec
from torchyard.sweeps.spec import early_termination, keys, sampling, space_reading
from torchyard.sweeps.spec.early_termination import Asha, Bandit, Hyperband, TruncationSelection
from torchyard.sweeps.spec.sweep_spec import Limits, Objective, SweepSpec, read

# As cli/jobs/basics/hello-sweep.yml of Azure's examples is written.
HELLO = """
$schema: https://azuremlschemas.azureedge.net/latest/sweepJob.schema.json
type: sweep
trial:
  command: >-
    python hello-sweep.py
    --A ${{inputs.A}}
    --B ${{search_space.B}}
    --C ${{search_space.C}}
  code: src
  environment: azureml:AzureML-sklearn-1.5@latest
inputs:
  A: 0.5
sampling_algorithm: random
search_space:
  B:
    type: choice
    values: ["hello", "world", "hello_world"]
  C:
    type: uniform
    min_value: 0.1
    max_value: 1.0
objective:
  goal: minimize
  primary_metric: random_metric
limits:
  max_total_trials: 4
  max_concurrent_trials: 2
  timeout: 3600
experiment_name: hello-sweep-example
"""


def document(**changes: Any) -> dict[str, Any]:
    return {**yaml.safe_load(HELLO), **changes}


def changed(path: str, value: Any) -> dict[str, Any]:
    body = copy.deepcopy(document())
    *parents, last = path.split(".")
    parent = body
    for key in parents:
        parent = parent.setdefault(key, {})
    if value is None:
        parent.pop(last, None)
    else:
        parent[last] = value
    return body


def refused(body: Any) -> InvalidSpec:
    with pytest.raises(InvalidSpec) as error:
        read(body)
    assert error.value.hint
    return error.value


def test_a_sweep_of_azures_examples_is_read() -> None:
    spec = read(document())
    assert spec.objectives == (Objective("random_metric", "minimize"),)
    assert spec.limits == Limits(4, 2, 3600.0, 0.0)
    assert spec.sampling.algorithm == "random" and not spec.sampling.is_seeded
    assert list(spec.space.parameters) == ["B", "C"]
    assert spec.notices == ()


def test_the_document_of_a_trial_is_a_job_file() -> None:
    spec = dataclasses.replace(read(document()), name="sweep")
    trial = spec.trial_document(3, {"B": "world", "C": 0.25})
    assert trial["name"] == "sweep_3" and trial["parent_job_name"] == "sweep"
    assert trial["command"] == "python hello-sweep.py --A ${{inputs.A}} --B world --C 0.25"
    assert trial["inputs"] == {"A": 0.5}
    job = job_spec.read(trial)
    assert job.environment_variables == {"AZUREML_SWEEP_B": "world", "AZUREML_SWEEP_C": "0.25"}
    assert job.experiment_name == "hello-sweep-example"


def test_what_the_sweep_gives_its_trials_reaches_them() -> None:
    body = document(
        compute="azureml:gpu",
        resources={"instance_count": 2, "shm_size": "1g"},
        queue_settings={"job_tier": "spot"},
        torchyard={"seed": 3, "retry": {"max_attempts": 2}},
    )
    body["trial"]["resources"] = {"instance_count": 3}
    body["limits"]["trial_timeout"] = 60
    body["trial"]["environment_variables"] = {"A": "b"}
    trial = read(body).trial_document(0, {"B": "hello", "C": 0.5})
    assert trial["resources"] == {"instance_count": 3, "shm_size": "1g"}
    assert trial["limits"] == {"timeout": 60.0}
    assert trial["compute"] == "azureml:gpu" and trial["queue_settings"] == {"job_tier": "spot"}
    assert trial["properties"] == {"torchyard.retry.max_attempts": "2"}
    assert trial["environment_variables"]["A"] == "b"


def test_a_hyperparameter_that_looks_like_a_secret_is_not_masked() -> None:
    body = document(
        search_space={"api_key": {"type": "choice", "values": [512]}},
        trial={"command": "run ${{search_space.api_key}}", "environment": "python"},
    )
    trial = read(body).trial_document(0, {"api_key": 512})
    assert trial["properties"] == {"torchyard.not_secrets": "AZUREML_SWEEP_api_key"}


@pytest.mark.parametrize("goal", ["Minimize", "MINIMIZE", "minimize"])
def test_goals_are_read_in_any_case(goal: str) -> None:
    assert read(changed("objective.goal", goal)).objective.goal == "minimize"


def test_limits_have_azures_defaults() -> None:
    assert read(changed("limits", None)).limits == Limits(1000, 1000, 5_184_000.0, 0.0)
    assert read(document(limits={"max_total_trials": 7})).limits.max_concurrent_trials == 7


@pytest.mark.parametrize(
    ("path", "value", "at", "words"),
    [
        ("objective.goal", "lower", ("objective", "goal"), "`lower` is not a valid `goal`"),
        ("objective", None, (), "no `objective`"),
        ("objective.primary_metric", 3, ("objective", "primary_metric"), "name of a metric"),
        ("search_space", None, (), "no `search_space`"),
        ("search_space", {}, ("search_space",), "at least one"),
        ("sampling_algorithm", None, (), "no `sampling_algorithm`"),
        ("sampling_algorithm", "bayes", ("sampling_algorithm",), "`bayes`"),
        ("sampling_algorithm", "grid", ("search_space", "C"), "continuous range"),
        ("sampling_algorithm", {"type": "grid", "seed": 1}, ("sampling_algorithm", "seed"), "seed"),
        ("sampling_algorithm", {"type": "random", "seed": -1}, ("sampling_algorithm", "seed"), ""),
        ("limits.max_concurrent_trials", 5, ("limits", "max_concurrent_trials"), "is 5"),
        ("limits.max_total_trials", 0, ("limits", "max_total_trials"), "1 or more"),
        ("limits.timeout", "1h", ("limits", "timeout"), "seconds"),
        ("limits.trials", 3, ("limits", "trials"), "unknown key"),
        ("trial", None, (), "no `trial`"),
        ("trial.environment", None, ("trial", "environment"), "no `environment`"),
        ("trial.inputs", {}, ("trial", "inputs"), "unknown key"),
        ("trial.command", "x ${{search_space.B}} ${{search_space.D}}", ("trial", "command"), "`D`"),
        ("trial.command", "x ${{search_space.B}}", ("search_space", "C"), "does not use"),
        ("trial.distribution", {"type": "pytorc"}, ("trial", "distribution", "type"), "pytorc"),
        ("name", "a" * 254, ("name",), "254 characters"),
        ("serach_space", {}, ("serach_space",), "unknown key"),
        ("status", "Running", ("status",), "not served"),
        ("type", "command", ("type",), "command"),
        ("early_termination", {"type": "bandit"}, ("early_termination",), "slack_factor"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(
    path: str, value: Any, at: tuple[str, ...], words: str
) -> None:
    error = refused(changed(path, value))
    assert error.at == at
    assert words in error.message


def test_the_message_for_a_parameter_that_is_missing_names_the_nearest() -> None:
    body = changed("trial.command", "x ${{search_space.B}} ${{search_space.CC}}")
    assert refused(body).hint == "did you mean `C`?"


@pytest.mark.parametrize(
    ("body", "policy"),
    [
        ({"type": "bandit", "slack_factor": 0.1}, Bandit(0.1, None, 1, 0)),
        (
            {"type": "Bandit", "slack_factor": 0.15, "slack_amount": 0, "evaluation_interval": 0},
            Bandit(0.15, None, 1, 0),
        ),
        ({"type": "bandit", "slack_amount": 2, "delay_evaluation": 5}, Bandit(None, 2.0, 1, 5)),
        (
            {"type": "truncation_selection", "truncation_percentage": 20},
            TruncationSelection(20, 1, 0),
        ),
    ],
)
def test_policies_are_read(body: dict[str, Any], policy: object) -> None:
    assert read(document(early_termination=body)).early_termination == policy


def test_policies_of_ours_are_read_from_the_mapping_and_from_properties() -> None:
    body = {"type": "asha", "max_intervals": 27}
    spec = read(document(torchyard={"early_termination": body}))
    assert spec.early_termination == Asha(27)
    properties = {
        "torchyard.early_termination.type": "hyperband",
        "torchyard.early_termination.max_intervals": "81",
    }
    assert read(document(properties=properties)).early_termination == Hyperband(81)


def test_samplers_are_named_in_our_mapping() -> None:
    body = document(torchyard={"sampler": "cmaes", "seed": 7})
    del body["sampling_algorithm"]
    sampling = read(body).sampling
    assert (sampling.algorithm, sampling.seed, sampling.is_seeded) == ("cmaes", 7, True)
    assert "torchyard: {sampler: tpe}" in refused(document(sampling_algorithm="tpe")).hint


def test_several_objectives_are_read() -> None:
    others = [{"goal": "Maximize", "primary_metric": "accuracy"}]
    spec = read(document(torchyard={"objectives": others, "sampler": "nsgaii"}))
    assert spec.objectives == (
        Objective("random_metric", "minimize"),
        Objective("accuracy", "maximize"),
    )
    assert (
        "several" in refused(document(torchyard={"objectives": others, "sampler": "cmaes"})).message
    )


def test_points_to_begin_with_must_lie_in_the_space() -> None:
    points = [{"B": "hello", "C": 0.5}]
    assert read(document(torchyard={"warm_start": points})).warm_start == tuple(points)
    assert read(document(torchyard={"warm_start": "first-sweep"})).warm_start == "first-sweep"
    error = refused(document(torchyard={"warm_start": [*points, {"B": "hello", "C": 2}]}))
    assert "point 2" in error.message


def test_points_of_an_earlier_sweep_outside_the_space_are_left_out() -> None:
    spec = read(document(torchyard={"warm_start": "first-sweep"}))
    points: list[dict[str, Any]] = [{"B": "hello", "C": 3.0}, {"B": "world", "C": 1.0}, {"B": "x"}]
    assert spec.with_warm_start(points).warm_start == ({"B": "world", "C": 1.0},)


def test_a_search_that_can_not_learn_is_told() -> None:
    body = document(sampling_algorithm="bayesian", limits={"max_total_trials": 20})
    assert "max_concurrent_trials" in " ".join(read(body).notices)


def component_sweep() -> SweepSpec:
    return read(document(trial="azureml:train:1"))


def test_a_component_is_the_trial_once_it_is_resolved() -> None:
    spec = component_sweep()
    assert spec.component == "azureml:train:1" and not spec.trial
    command = "train --a ${{inputs.A}} --b ${{inputs.B}} --c ${{inputs.C}}"
    body = spec.with_trial({"command": command, "environment": "python"})
    trial = body.trial_document(0, {"B": "world", "C": 0.5})
    assert trial["command"] == "train --a ${{inputs.A}} --b world --c 0.5"
    with pytest.raises(InvalidSpec, match="does not use hyperparameter `C`"):
        spec.with_trial({"command": "train ${{inputs.B}}", "environment": "python"})


def test_the_page_of_the_docs_is_made_from_the_tables() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "sweep-file.md"
    assert page.read_text() == keys.page(), "run `make docs`"


def test_every_function_policy_and_algorithm_is_on_the_page() -> None:
    documented = {kind for kind, _, _ in (*keys.POLICIES, *keys.OWN_POLICIES)}
    assert documented == set(early_termination.TYPES)
    assert {kind for kind, _, _ in keys.SPACE} == set(space_reading.KEYS)
    for kind, names, _ in keys.SPACE:
        assert tuple(names.split(", ")) == space_reading.KEYS[kind]
    for name in sampling.ALGORITHMS:
        assert f"`{name}`" in keys.page()


def test_hostile_documents_are_refused_in_time() -> None:
    deep: Any = {"type": "choice", "values": [1]}
    for _ in range(200):
        deep = {"type": "choice", "values": [{"a": deep}]}
    assert "deep" in refused(changed("search_space.B", deep)).message
    for value in (10**400, float("nan"), "x" * 5000, None, [1], "a\0"):
        body = changed("search_space.B", {"type": "choice", "values": [value]})
        assert refused(body).at[:2] == ("search_space", "B")
    assert refused([]).message
    assert "torchyard.seed" in str(refused(document(torchyard={"seed": "9" * 10_000})).at)
