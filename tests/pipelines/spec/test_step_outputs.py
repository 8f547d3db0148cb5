"""Outputs of steps and of the pipeline: modes, types, names of assets."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.spec.pipeline_lab import OWN, PREP, PipelineLab, pipeline, prep_and_train
from torchyard.pipelines.spec.plan import Made


def output(lab: PipelineLab, declared: Any, written: Any, **outputs: Any) -> Any:
    """The one output of the one step, as of a job's file."""
    component = {**OWN, "outputs": {"o": declared}}
    step = {"component": component, "outputs": {"o": written}}
    return lab.step(pipeline(outputs=outputs, jobs={"a": step}), "a").document["outputs"]["o"]


@pytest.mark.parametrize(
    ("declared", "written", "becomes"),
    [
        ({"type": "uri_file"}, None, {"type": "uri_file"}),
        ({"type": "uri_file", "mode": "upload"}, {}, {"type": "uri_file", "mode": "upload"}),
        ({"type": "uri_file", "mode": "upload"}, {"mode": "rw_mount"},
         {"type": "uri_file", "mode": "rw_mount"}),
        ({"type": "uri_file"}, {"type": "uri_folder", "mode": "upload"},
         {"type": "uri_file", "mode": "upload"}),
        ({"type": "path"}, None, {"type": "uri_folder"}),
        ({"type": "path"}, {"type": "uri_file"}, {"type": "uri_file"}),
        ({"type": "uri_folder"}, {"type": "mlflow_model", "name": "m", "version": 3},
         {"type": "mlflow_model", "name": "m", "version": 3}),
        ({"type": "mltable"}, {"type": "custom_model"}, {"type": "mltable"}),
        ({"type": "uri_folder"},
         {"path": "azureml://datastores/workspaceblobstore/paths/a/${{name}}"},
         {"type": "uri_folder", "path": "azureml://datastores/workspaceblobstore/paths/a/${{name}}"}),
        ({"type": "uri_folder"}, "${{parent.outputs.plain}}", {"type": "uri_folder"}),
        ({"type": "uri_folder"}, "${{ parent.outputs.model }}",
         {"type": "mlflow_model", "mode": "upload", "name": "m"}),
        ({"type": "uri_folder"}, {"path": "${{parent.outputs.model}}", "mode": "rw_mount",
                                  "type": "uri_folder"},
         {"type": "mlflow_model", "mode": "rw_mount", "name": "m"}),
    ],
)  # fmt: skip
def test_an_output_of_a_step(lab: PipelineLab, declared: Any, written: Any, becomes: Any) -> None:
    outputs = {"plain": None, "model": {"type": "mlflow_model", "mode": "upload", "name": "m"}}
    assert output(lab, declared, written, **outputs) == becomes


def test_outputs_of_the_pipeline_are_those_of_steps(lab: PipelineLab) -> None:
    document = prep_and_train(
        prep__outputs={"table": "${{parent.outputs.table}}"},
        train__outputs={"model": {"path": "${{parent.outputs.model}}", "mode": "upload"}},
    )
    document["outputs"] = {"table": None, "model": {}, "lost": {"mode": "upload"}}
    checked = lab.check(document)
    assert checked.plan.outputs == {"table": Made("prep", "table"), "model": Made("train", "model")}
    assert checked.notices == ("output `lost` is made by no step",)


@pytest.mark.parametrize(
    ("outputs", "at", "code"),
    [
        ({"tabel": None}, "tabel", "invalid_spec"),
        ({"table": "${{parent.outputs.tabel}}"}, "table", "invalid_spec"),
        ({"table": "${{parent.inputs.table}}"}, "table", "invalid_spec"),
        ({"table": {"path": "${{parent.jobs.train.outputs.model}}"}}, "table.path", "invalid_spec"),
        ({"table": "./here"}, "table", "invalid_spec"),
        ({"table": {"mode": "downlod"}}, "table.mode", "invalid_spec"),
        ({"table": {"path": "${{parent.outputs.table}}", "mod": "upload"}}, "table.mod",
         "invalid_spec"),
        ({"table": {"path": "azureml://datastores/none/paths/x"}}, "table.path", "not_found"),
        ({"table": {"version": "1"}}, "table.version", "invalid_spec"),
    ],
)  # fmt: skip
def test_an_output_that_is_wrong(
    lab: PipelineLab, sentence: Any, outputs: Any, at: str, code: str
) -> None:
    document = {**prep_and_train(prep__outputs=outputs), "outputs": {"table": None}}
    error = lab.refused(document)
    assert (".".join(map(str, error.at)), error.code) == (f"jobs.prep.outputs.{at}", code)
    assert not error.others
    sentence.is_of(error)


def test_an_output_of_the_pipeline_is_made_by_one_step(lab: PipelineLab, sentence: Any) -> None:
    bound = {"table": "${{parent.outputs.table}}"}
    document = prep_and_train(prep__outputs=bound, other={"component": PREP, "outputs": bound})
    error = lab.refused({**document, "outputs": {"table": None}})
    assert error.at == ("jobs", "other", "outputs", "table") and not error.others
    sentence.is_of(error)


def test_what_the_pipeline_says_of_an_output_is_told_there(lab: PipelineLab) -> None:
    document = prep_and_train(prep__outputs={"table": "${{parent.outputs.table}}"})
    document["outputs"] = {"table": {"path": "azureml://datastores/none/paths/x"}}
    assert lab.faults(document) == [("outputs.table.path", "not_found")]


def test_an_output_that_is_a_value_is_not_served(lab: PipelineLab, sentence: Any) -> None:
    component = {**OWN, "outputs": {"score": {"type": "number"}}}
    error = lab.refused(pipeline(jobs={"a": {"component": component}}))
    assert error.at == ("jobs", "a", "component", "outputs", "score")
    assert error.code == "not_served"
    sentence.is_of(error)
