"""The job file of each step: its component, what stands at the step, what the pipeline gives."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.support import ME, WORKSPACE
from pipelines.spec.pipeline_lab import (
    OWN,
    PREP,
    TRAIN,
    PipelineLab,
    of_inputs,
    pipeline,
    prep_and_train,
)
from torchyard.components import actions as components
from torchyard.pipelines.records import step_store
from torchyard.pipelines.running import creation
from torchyard.pipelines.running.creation import step_document
from torchyard.pipelines.spec import pipeline_file
from torchyard.pipelines.spec.pipeline_file import Settings
from torchyard.pipelines.spec.plan import Taken


def test_a_component_in_the_file_is_a_step(lab: PipelineLab) -> None:
    checked = lab.check(prep_and_train())
    prep, train = checked.plan.steps
    assert prep.document == {
        "type": "command",
        "command": PREP["command"],
        "environment": "azureml:sklearn@latest",
        "inputs": {"rows": "100"},
        "outputs": {"table": {"type": "uri_folder"}},
    }
    assert train.takes == {"data": Taken("prep", "table", "uri_folder")}
    assert train.document["environment"] == "azureml:sklearn"
    assert "inputs" not in train.document, "an optional input that nobody sets is not there"
    assert (prep.component, train.component) == ("", "")


def test_a_component_of_the_workspace_is_named_in_each_way(lab: PipelineLab) -> None:
    lab.register("prep", PREP)
    lab.register("prep", {**PREP, "is_deterministic": False})
    arm = (
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces"
        f"/{WORKSPACE}/components/prep"
    )
    labels = {
        name: lab.step(pipeline(jobs={"a": {"component": name}}), "a").component
        for name in (
            *("prep:1", "azureml:prep:1", "azureml:prep@latest", "prep", " prep:2 "),
            *(f"{arm}/versions/1", f"azureml:{arm}/labels/latest", f"azureml:{arm}/versions/2"),
        )
    }
    assert list(labels.values()) == [
        *("prep:1", "prep:1", "prep:2", "prep:2", "prep:2"),
        *("prep:1", "prep:2", "prep:2"),
    ]
    steps = {"a": {"component": "prep:2"}, "b": {"component": "prep:2", "is_deterministic": "true"}}
    assert not lab.step(pipeline(jobs=steps), "a").is_deterministic
    assert lab.step(pipeline(jobs=steps), "b").is_deterministic


def test_a_step_may_be_a_command_of_its_own(lab: PipelineLab) -> None:
    jobs = {
        "a": {**OWN, "outputs": {"o": None, "f": {"type": "uri_file", "mode": "upload"}}},
        "b": {
            **OWN,
            "type": "command",
            "command": "cat ${{inputs.f}} ${{inputs.o}} ${{inputs.n}}",
            "inputs": {
                "f": "${{parent.jobs.a.outputs.f}}",
                "o": {"path": "${{parent.jobs.a.outputs.o.path}}", "mode": "download"},
                "n": 5,
            },
            "is_deterministic": False,
        },
    }
    checked = lab.check(pipeline(jobs=jobs))
    a, b = checked.plan.steps
    assert a.document["outputs"] == {
        "o": {"type": "uri_folder"},
        "f": {"type": "uri_file", "mode": "upload"},
    }
    assert b.takes == {
        "f": Taken("a", "f", "uri_file"),
        "o": Taken("a", "o", "uri_folder", "download"),
    }
    assert b.document["inputs"] == {"n": 5}
    assert a.is_deterministic and not b.is_deterministic


def test_keys_of_a_step_go_before_those_of_its_component(lab: PipelineLab) -> None:
    component = {
        **OWN,
        "environment_variables": {"A": "1", "B": "2"},
        "resources": {"instance_count": 1, "shm_size": "1g"},
        "limits": {"timeout": 60},
        "distribution": {"type": "pytorch", "process_count_per_instance": 1},
    }
    step = {
        "component": component,
        "environment": "azureml:other@latest",
        "environment_variables": {"B": 3},
        "resources": {"instance_count": 1, "shm_size": "2g"},
        "limits": {"timeout": 30},
        "distribution": {"type": "pytorch", "process_count_per_instance": 2},
        "queue_settings": {"job_tier": "spot"},
        "identity": {"type": "user_identity"},
        "services": {"board": {"type": "tensor_board"}},
        "compute": "azureml:local",
        "display_name": "Shown",
        "tags": {"a": "b"},
        "torchyard": {"retry": {"max_attempts": 2}},
        "name": "ignored",
        "experiment_name": "ignored",
    }
    document = lab.step(pipeline(jobs={"a": step}), "a").document
    assert document["environment_variables"] == {"A": "1", "B": 3}
    assert document["resources"] == {"instance_count": 1, "shm_size": "2g"}
    assert document["limits"] == {"timeout": 30}
    assert document["environment"] == "azureml:other@latest"
    assert document["distribution"]["process_count_per_instance"] == 2
    assert document["properties"] == {"torchyard.retry.max_attempts": "2"}
    assert document["compute"] == "azureml:local" and document["display_name"] == "Shown"
    assert {"services", "queue_settings", "identity", "tags"} <= document.keys()
    assert "experiment_name" not in document and "name" not in document


def test_what_the_pipeline_says_reaches_its_steps(lab: PipelineLab) -> None:
    document = pipeline(
        jobs={"a": {**OWN, "properties": {"torchyard.network": "open"}}},
        torchyard={"network": "none", "retry": {"max_attempts": 3}},
        properties={"mine": "stays"},
        experiment_name="trees",
    )
    spec = lab.check(document).spec
    job = step_document(spec, "a", lab.step(document, "a").document)
    assert job["properties"] == {
        "torchyard.network": "open",
        "torchyard.retry.max_attempts": "3",
    }
    assert (job["experiment_name"], job["display_name"]) == ("trees", "a")


def test_the_settings_are_read(lab: PipelineLab) -> None:
    written = {
        "default_compute": "azureml:local",
        "default_datastore": "azureml:workspaceblobstore",
        "continue_on_step_failure": "False",
        "force_rerun": True,
    }
    jobs = {"a": {**OWN, "outputs": {"o": {}}}, "b": {**OWN, "compute": "azureml:auto"}}
    document = pipeline(jobs=jobs, settings=written)
    spec = pipeline_file.read(document)
    where = ("settings", "default_compute")
    assert spec.settings == Settings("azureml:local", where, "workspaceblobstore", False, True)
    step = lab.step({**document, "jobs": {"a": jobs["a"]}}, "a").document
    assert step["compute"] == "azureml:local"
    assert step["outputs"]["o"]["path"] == (
        "azureml://datastores/workspaceblobstore/paths/azureml/${{name}}/${{output_name}}/"
    )
    assert pipeline_file.read(pipeline(jobs=jobs)).settings == Settings(compute_at=("compute",))
    of_top = pipeline_file.read(pipeline(jobs=jobs, compute="azureml:gpu")).settings
    assert of_top.compute == "azureml:gpu"


@pytest.mark.parametrize("timeout", ["${{parent.inputs.s}}", "${{parent.jobs.a.inputs.s}}"])
def test_compute_and_limits_may_be_bound_to_an_input(lab: PipelineLab, timeout: str) -> None:
    step = {
        **OWN,
        "compute": "${{parent.inputs.cluster}}",
        "limits": {"timeout": timeout},
        "resources": {"instance_count": "${{parent.inputs.nodes}}"},
        "inputs": {"s": "${{parent.inputs.s}}"},
    }
    inputs = {"cluster": "local", "s": "90", "nodes": {"type": "integer", "value": "1"}}
    document = lab.step(pipeline(inputs=inputs, jobs={"a": step}), "a").document
    assert document["compute"] == "local"
    assert document["limits"] == {"timeout": 90}
    assert document["resources"] == {"instance_count": 1}


def test_steps_stand_in_an_order_in_which_they_can_run(lab: PipelineLab) -> None:
    jobs = {
        "last": {"component": TRAIN, "inputs": {"data": "${{parent.jobs.first.outputs.table}}"}},
        "first": {"component": PREP},
        "other": OWN,
    }
    names = [step.name for step in lab.check(pipeline(jobs=jobs)).plan.steps]
    assert names == ["first", "other", "last"]


def test_notices_of_a_step_name_it(lab: PipelineLab) -> None:
    unused = {**OWN, "inputs": {"x": 1}}
    (notice, *_) = lab.check(pipeline(jobs={"a": unused})).notices
    assert notice.startswith("step `a`: ") and "`x`" in notice


def test_equal_steps_are_told_apart_by_what_differs(lab: PipelineLab) -> None:
    """Steps that differ in literals alone are checked once; those that do not are not."""
    data = {"type": "uri_folder"}
    component = of_inputs(x={"type": "string"}, d={**data, "optional": True})
    jobs: dict[str, Any] = {
        "a": {"component": component, "inputs": {"x": "one"}},
        "b": {"component": component, "inputs": {"x": "two"}},
        "c": {"component": component, "inputs": {"x": "${ inputs.x"}},
        "d": {"component": component, "inputs": {"x": "1", "d": "azureml:missing@latest"}},
    }
    assert lab.faults(pipeline(jobs=jobs)) == [("jobs.d.inputs.d", "not_found")]
    del jobs["d"]
    checked = lab.check(pipeline(jobs=jobs))
    assert checked.steps[0] is checked.steps[1] is not checked.steps[2]
    assert [step.document["inputs"]["x"] for step in checked.plan.steps] == [
        *("one", "two", "${ inputs.x")
    ]


def test_an_archived_version_is_refused_and_latest_passes_it_over(lab: PipelineLab) -> None:
    for command in ("true", "false"):
        lab.register("c", {**OWN, "command": command})
    components.archive(lab.services.db, WORKSPACE, "c", "2", user=ME.user)
    assert lab.step(pipeline(jobs={"a": {"component": "c@latest"}}), "a").component == "c:1"
    error = lab.refused(pipeline(jobs={"a": {"component": "azureml:c:2"}}))
    assert error.message == "component `c:2` is archived"
    assert error.at == ("jobs", "a", "component")


def test_the_files_of_steps_are_stored_pinned(lab: PipelineLab) -> None:
    lab.register("prep", PREP)
    document = prep_and_train(prep__component="prep@latest", again__component="prep@latest")
    document["inputs"] = {"rows": {"path": "https://host/rows/"}}
    document["jobs"]["train"]["inputs"] = {"data": "${{parent.inputs.rows}}", "rate": 0.1}
    services = lab.services
    job, is_new = creation.create(services, WORKSPACE, {**document, "name": "mine"}, ME)
    with services.db.read() as connection:
        rows = step_store.steps_of(connection, job.id)
        files = [step_store.document_of(connection, job.id, row.number) for row in rows]
    assert is_new and creation.create(services, WORKSPACE, {**document, "name": "mine"}, ME) == (
        job,
        False,
    )
    assert [(row.name, row.component) for row in rows] == [
        *(("prep", "prep:1"), ("train", ""), ("again", "prep:1"))
    ]
    assert [file["display_name"] for file in files] == ["prep", "train", "again"]
    assert files[1]["inputs"] == {
        "data": {"type": "uri_folder", "path": "https://host/rows/"},
        "rate": 0.1,
    }
