"""Sweeps of SDK v2: creating, following, their children, their files, ending them."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from ended_job_operations import wait
from job_operations import ENVIRONMENT
from operations import ERROR, World, operation
from sweep_script import TRAIN

FILE = """
$schema: https://azuremlschemas.azureedge.net/latest/sweepJob.schema.json
type: sweep
trial:
  code: sweep
  command: python train.py --rate ${{search_space.rate}} --kind ${{search_space.kind}} --steps 1
  environment: azureml:python@latest
compute: azureml:COMPUTE
sampling_algorithm: SAMPLING
search_space:
  rate: {type: quniform, min_value: 1, max_value: 3, q: 1}
  kind: {type: choice, values: [a, "b c"]}
objective: {goal: minimize, primary_metric: loss}
early_termination: POLICY
limits: {max_total_trials: 2, max_concurrent_trials: 2, timeout: 3600, trial_timeout: 600}
"""
COMPONENT = """
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
type: command
name: NAME
inputs:
  rate: {type: number}
  kind: {type: string, default: a}
  steps: {type: integer, default: 1}
code: sweep
environment: azureml:python@latest
command: >-
  python train.py --rate ${{inputs.rate}} --kind ${{inputs.kind}} --steps ${{inputs.steps}}
"""
SAMPLINGS = ("random", "{type: random, seed: 7, rule: sobol}", "grid", "bayesian")
POLICIES = (
    "{type: bandit, slack_factor: 0.5, evaluation_interval: 1, delay_evaluation: 5}",
    "{type: bandit, slack_amount: 0.5, evaluation_interval: 2, delay_evaluation: 5}",
    "{type: median_stopping, evaluation_interval: 1, delay_evaluation: 5}",
    "{type: truncation_selection, truncation_percentage: 20, delay_evaluation: 5}",
)


def trial(world: World, **options: Any) -> Any:
    from azure.ai.ml import command

    folder = world.write("sweep/train.py", TRAIN).parent
    return command(
        code=str(folder),
        command="python train.py --rate ${{inputs.rate}} --kind ${{inputs.kind}} ${{inputs.more}}",
        environment=ENVIRONMENT,
        compute=world.name("nodes"),
        inputs={"rate": 0.1, "kind": "a", "more": "", **options},
    )


def sweep_job(world: World, name: str, space: dict[str, Any], **options: Any) -> Any:
    made = trial(world, **options)(**space).sweep(
        primary_metric="loss", goal="minimize", sampling_algorithm="random"
    )
    made.name, made.experiment_name = world.name(name), world.name("contract")
    return made


@operation("Sweeps", "`command(...).sweep(...)`, 6 trials with bandit")
def create(world: World) -> Any:
    from azure.ai.ml.sweep import BanditPolicy, Choice, Uniform

    made = sweep_job(
        world, "sweep", {"rate": Uniform(0.1, 0.9), "kind": Choice(["a", "b c"])}, more="--steps 2"
    )
    made.set_limits(max_total_trials=6, max_concurrent_trials=2, timeout=7200, trial_timeout=600)
    made.early_termination = BanditPolicy(
        slack_factor=0.2, evaluation_interval=1, delay_evaluation=4
    )
    made.display_name, made.tags = "rates", {"kind": "contract"}
    sweep = world.ml.jobs.create_or_update(made)
    assert (sweep.type, sweep.name) == ("sweep", world.name("sweep")), sweep
    return sweep.status


@operation("Sweeps", "`load_job` of sweep files: every sampling and policy")
def files(world: World) -> Any:
    from azure.ai.ml import load_job

    world.write("sweep/train.py", TRAIN)
    ends = {}
    names = []
    for number, (sampling, policy) in enumerate(zip(SAMPLINGS, POLICIES, strict=True)):
        text = FILE.replace("COMPUTE", world.name("nodes"))
        text = text.replace("SAMPLING", sampling).replace("POLICY", policy)
        job = load_job(world.write(f"sweep-{number}.yml", text))
        job.name = world.name(f"sweep-file-{number}")
        names.append(world.ml.jobs.create_or_update(job).name)
    for name in names:
        ends[name] = wait(world, name)
    assert set(ends.values()) == {"Completed"}, ends
    return ends


@operation("Sweeps", "`component(...).sweep(...)`: a registered component as trial")
def component(world: World) -> Any:
    from azure.ai.ml import load_component
    from azure.ai.ml.sweep import Choice

    world.write("sweep/train.py", TRAIN)
    name = world.name("swept").replace("-", "_")
    file = world.write("swept.yml", COMPONENT.replace("NAME", name))
    registered = world.ml.components.create_or_update(load_component(str(file)))
    step = world.ml.components.get(name, version=registered.version)
    made = step(rate=Choice([1, 2]), kind="b c", steps=2).sweep(
        primary_metric="loss", goal="minimize", sampling_algorithm="grid"
    )
    made.name, made.compute = world.name("sweep-component"), world.name("nodes")
    made.set_limits(max_total_trials=2, max_concurrent_trials=2)
    sweep = world.ml.jobs.create_or_update(made)
    assert wait(world, sweep.name) == "Completed"
    commands = {world.ml.jobs.get(f"{sweep.name}_{number}").command for number in range(2)}
    assert commands == {
        f"python train.py --rate {rate} --kind ${{{{inputs.kind}}}} --steps ${{{{inputs.steps}}}}"
        for rate in (1, 2)
    }, commands
    best = world.ml.jobs.get(sweep.name).properties["best_child_run_id"]
    assert "--rate 1 " in world.ml.jobs.get(best).command, best
    return sorted(commands)


@operation("Sweeps", "early termination: children that the bandit policy cancels")
def bandit(world: World) -> Any:
    from azure.ai.ml.sweep import BanditPolicy, Choice

    made = sweep_job(
        world, "sweep-bandit", {"rate": Choice([0.1, 5])}, more="--steps 60 --wait 0.25"
    )
    made.sampling_algorithm = "grid"
    made.set_limits(max_total_trials=2, max_concurrent_trials=1)
    made.early_termination = BanditPolicy(slack_amount=0.5, evaluation_interval=1)
    sweep = world.ml.jobs.create_or_update(made)
    assert wait(world, sweep.name) == "Completed"
    children = {
        child.name: child.status for child in world.ml.jobs.list(parent_job_name=sweep.name)
    }
    by_rate = {_rate(world, name): status for name, status in children.items()}
    assert by_rate == {0.1: "Completed", 5.0: "Canceled"}, children
    best = world.ml.jobs.get(sweep.name).properties["best_child_run_id"]
    assert _rate(world, best) == 0.1, best
    return children


@operation("Sweeps", "`jobs.stream` of a sweep")
def stream(world: World) -> Any:
    output = io.StringIO()
    with redirect_stdout(output):
        world.ml.jobs.stream(world.name("sweep"))
    text = output.getvalue()
    assert "Streaming azureml-logs/hyperdrive.txt" in text, text
    assert world.name("sweep") + "_5" in text, text
    return text


@operation("Sweeps", "`jobs.get` of a sweep: fields, best child")
def get(world: World) -> Any:
    assert wait(world, world.name("sweep")) == "Completed"
    sweep = world.ml.jobs.get(world.name("sweep"))
    assert (sweep.display_name, sweep.tags) == ("rates", {"kind": "contract"}), sweep
    limits = sweep.limits
    assert (limits.max_total_trials, limits.max_concurrent_trials) == (6, 2), limits
    assert (limits.timeout, limits.trial_timeout) == (7200, 600), limits
    assert (sweep.objective.goal.lower(), sweep.objective.primary_metric) == ("minimize", "loss")
    policy = sweep.early_termination
    assert (policy.type, policy.slack_factor, policy.delay_evaluation) == ("bandit", 0.2, 4)
    rate, kind = sweep.search_space["rate"], sweep.search_space["kind"]
    assert (rate.type, rate.min_value, rate.max_value) == ("uniform", 0.1, 0.9), rate
    assert (kind.type, list(kind.values)) == ("choice", ["a", "b c"]), kind
    assert sweep.sampling_algorithm.type == "random", sweep.sampling_algorithm
    assert "${{search_space.rate}}" in sweep.trial.command, sweep.trial.command
    best = sweep.properties["best_child_run_id"]
    rates = {number: _rate(world, f"{sweep.name}_{number}") for number in range(6)}
    assert best == f"{sweep.name}_{min(rates, key=rates.__getitem__)}", (best, rates)
    return rates


def _rate(world: World, name: str) -> float:
    """The parameter of a trial, as the client shows its command."""
    words = world.ml.jobs.get(name).command.split()
    return float(words[words.index("--rate") + 1])


@operation("Sweeps", "`jobs.list`: sweeps, and children by `parent_job_name`")
def list_them(world: World) -> Any:
    name = world.name("sweep")
    children = {child.name for child in world.ml.jobs.list(parent_job_name=name)}
    assert children == {f"{name}_{number}" for number in range(6)}, children
    listed = {job.name for job in world.ml.jobs.list()}
    assert name in listed and not children & listed, listed
    return sorted(children)


@operation("Sweeps", "`jobs.download` of a sweep: its best child's files")
def download(world: World) -> Any:
    name, target = world.name("sweep"), world.folder / "sweep-download"
    best = world.ml.jobs.get(name).properties["best_child_run_id"]
    world.ml.jobs.download(name, download_path=str(target), all=True)
    files = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    rate = next(path for path in target.rglob("rate.txt")).read_text()
    assert float(rate) == _rate(world, best), files
    assert any(Path(path).name == "hyperdrive.txt" for path in files), files
    return files


@operation(
    "Sweeps",
    "`jobs.create_or_update` of a sweep again: its tags change",
    faulty={"azure-ai-ml-1.12": "it can't send the objective back that it has read"},
)
def change(world: World) -> Any:
    sweep = world.ml.jobs.get(world.name("sweep-file-0"))
    sweep.tags = {"new": "tag"}
    assert world.ml.jobs.create_or_update(sweep).tags == {"new": "tag"}
    return sweep.name


@operation("Sweeps", "`jobs.archive`, `restore` of a sweep")
def archive(world: World) -> Any:
    name = world.name("sweep-file-1")
    world.ml.jobs.archive(name)
    assert name not in {job.name for job in world.ml.jobs.list()}
    world.ml.jobs.restore(name)
    assert name in {job.name for job in world.ml.jobs.list()}
    return name


@operation("Sweeps", "`jobs.cancel` of a sweep")
def cancel(world: World) -> Any:
    from azure.ai.ml.sweep import Uniform

    made = sweep_job(world, "sweep-long", {"rate": Uniform(0.1, 0.9)}, more="--steps 600 --wait 1")
    made.set_limits(max_total_trials=4, max_concurrent_trials=2)
    name = world.ml.jobs.create_or_update(made).name
    world.ml.jobs.begin_cancel(name).wait()
    assert wait(world, name) == "Canceled"
    children = [child.status for child in world.ml.jobs.list(parent_job_name=name)]
    assert set(children) <= {"Canceled"}, children
    return children


@operation(
    "Sweeps",
    "`jobs.create_or_update`: a space that the command does not use",
    ERROR,
    "does not use hyperparameter `other`",
)
def unused(world: World) -> Any:
    from azure.ai.ml import load_job

    text = FILE.replace("COMPUTE", world.name("nodes")).replace("SAMPLING", "random")
    text = text.replace("POLICY", POLICIES[0])
    text = text.replace("  rate: {", "  other: {type: randint, upper: 3}\n  rate: {")
    job = load_job(world.write("sweep-unused.yml", text))
    return json.dumps(world.ml.jobs.create_or_update(job).name)
