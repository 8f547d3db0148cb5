"""Pipelines and their components: creating, following, their steps, their files, ending them.

Owns: what people call of pipelines.
Always: annotations are objects, not text: `@dsl.pipeline` reads them.
"""

import io
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from ended_job_operations import wait
from job_operations import ENVIRONMENT
from operations import ERROR, REFUSED, World, operation
from plugin_operations import mlflow_in

SCRIPT = """
import argparse, pathlib
parser = argparse.ArgumentParser()
for name in ("rows", "rate", "out"):
    parser.add_argument(f"--{name}")
parser.add_argument("--note", default="none")
given = parser.parse_args()
rows = [file.read_text() for file in sorted(pathlib.Path(given.rows).rglob("*.csv"))]
print("rows", "".join(rows).split(), "rate", given.rate, "note", given.note)
pathlib.Path(given.out, "rows.csv").write_text("".join(rows) + f"{given.rate}\\n")
"""
COMPONENT = """
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
type: command
name: NAME
version: VERSION
display_name: Add a rate
tags: {team: vision}
inputs:
  rows: {type: uri_folder}
  rate: {type: number, default: 0.5, min: 0, max: 9}
  note: {type: string, optional: true}
outputs:
  table: {type: uri_folder}
code: ./src
environment: ENVIRONMENT
command: >-
  python add.py --rows ${{inputs.rows}} --rate ${{inputs.rate}} $[[--note "${{inputs.note}}"]]
  --out ${{outputs.table}}
"""
FILE = """
$schema: https://azuremlschemas.azureedge.net/latest/pipelineJob.schema.json
type: pipeline
display_name: from a file
settings: {default_compute: azureml:COMPUTE}
inputs:
  rows: {type: uri_folder, path: ./rows}
outputs:
  table:
jobs:
  first:
    type: command
    component: ./component.yml
    inputs: {rows: "${{parent.inputs.rows}}", rate: 1}
  second:
    type: command
    component: azureml:COMPONENT@latest
    inputs: {rows: "${{parent.jobs.first.outputs.table}}", rate: 2}
    outputs: {table: "${{parent.outputs.table}}"}
"""


def _component(world: World, version: str = "1") -> Any:
    from azure.ai.ml import load_component

    # What another client ran is reused only where that is asked for.
    world.write("pipeline/src/add.py", f"{SCRIPT}# {world.name('mine')}\n")
    world.write("pipeline/rows/a.csv", "7\n")
    text = COMPONENT.replace("NAME", _name(world)).replace("VERSION", version)
    file = world.write("pipeline/component.yml", text.replace("ENVIRONMENT", ENVIRONMENT))
    return load_component(source=str(file))


def _name(world: World) -> str:
    return world.name("add").replace("-", "_")


def _rows(world: World) -> Any:
    from azure.ai.ml import Input

    return Input(type="uri_folder", path=str(world.folder / "pipeline" / "rows"))


def _echo(text: str) -> Any:
    from azure.ai.ml import command

    return command(name="echo", command=text, environment=ENVIRONMENT, outputs={})


def _submit(world: World, pipeline: Any, word: str) -> Any:
    pipeline.name, pipeline.experiment_name = world.name(word), world.name("contract")
    pipeline.settings.default_compute = world.name("nodes")
    return world.ml.jobs.create_or_update(pipeline)


def _of_echoes(world: World, word: str, commands: dict[str, str]) -> Any:
    """A pipeline whose steps, named as the commands, need nothing of each other."""
    from azure.ai.ml import dsl

    @dsl.pipeline()  # type: ignore[untyped-decorator]
    def echoes() -> None:
        for name, text in commands.items():
            step = _echo(text)()
            step.name = name

    return _submit(world, echoes(), word)


def _streamed(world: World, name: str) -> str:
    output = io.StringIO()
    with redirect_stdout(output):
        world.ml.jobs.stream(name)
    return output.getvalue()


def _steps(world: World, name: str) -> dict[str, Any]:
    jobs = list(world.ml.jobs.list(parent_job_name=name))
    return {job.display_name: job for job in jobs}


def _until(what: Callable[[], Any], timeout_s: float = 120) -> Any:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.5)
    raise AssertionError("it did not come about")


@operation("Components", "`components.create_or_update` of `load_component(source=FILE)`")
def register(world: World) -> Any:
    made = world.ml.components.create_or_update(_component(world))
    assert (made.name, made.version, made.type) == (_name(world), "1", "command"), made
    again = world.ml.components.create_or_update(_component(world))
    assert again.id == made.id
    second = world.ml.components.create_or_update(_component(world, "2"))
    assert second.version == "2"
    return made.id


