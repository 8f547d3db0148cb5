"""An expression in any string of any file is resolved, refused with its place, or only shown."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

import pytest

from torchyard.base.documents import models, pages
from torchyard.base.errors import InvalidSpec
from torchyard.batch_endpoints.spec import deployment_spec as batch_deployment_spec
from torchyard.batch_endpoints.spec import endpoint_spec as batch_endpoint_spec
from torchyard.batch_endpoints.spec import invocation
from torchyard.components import documents as components
from torchyard.data import kinds
from torchyard.data.documents import AssetFile
from torchyard.endpoints.spec import deployment_spec, endpoint_spec
from torchyard.environments import assets as environments
from torchyard.jobs.spec import job_spec
from torchyard.sweeps.spec import sweep_spec
from torchyard.sweeps.spec.trials import TrialFile
from torchyard.workspaces import actions as workspaces

Steps = tuple[str | int, ...]
WRITTEN = ["${{inputs.a}}", "x ${{ anything }} y", "${{inputs.a", "$[[ --x ]]", "${inputs.a}"]
SHOWN = ("$schema", "description", "display_name", "tags.x", "properties.x")

# What decides what a component is.
COMPONENT_KEYS = [
    key for key in models.keys(components.CommandComponentFile) if key not in models.keys(AssetFile)
]
JOB: dict[str, Any] = {
    "command": "python train.py ${{inputs.a}}",
    "environment": "python",
    "inputs": {"a": "1"},
}
TRIAL = {
    "command": "train ${{inputs.a}} ${{search_space.lr}}",
    "environment": "python",
}
SWEEP: dict[str, Any] = {
    "type": "sweep",
    "trial": TRIAL,
    "inputs": {"a": "1"},
    "search_space": {"lr": {"type": "choice", "values": [1, 2]}},
    "sampling_algorithm": "random",
    "objective": {"goal": "minimize", "primary_metric": "loss"},
}
DEPLOYMENT = {"name": "blue", "endpoint_name": "digits", "model": {"path": "azureml:m:1"}}
DATASTORE = {
    "name": "lab",
    "type": "s3",
    "bucket": "images",
    "credentials": {"access_key_id": "a", "secret_access_key": "${{any}}"},
}
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
INVOCATION = {"inputs": {"data": {"path": "azureml:d:1"}}}


def paths_of_jobs() -> Iterator[str]:
    for key in pages.walk(job_spec.JobFile):
        path = key.path.replace("*", "x")
        yield "torchyard.x" if path == "torchyard" else path
    yield from ("tags.x", "properties.x", "environment_variables.x", "resources.docker_args.0")
    yield from ("environment.tags.x", "environment.properties.x", "environment.conda_file.name")
    yield from ("services.x.properties.command", "services.x.properties.logDir")
    yield from ("torchyard.notify.0.url", "properties.torchyard.notify")
    yield from ("notification_settings.emails.0", "inputs.x.description")


def paths_of_sweeps() -> Iterator[str]:
    yield from models.keys(sweep_spec.SweepFile)
    for key in models.keys(TrialFile):
        yield f"trial.{key}"
    yield from ("tags.x", "properties.x", "search_space.lr.values.0", "inputs.x.path")
    yield from ("trial.environment_variables.x", "trial.environment.image", "outputs.x.path")
    yield from ("trial.services.x.log_dir", "objective.primary_metric", "torchyard.sampler")


def paths_of(model: type[models.Document], *more: str) -> list[str]:
    return [*models.keys(model), "tags.x", "properties.x", *more]


KINDS: dict[str, tuple[Callable[[Any], object], Mapping[str, Any], list[str], list[str]]] = {
    "job": (
        job_spec.read,
        JOB,
        list(dict.fromkeys(paths_of_jobs())),
        ["command", "environment_variables.x", "outputs.x.path"],
    ),
    "sweep": (
        sweep_spec.read,
        SWEEP,
        list(dict.fromkeys(paths_of_sweeps())),
        ["trial.command", "trial.environment_variables.x", "outputs.x.path"],
    ),
    "component": (
        components.read,
        {
            "name": "c",
            "command": "train",
            "environment": "python",
            "inputs": {"a": {"type": "string"}, "shown": {"type": "string"}},
            "outputs": {"x": {"type": "uri_folder"}},
        },
        [
            *(key for key in COMPONENT_KEYS if key != "type"),
            *("environment_variables.x", "inputs.a.default", "outputs.x.path"),
            *("environment.image", "tags.x", "inputs.shown.description", "services"),
        ],
        ["command", "environment_variables.x", "outputs.x.path"],
    ),
    "endpoint": (
        endpoint_spec.read,
        {"name": "digits"},
        paths_of(endpoint_spec.OnlineEndpointFile),
        [],
    ),
    "deployment": (
        deployment_spec.read,
        DEPLOYMENT,
        paths_of(
            deployment_spec.OnlineDeploymentFile,
            *("model.path", "model.description", "code_configuration.code"),
            *("environment.image", "environment_variables.x", "torchyard.cluster"),
        ),
        [],
    ),
    "batch endpoint": (
        batch_endpoint_spec.read,
        {"name": "digits"},
        paths_of(batch_endpoint_spec.BatchEndpointFile, "defaults.deployment_name"),
        [],
    ),
    "batch deployment": (
        batch_deployment_spec.read,
        DEPLOYMENT,
        paths_of(
            batch_deployment_spec.BatchDeploymentFile,
            "environment_variables.x",
            "settings.environment_variables.x",
        ),
        [],
    ),
    "invocation": (
        invocation.read,
        INVOCATION,
        paths_of(invocation.InvocationFile, "inputs.data.path", "outputs.score.path"),
        ["outputs.score.path"],
    ),
    "datastore": (
        lambda document: kinds.read_document(document, "default", NOW),
        DATASTORE,
        ["bucket", "endpoint", "tags.x", "description"],
        [],
    ),
    "workspace": (
        lambda document: workspaces.read_document(document, NOW),
        {"name": "vision"},
        ["resource_group", "location", "tags.x", "description", "display_name"],
        [],
    ),
    "environment": (
        environments.read_document,
        {"name": "e", "conda_file": {"dependencies": ["python=3.11"]}},
        ["image", "conda_file", "pip_requirements", "build.path", "tags.x", "description", "name"],
        [],
    ),
}


def steps_of(path: str) -> Steps:
    if path.startswith("properties.torchyard."):
        return ("properties", path.removeprefix("properties."))
    return tuple(int(step) if step.isdigit() else step for step in path.split("."))


def with_value(document: Mapping[str, Any], steps: Steps, value: str) -> dict[str, Any]:
    changed = copy.deepcopy(dict(document))
    parent: Any = changed
    for step, following in itertools.pairwise(steps):
        empty: Any = [None] if isinstance(following, int) else {}
        if isinstance(step, int):
            parent[step] = empty if parent[step] is None else parent[step]
        elif not isinstance(parent.get(step), dict | list):
            parent[step] = empty
        parent = parent[step]
    parent[steps[-1]] = value
    return changed


def expected(kind: str, path: str, written: str) -> str:
    """What comes of it: `accepted` or `refused`."""
    inner = path.removeprefix("trial.").removeprefix("environment.").removeprefix("model.")
    if inner in SHOWN or path == "inputs.shown.description":
        return "accepted"
    if path not in KINDS[kind][3]:
        return "refused"
    if path.endswith("path"):
        # What else it may be is decided where the path is resolved: jobs/files/outputs.py.
        return "accepted" if written in WRITTEN[:2] else "refused"
    accepted = (WRITTEN[0], "$[[ --x ]]") if path.endswith("command") else WRITTEN[:1]
    return "accepted" if written in accepted else "refused"


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize(
    ("kind", "path"), [(kind, path) for kind, (_, _, paths, _) in KINDS.items() for path in paths]
)
def test_an_expression_is_resolved_refused_with_its_place_or_shown(
    kind: str, path: str, written: str
) -> None:
    read, document, _, _ = KINDS[kind]
    steps = steps_of(path)
    value = f"${{{{search_space.lr}}}} {written}" if path == "trial.command" else written
    changed = with_value(document, steps, value)
    if expected(kind, path, written) == "accepted":
        read(changed)
        return
    with pytest.raises(InvalidSpec) as caught:
        read(changed)
    if steps[0] == "torchyard" and steps[1:] and kind in ("job", "sweep"):
        steps = ("properties", f"torchyard.{steps[1]}")
    assert caught.value.at[: len(steps)] == steps[: len(caught.value.at)] != ()
    assert caught.value.hint


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("${{Inputs.a}}", "did you mean `${{inputs.a}}`?"),
        ("${{inputs.a.b}}", "did you mean `${{inputs.a}}`?"),
        ("${{inputs.a} ${{ }}", "did you mean `${{inputs.a}}`?"),
        ("${{inputs}}", "use `${{inputs.<name>}}` or `${{outputs.<name>}}`"),
    ],
)
def test_the_hint_is_another_expression_than_the_one_that_is_written(
    written: str, hint: str
) -> None:
    with pytest.raises(InvalidSpec) as caught:
        job_spec.read({**JOB, "command": f"train {written}"})
    assert caught.value.hint == hint


def test_the_hint_says_where_expressions_are_resolved() -> None:
    with pytest.raises(InvalidSpec) as caught:
        job_spec.read({**JOB, "compute": "${{inputs.a}}"})
    assert caught.value.hint == (
        "write the value itself: expressions are resolved in `command`, `environment_variables` "
        "and `outputs.<name>.path`"
    )
    with pytest.raises(InvalidSpec) as caught:
        job_spec.read({**JOB, "inputs": {"a": "${{parent.inputs.b}}"}})
    assert caught.value.hint == "`parent` is for steps of a pipeline: write the value itself"


def test_all_faulty_expressions_of_a_command_are_told() -> None:
    command = "python t.py ${{inputs.b}} ${{inputs.b}} ${{outputs.m}}"
    with pytest.raises(InvalidSpec) as caught:
        job_spec.read({**JOB, "command": command})
    faults = [caught.value, *caught.value.others]
    expressions = [fault.message.split("`")[1] for fault in faults]
    assert expressions == ["${{inputs.b}}", "${{outputs.m}}"]
