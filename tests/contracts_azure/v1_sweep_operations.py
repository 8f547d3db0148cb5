"""SDK v1's HyperDrive: submitting, best run, children, metrics, resuming, canceling."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from typing import Any

from operations import ERROR, REFUSED, World
from sweep_script import TRAIN
from v1_world import CLUSTER, EXPERIMENT, operation, plain_environment, source, workspace

# The outputs of an earlier child, if any, as Azure's examples read them.
RESUMED = (
    TRAIN
    + """
import sys
print("resumed from", sys.argv[sys.argv.index("--resume-from") + 1]
      if "--resume-from" in sys.argv else None)
if "--resume-from" in sys.argv:
    place = sys.argv[sys.argv.index("--resume-from") + 1]
    print("earlier rate", pathlib.Path(place, "rate.txt").read_text())
"""
)


def config(world: World, sampling: Any, policy: Any = None, **options: Any) -> Any:
    from azureml.core import ScriptRunConfig
    from azureml.train.hyperdrive import HyperDriveConfig, PrimaryMetricGoal

    script = ScriptRunConfig(
        source_directory=str(source(world, "hyperdrive", RESUMED)),
        script="train.py",
        arguments=options.pop("arguments", ["--steps", 2]),
        compute_target=CLUSTER,
        environment=plain_environment(world),
    )
    return HyperDriveConfig(
        run_config=script,
        hyperparameter_sampling=sampling,
        policy=policy,
        primary_metric_name="loss",
        primary_metric_goal=PrimaryMetricGoal.MINIMIZE,
        **{"max_total_runs": 2, "max_concurrent_runs": 2, **options},
    )


def submit(world: World, key: str, made: Any) -> Any:
    from azureml.core import Experiment

    world.seen[key] = Experiment(workspace(world), EXPERIMENT).submit(made)
    return world.seen[key]


@operation("Sweeps", "`Experiment.submit`: HyperDriveConfig")
def submit_one(world: World) -> Any:
    # First: it registers the classes of runs, which fails while HyperDrive's is being imported.
    import azureml.core  # noqa: F401
    from azureml.train.hyperdrive import BanditPolicy, RandomParameterSampling, choice, uniform

    sampling = RandomParameterSampling({"--rate": uniform(0.1, 0.9), "kind": choice("a", "b c")})
    policy = BanditPolicy(slack_factor=0.15, evaluation_interval=1, delay_evaluation=10)
    run = submit(world, "hyperdrive", config(world, sampling, policy, max_total_runs=4))
    # On a slow client it may have ended by now.
    assert (run.type, run.get_status() == "Failed") == ("hyperdrive", False)
    return run.id


@operation("Sweeps", "every sampling and policy, in turn")
def every_kind(world: World) -> Any:
    from azureml.train.hyperdrive import (
        BanditPolicy,
        BayesianParameterSampling,
        GridParameterSampling,
        MedianStoppingPolicy,
        NoTerminationPolicy,
        RandomParameterSampling,
        TruncationSelectionPolicy,
        choice,
        loguniform,
        normal,
        quniform,
        uniform,
    )

    kinds = (
        (GridParameterSampling({"rate": choice(1, 2)}), BanditPolicy(slack_amount=0.2)),
        (RandomParameterSampling({"rate": loguniform(-3, -1)}), MedianStoppingPolicy(1, 5)),
        (RandomParameterSampling({"rate": normal(9, 1)}), TruncationSelectionPolicy(20, 1, 5)),
        (BayesianParameterSampling({"rate": uniform(1, 2)}), NoTerminationPolicy()),
        (BayesianParameterSampling({"rate": quniform(1, 9, 2)}), None),
    )
    runs = [
        submit(world, f"hyperdrive-{number}", config(world, *kind))
        for number, kind in enumerate(kinds)
    ]
    for run in runs:
        run.wait_for_completion(show_output=False)
    assert {run.get_status() for run in runs} == {"Completed"}, [run.get_status() for run in runs]
    again = [workspace(world).get_run(run.id).hyperdrive_config for run in runs]
    for sent, read in zip((run.hyperdrive_config for run in runs), again, strict=True):
        assert sent._generator_config == read._generator_config, read._generator_config
        assert sent._policy_config == read._policy_config, read._policy_config
    return [len(list(run.get_children())) for run in runs]


@operation("Sweeps", "`wait_for_completion(show_output=True)`: 4 runs")
def wait(world: World) -> Any:
    run, output = world.seen["hyperdrive"], io.StringIO()
    with redirect_stdout(output):
        run.wait_for_completion(show_output=True)
    assert run.get_status() == "Completed", output.getvalue()
    assert f"RunId: {run.id}" in output.getvalue(), output.getvalue()
    # Shown output refreshes the status only: this reads the tags of the trials that came since.
    run.get_tags()
    return output.getvalue()


@operation("Sweeps", "`get_best_run_by_primary_metric`")
def best(world: World) -> Any:
    run = world.seen["hyperdrive"]
    rates = {name: json.loads(text)["--rate"] for name, text in run.get_hyperparameters().items()}
    best_run = run.get_best_run_by_primary_metric()
    assert best_run.id == min(rates, key=rates.__getitem__), (best_run.id, rates)
    metrics = best_run.get_metrics()
    assert len(metrics["loss"]) == 2, metrics
    arguments = best_run.get_details()["runDefinition"]["arguments"]
    assert float(arguments[arguments.index("--rate") + 1]) == rates[best_run.id], arguments
    assert "outputs/rate.txt" in best_run.get_file_names()
    model = best_run.register_model(model_name="v1-swept", model_path="outputs/rate.txt")
    return [model.name, model.version]


@operation(
    "Sweeps", "`get_children_sorted_by_primary_metric`, `get_hyperparameters`, `get_metrics`"
)
def children(world: World) -> Any:
    run = world.seen["hyperdrive"]
    ordered = run.get_children_sorted_by_primary_metric()
    losses = [child["best_primary_metric"] for child in ordered]
    assert len(losses) == 4 and losses == sorted(losses), ordered
    assert {child["status"] for child in ordered} == {"Completed"}, ordered
    parameters = json.loads(ordered[0]["hyperparameters"])
    assert set(parameters) == {"--rate", "kind"}, parameters
    assert run.get_children_sorted_by_primary_metric(top=1, reverse=True)[0] == ordered[-1]
    metrics = run.get_metrics()
    assert set(metrics) == {child["run_id"] for child in ordered}, metrics
    return losses


@operation("Sweeps", "`BanditPolicy`: children that it cancels")
def bandit(world: World) -> Any:
    from azureml.train.hyperdrive import BanditPolicy, GridParameterSampling, choice

    sampling = GridParameterSampling({"rate": choice(0.1, 5)})
    policy = BanditPolicy(slack_amount=0.5, evaluation_interval=1)
    arguments = ["--steps", 60, "--wait", 0.25]
    run = submit(
        world, "bandit", config(world, sampling, policy, arguments=arguments, max_concurrent_runs=1)
    )
    run.wait_for_completion()
    assert run.get_status() == "Completed", run.get_status()
    rates = {name: json.loads(text)["rate"] for name, text in run.get_hyperparameters().items()}
    children = {child.id: child for child in run.get_children()}
    statuses = {rates[name]: child.get_status() for name, child in children.items()}
    assert statuses == {0.1: "Completed", 5: "Canceled"}, statuses
    ordered = run.get_children_sorted_by_primary_metric()
    assert [child["status"] for child in ordered] == ["Completed", "Canceled"], ordered
    metrics = {rates[name]: child.get_metrics()["loss"] for name, child in children.items()}
    assert len(metrics[0.1]) == 60 and metrics[5], metrics
    best = run.get_best_run_by_primary_metric()
    assert rates[best.id] == 0.1 and best.get_metrics() == children[best.id].get_metrics()
    return ordered


@operation("Sweeps", "`HyperDriveRun` of a run's id, `resume_from`")
def resume_from(world: World) -> Any:
    from azureml.core import Experiment
    from azureml.train.hyperdrive import BayesianParameterSampling, HyperDriveRun, uniform

    first = world.seen["hyperdrive-3"]
    earlier = HyperDriveRun(Experiment(workspace(world), EXPERIMENT), first.id)
    assert earlier.hyperdrive_config._max_total_runs == 2
    sampling = BayesianParameterSampling({"rate": uniform(1, 2)})
    run = submit(world, "resumed", config(world, sampling, resume_from=earlier, max_total_runs=4))
    run.wait_for_completion()
    assert run.get_status() == "Completed"
    child_count, best = len(list(run.get_children())), run.get_best_run_by_primary_metric()
    alone = run.get_best_run_by_primary_metric(include_resume_from_runs=False)
    return [child_count, best.id, alone.id]


@operation("Sweeps", "`resume_child_runs`: `--resume-from` with the child's outputs")
def resume_children(world: World) -> Any:
    from azureml.train.hyperdrive import RandomParameterSampling, choice, uniform

    first = world.seen["hyperdrive"]
    child = first.get_best_run_by_primary_metric()
    sampling = RandomParameterSampling({"--rate": uniform(0.1, 0.9), "kind": choice("a", "b c")})
    run = submit(world, "children", config(world, sampling, resume_child_runs=child))
    run.wait_for_completion()
    assert run.get_status() == "Completed"
    parameters = run.get_hyperparameters()
    assert parameters[f"{run.id}_0"] == first.get_hyperparameters()[child.id], parameters
    texts = {}
    for each in run.get_children():
        file = world.folder / "read" / each.id / "log.txt"
        each.download_file("user_logs/std_log.txt", output_file_path=str(file))
        texts[each.id] = file.read_text()
    rate = json.loads(parameters[f"{run.id}_0"])["--rate"]
    assert f"earlier rate {rate}" in texts[f"{run.id}_0"], texts
    assert "resumed from None" in texts[f"{run.id}_1"], texts
    return parameters


@operation("Sweeps", "`cancel` of a HyperDriveRun")
def cancel(world: World) -> Any:
    from azureml.train.hyperdrive import RandomParameterSampling, uniform

    sampling = RandomParameterSampling({"rate": uniform(0.1, 0.9)})
    arguments = ["--steps", 600, "--wait", 1]
    run = submit(world, "canceled-hyperdrive", config(world, sampling, arguments=arguments))
    run.cancel()
    run.wait_for_completion(raise_on_error=False)
    assert run.get_status() == "Canceled", run.get_status()
    return run.get_status()


@operation(
    "Sweeps",
    "`Experiment.submit`: a HyperDriveConfig that can't be searched",
    ERROR,
    "is not a valid name for a hyperparameter",
)
def wrong(world: World) -> Any:
    from azureml.train.hyperdrive import RandomParameterSampling, uniform

    return submit(world, "wrong", config(world, RandomParameterSampling({"a b": uniform(0, 1)}))).id


@operation(
    "Sweeps", "`Experiment.submit`: HyperDriveConfig on the target `local`", REFUSED, "local"
)
def on_local(world: World) -> Any:
    from azureml.train.hyperdrive import RandomParameterSampling, uniform

    made = config(world, RandomParameterSampling({"rate": uniform(0, 1)}))
    made._run_config.run_config.target = "local"
    return submit(world, "on-local", made).id