@operation("Components", "`components.get` by version, by label and without either")
def get_component(world: World) -> Any:
    first = world.ml.components.get(_name(world), version="1")
    newest = [
        world.ml.components.get(_name(world), label="latest"),
        world.ml.components.get(_name(world)),
    ]
    assert [each.version for each in (first, *newest)] == ["1", "2", "2"]
    assert first.inputs["rate"].default == 0.5 and first.inputs["note"].optional, first
    assert first.tags == {"team": "vision"} and first.display_name == "Add a rate"
    return first.command


@operation("Components", "`components.create_or_update` of a `@dsl.pipeline` function")
def register_pipeline(world: World) -> Any:
    from azure.ai.ml import Input, dsl

    add = world.ml.components.get(_name(world), version="1")
    name = world.name("add_twice").replace("-", "_")

    @dsl.pipeline(name=name, version="1", description="two rates")  # type: ignore[untyped-decorator]
    def add_twice(rows: Input(type="uri_folder"), rate: float = 3.0):  # type: ignore[no-untyped-def,valid-type]
        first = add(rows=rows, rate=rate)
        second = add(rows=first.outputs.table, rate=4)
        return {"table": second.outputs.table}

    made = world.ml.components.create_or_update(add_twice)
    assert (made.name, made.type) == (name, "pipeline"), made
    got = world.ml.components.get(name, version="1")
    assert set(got.jobs) == {"first", "second"}, got.jobs
    assert got.inputs["rate"].default == "3.0" or got.inputs["rate"].default == 3.0
    return made.id


@operation("Pipelines", "`@dsl.pipeline` of components, `command(...)` and data")
def create(world: World) -> Any:
    from azure.ai.ml import Input, Output, command, dsl

    add = _component(world)
    count = command(
        name="count",
        command="wc -l ${{inputs.table}}/rows.csv | tee ${{outputs.report}} # "
        + world.name("mine"),
        environment=ENVIRONMENT,
        inputs={"table": Input(type="uri_folder")},
        outputs={"report": Output(type="uri_file")},
    )

    @dsl.pipeline(description="what a pipeline has", tags={"kind": "contract"})  # type: ignore[untyped-decorator]
    def rates(rows, rate: float = 1.5):  # type: ignore[no-untyped-def]
        first = add(rows=rows, rate=rate, note="of the first")
        second = add(rows=first.outputs.table)
        second.outputs.table = Output(type="uri_folder", mode="upload")
        second.environment_variables = {"MINE": "of my own"}
        last = count(table=second.outputs.table)
        return {"table": second.outputs.table, "report": last.outputs.report}

    pipeline = rates(rows=_rows(world))
    pipeline.display_name = "rates"
    assert "first:" in str(pipeline)
    made = _submit(world, pipeline, "pipeline")
    assert (made.type, made.name) == ("pipeline", world.name("pipeline")), made
    assert made.studio_url, made
    made._repr_html_()
    return made.status


@operation("Pipelines", "`jobs.stream`: follows, and ends with the pipeline")
def stream(world: World) -> Any:
    text = _streamed(world, world.name("pipeline"))
    assert "Streaming logs/azureml/executionlogs.txt" in text, text
    assert "Execution Summary" in text, text
    assert world.ml.jobs.get(world.name("pipeline")).status == "Completed", text
    return text


@operation("Pipelines", "`jobs.get`: steps, inputs, outputs, settings")
def get(world: World) -> Any:
    job = world.ml.jobs.get(world.name("pipeline"))
    assert (job.type, job.display_name, job.tags) == ("pipeline", "rates", {"kind": "contract"})
    assert list(job.jobs) == ["first", "second", "last"], job.jobs
    assert set(job.inputs) == {"rows", "rate"} and set(job.outputs) == {"table", "report"}
    assert job.settings.default_compute == world.name("nodes"), job.settings
    assert job.jobs["second"].environment_variables == {"MINE": "of my own"}
    text = str(job)
    assert "${{parent.jobs.first.outputs.table}}" in text, text
    job.dump(str(world.folder / "pipeline.dumped.yml"))
    return text


@operation("Pipelines", "`jobs.list(parent_job_name=...)`, and `jobs.get` of each step")
def children(world: World) -> Any:
    steps = _steps(world, world.name("pipeline"))
    assert set(steps) == {"first", "second", "last"}, steps
    assert {job.status for job in steps.values()} == {"Completed"}
    modules = {job.properties["azureml.moduleName"]: job.name for job in steps.values()}
    assert set(modules) == set(steps), modules
    for step in steps.values():
        job = world.ml.jobs.get(step.name)
        assert job.type == "command" and job.experiment_name == world.name("contract"), job
    return [step.name for step in steps.values()]


@operation("Pipelines", "`mlflow.get_run`, and `search_runs` of its steps by their parent")
def mlflow_runs(world: World) -> Any:
    mlflow, name = mlflow_in(world), world.name("pipeline")
    run = mlflow.get_run(name)
    assert run.info.status == "FINISHED" and run.data.tags["kind"] == "contract", run
    steps = mlflow.search_runs(
        [run.info.experiment_id], f"tags.mlflow.parentRunId = '{name}'", output_format="list"
    )
    assert {step.info.run_name for step in steps} == {"first", "second", "last"}, steps
    logs = mlflow.MlflowClient().list_artifacts(name, "logs/azureml")
    assert [file.path for file in logs] == ["logs/azureml/executionlogs.txt"], logs
    return [step.info.run_id for step in steps]


@operation("Pipelines", "`jobs.stream` of a step")
def stream_step(world: World) -> Any:
    text = _streamed(world, _steps(world, world.name("pipeline"))["first"].name)
    assert "rows ['7'] rate 1.5 note of the first" in text, text
    return text


def _files(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


@operation("Pipelines", "`jobs.download(..., output_name=...)` of a pipeline's output")
def download(world: World) -> Any:
    to = world.folder / "pipeline-one"
    world.ml.jobs.download(world.name("pipeline"), download_path=to, output_name="table")
    assert _files(to) == ["named-outputs/table/rows.csv"], _files(to)
    assert (to / "named-outputs/table/rows.csv").read_text() == "7\n1.5\n0.5\n"
    return _files(to)


@operation("Pipelines", "`jobs.download(..., all=True)`")
def download_all(world: World) -> Any:
    to = world.folder / "pipeline-all"
    world.ml.jobs.download(world.name("pipeline"), download_path=to, all=True)
    files = _files(to)
    assert "named-outputs/table/rows.csv" in files, files
    assert any(file.startswith("named-outputs/report/") for file in files), files
    assert "artifacts/logs/azureml/executionlogs.txt" in files, files
    return files


@operation("Pipelines", "`jobs.download` of a step's output")
def download_step(world: World) -> Any:
    to = world.folder / "pipeline-step"
    step = _steps(world, world.name("pipeline"))["first"].name
    world.ml.jobs.download(step, download_path=to, output_name="table")
    assert (to / "named-outputs/table/rows.csv").read_text() == "7\n1.5\n"
    return _files(to)


@operation("Pipelines", "`jobs.create_or_update` of what `jobs.get` returned: tags, display name")
def change(world: World) -> Any:
    job = world.ml.jobs.get(world.name("pipeline"))
    job.tags["added"] = "later"
    job.display_name = "renamed"
    world.ml.jobs.create_or_update(job)
    job = world.ml.jobs.get(world.name("pipeline"))
    assert job.tags == {"kind": "contract", "added": "later"}, job.tags
    assert job.display_name == "renamed", job.display_name
    return job.tags


@operation("Pipelines", "`jobs.create_or_update` of what `jobs.get` returned, under another name")
def resubmit(world: World) -> Any:
    job = world.ml.jobs.get(world.name("pipeline"))
    job.name, job.display_name = world.name("pipeline-again"), "again"
    made = world.ml.jobs.create_or_update(job)
    assert made.name == world.name("pipeline-again"), made.name
    assert wait(world, made.name) == "Completed"
    return list(_steps(world, made.name))


@operation("Pipelines", "`load_job` of a pipeline's file; component files, registered ones")
def from_file(world: World) -> Any:
    from azure.ai.ml import load_job

    _component(world)
    text = FILE.replace("COMPUTE", world.name("nodes")).replace("COMPONENT", _name(world))
    job = load_job(source=str(world.write("pipeline/pipeline.yml", text)))
    job.name = world.name("pipeline-file")
    made = world.ml.jobs.create_or_update(job, experiment_name=world.name("contract"))
    assert made.experiment_name == world.name("contract"), made
    assert wait(world, made.name) == "Completed"
    return list(_steps(world, made.name))


@operation("Pipelines", "outputs registered as assets: `Output(name=..., version=...)`")
def assets(world: World) -> Any:
    from azure.ai.ml import Output, dsl

    add = _component(world)

    @dsl.pipeline()
    def registered(rows):  # type: ignore[no-untyped-def]
        first = add(rows=rows)
        first.outputs.table = Output(type="custom_model", name=world.name("model"), version="4")
        second = add(rows=first.outputs.table)
        return {"table": second.outputs.table}

    pipeline = registered(rows=_rows(world))
    pipeline.outputs.table = Output(type="uri_folder", name=world.name("rows"), version="3")
    made = _submit(world, pipeline, "pipeline-assets")
    assert wait(world, made.name) == "Completed"
    data = world.ml.data.get(world.name("rows"), version="3")
    model = world.ml.models.get(world.name("model"), version="4")
    assert (data.type, model.type) == ("uri_folder", "custom_model"), (data, model)
    return [data.path, model.path]


@operation("Pipelines", "data assets and registered components as inputs and steps")
def from_assets(world: World) -> Any:
    from azure.ai.ml import Input, dsl

    add = world.ml.components.get(_name(world), version="1")
    twice = world.ml.components.get(world.name("add_twice").replace("-", "_"), version="1")
    rows = f"azureml:{world.name('rows')}:3"

    @dsl.pipeline(default_compute=world.name("nodes"), continue_on_step_failure=False)
    def nested(rows):  # type: ignore[no-untyped-def]
        outer = twice(rows=rows, rate=8.0)
        last = add(rows=outer.outputs.table, rate=9.0)
        return {"table": last.outputs.table}

    pipeline = nested(rows=Input(type="uri_folder", path=rows, mode="download"))
    pipeline.settings.force_rerun = True
    made = _submit(world, pipeline, "pipeline-nested")
    assert made.settings.force_rerun and made.settings.continue_on_step_failure is False
    assert wait(world, made.name) == "Completed"
    to = world.folder / "pipeline-nested"
    world.ml.jobs.download(made.name, download_path=to, output_name="table")
    written = (to / "named-outputs/table/rows.csv").read_text()
    assert written == "7\n0.5\n0.5\n8.0\n4\n9.0\n", written
    return list(_steps(world, made.name))


@operation("Pipelines", "a step fails: `jobs.stream` raises, and names it")
def failing(world: World) -> Any:
    made = _of_echoes(world, "pipeline-failing", {"good": "echo good", "bad": "exit 3"})
    try:
        text = _streamed(world, made.name)
    except Exception as error:
        assert type(error).__name__ == "JobException", repr(error)
        assert "step `bad` failed" in str(error), error
        assert {name: job.status for name, job in _steps(world, made.name).items()} == {
            "good": "Completed",
            "bad": "Failed",
        }
        return str(error)
    raise AssertionError("it went well: " + text)


@operation("Pipelines", "steps that ran before: reused, and listed with `azureml.isreused`")
def reused(world: World) -> Any:
    made = _of_echoes(world, "pipeline-twice", {"good": "echo good", "more": "echo more"})
    assert wait(world, made.name) == "Completed"
    again = _of_echoes(world, "pipeline-reused", {"good": "echo good", "more": "echo more"})
    assert wait(world, again.name) == "Completed"
    steps = _steps(world, again.name)
    assert {job.status for job in steps.values()} == {"Completed"} and len(steps) == 2, steps
    reused_ids = {job.properties["azureml.reusedrunid"] for job in steps.values()}
    assert reused_ids == {job.name for job in _steps(world, made.name).values()}
    assert {job.properties["azureml.isreused"] for job in steps.values()} == {"true"}
    return sorted(steps)


@operation("Pipelines", "`jobs.begin_cancel`, and `jobs.show_services` before")
def cancel(world: World) -> Any:
    made = _of_echoes(world, "pipeline-canceled", {"slow": "sleep 600", "other": "sleep 601"})
    _until(lambda: len(_steps(world, made.name)) == 2)
    assert not world.ml.jobs.show_services(made.name)
    world.ml.jobs.begin_cancel(made.name).wait()
    assert wait(world, made.name) == "Canceled"
    ends = {name: job.status for name, job in _steps(world, made.name).items()}
    assert ends == {"slow": "Canceled", "other": "Canceled"}, ends
    return ends


@operation("Pipelines", "a compute that does not exist", ERROR, "gpu-8")
def unknown_compute(world: World) -> Any:
    from azure.ai.ml import dsl

    @dsl.pipeline()  # type: ignore[untyped-decorator]
    def one() -> None:
        step = _echo("echo")()
        step.compute = "gpu-8"

    return _submit(world, one(), "pipeline-nowhere").name


@operation("Pipelines", "an input that is of another type", ERROR, "rate")
def wrong_input(world: World) -> Any:
    from azure.ai.ml import dsl

    add = _component(world)

    @dsl.pipeline()
    def one(rows):  # type: ignore[no-untyped-def]
        add(rows=rows, rate="fast")

    return _submit(world, one(rows=_rows(world)), "pipeline-wrong").name


@operation("Pipelines", "a step that is a sweep", REFUSED, "sweep")
def sweep_step(world: World) -> Any:
    from azure.ai.ml import dsl
    from azure.ai.ml.sweep import Choice

    add = _component(world)

    @dsl.pipeline()
    def one(rows):  # type: ignore[no-untyped-def]
        trial = add(rows=rows, rate=Choice([1.0, 2.0]))
        swept = trial.sweep(primary_metric="loss", goal="minimize", sampling_algorithm="random")
        swept.set_limits(max_total_trials=2, max_concurrent_trials=1)

    return _submit(world, one(rows=_rows(world)), "pipeline-sweep").name
