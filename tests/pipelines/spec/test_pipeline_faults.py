"""What is wrong with a pipeline's file: all of it at once, in its order, each with its place."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.spec.pipeline_lab import (
    OWN,
    PREP,
    TRAIN,
    PipelineLab,
    pipeline,
    prep_and_train,
)
from torchyard.base.documents.faults import MOST

STEP = {"a": OWN}
NESTED = {"type": "pipeline", "jobs": STEP}


@pytest.mark.parametrize(
    ("document", "at", "code"),
    [
        (pipeline(), "", "invalid_spec"),
        (pipeline(jobs=[]), "jobs", "invalid_spec"),
        (pipeline(jobs={}), "jobs", "invalid_spec"),
        (pipeline(jobs=None), "", "invalid_spec"),
        (pipeline(jobs="train.yml"), "jobs", "invalid_spec"),
        (pipeline(jobs=STEP, component=NESTED), "component", "invalid_spec"),
        (pipeline(component=[]), "component", "invalid_spec"),
        (pipeline(jobs={"a": None}), "jobs.a", "invalid_spec"),
        (pipeline(jobs={"a": "./train.yml"}), "jobs.a", "invalid_spec"),
        (pipeline(jobs={"a": {}}), "jobs.a", "invalid_spec"),
        (pipeline(jobs={1: OWN}), "jobs.1", "invalid_spec"),
        (pipeline(jobs={"a-b": OWN}), "jobs.a-b", "invalid_spec"),
        (pipeline(jobs={"x" * 101: OWN}), f"jobs.{'x' * 101}", "invalid_spec"),
        (pipeline(jobs={"parent": OWN}), "jobs.parent", "invalid_spec"),
        (pipeline(jobs={"Train": OWN, "train": OWN}), "jobs.train", "invalid_spec"),
        (pipeline(jobs={"a": {**OWN, "component": PREP}}), "jobs.a.command", "invalid_spec"),
        (pipeline(jobs={"a": {"component": 5}}), "jobs.a.component", "invalid_spec"),
        (pipeline(jobs={"a": {"component": "no such"}}), "jobs.a.component", "invalid_input"),
        (pipeline(jobs={"a": {"component": "prep@latest"}}), "jobs.a.component", "not_found"),
        (pipeline(jobs={"a": {"type": "pipeline"}}), "jobs.a.type", "invalid_spec"),
        (pipeline(jobs={"a": {**OWN, "computer": "x"}}), "jobs.a.computer", "invalid_spec"),
        (pipeline(jobs={"a": {**OWN, "inputs": [1]}}), "jobs.a.inputs", "invalid_spec"),
        (pipeline(jobs={"a": {**OWN, "outputs": "o"}}), "jobs.a.outputs", "invalid_spec"),
        (pipeline(jobs={"a": {**OWN, "is_deterministic": "no"}}), "jobs.a.is_deterministic",
         "invalid_spec"),
        (pipeline(jobs={"a": {**OWN, "code": "${{parent.inputs.c}}"}}), "jobs.a.code",
         "invalid_spec"),
        (pipeline(jobs={"a": {**OWN, "environment": "azureml:${{parent.inputs.e}}"}}),
         "jobs.a.environment", "invalid_spec"),
        (pipeline(jobs={"a": {**OWN, "environment_variables": {"A": "${{parent.inputs.e}}"}}}),
         "jobs.a.environment_variables.A", "invalid_spec"),
        (pipeline(jobs={"a": {**OWN, "compute": "${{parent.inputs.none}}"}}), "jobs.a.compute",
         "invalid_spec"),
        (pipeline(jobs={"a": {**OWN, "compute": "gpu-${{parent.inputs.none}}"}}),
         "jobs.a.compute", "invalid_spec"),
        (pipeline(jobs={"a": {**OWN, "compute": "gpu"}}), "jobs.a.compute", "compute_not_found"),
        (pipeline(jobs={"a": {**OWN, "limits": {"timeout": "${{parent.inputs.d}}"}}},
                  inputs={"d": {"path": "https://host/x"}}), "jobs.a.limits.timeout",
         "invalid_spec"),
        (pipeline(jobs={"a": {**OWN, "limits": {"timeout": "${{parent.inputs.d}}"}}},
                  inputs={"d": "soon"}), "jobs.a.limits.timeout", "invalid_spec"),
        (pipeline(jobs={"a": {**OWN, "limits": {"timout": 5}}}), "jobs.a.limits.timout",
         "invalid_spec"),
        (pipeline(jobs={"a": {**OWN, "command": "echo ${{parent.inputs.x}}"}}),
         "jobs.a.command", "invalid_spec"),
        (pipeline(jobs={"a": {**OWN, "torchyard": {"netwerk": "none"}}}),
         "jobs.a.torchyard.netwerk", "invalid_spec"),
        (pipeline(jobs={"a": {**OWN, "torchyard": {"network": "some"}}}),
         "jobs.a.torchyard.network", "invalid_spec"),
        (pipeline(jobs={"a": {**OWN, "properties": {"torchyard.network": "some"}}}),
         "jobs.a.properties.torchyard.network", "invalid_spec"),
        (pipeline(jobs=STEP, torchyard={"network": "some"}), "torchyard.network", "invalid_spec"),
        (pipeline(jobs=STEP, torchyard=5), "torchyard", "invalid_spec"),
        (pipeline(jobs=STEP, properties={"torchyard.netwerk": "none"}),
         "properties.torchyard.netwerk", "invalid_spec"),
        (pipeline(jobs=STEP, settings={"default_datestore": "azureml:store"}),
         "settings.default_datestore", "invalid_spec"),
        (pipeline(jobs=STEP, settings={"force_rerun": "perhaps"}), "settings.force_rerun",
         "invalid_spec"),
        (pipeline(jobs=STEP, settings={"default_compute": "gpu"}), "settings.default_compute",
         "compute_not_found"),
        (pipeline(jobs=STEP, compute="gpu"), "compute", "compute_not_found"),
        (pipeline(jobs={"a": {**OWN, "outputs": {"o": None}}},
                  settings={"default_datastore": "none"}), "settings.default_datastore",
         "not_found"),
        (pipeline(jobs=STEP, inputs={"x": {"tipe": "string"}}), "inputs.x.tipe", "invalid_spec"),
        (pipeline(jobs=STEP, outputs={"x": {"mode": "never"}}), "outputs.x.mode", "invalid_spec"),
        (pipeline(jobs=STEP, job={}), "job", "invalid_spec"),
        (pipeline(jobs=STEP, name="a b"), "name", "invalid_spec"),
        (pipeline(jobs=STEP, name="x" * 255), "name", "invalid_spec"),
        (pipeline(jobs=STEP, status="Running"), "status", "not_served"),
        ([], "", "invalid_spec"),
    ],
)  # fmt: skip
def test_one_thing_is_wrong(
    lab: PipelineLab, sentence: Any, document: Any, at: str, code: str
) -> None:
    error = lab.refused(document)
    assert (".".join(map(str, error.at)), error.code) == (at, code)
    assert not error.others, [each.message for each in error.others]
    sentence.is_of(error)


@pytest.mark.parametrize(
    "kind",
    [
        *("spark", "automl", "parallel", "sweep", "import", "data_transfer", "if_else"),
        *("do_while", "condition", "finetuning", "parallel_for", "distillation"),
    ],
)
def test_a_kind_of_step_that_is_not_served_is_refused_by_its_name(
    lab: PipelineLab, sentence: Any, kind: str
) -> None:
    step = {"type": kind, "task": {"entry": "x.py"}, "conf": {"spark.driver.cores": 1}, "trial": {}}
    error = lab.refused(pipeline(jobs={"a": step}), uploaded=False)
    assert (error.at, error.code, error.others) == (("jobs", "a", "type"), "not_served", ())
    assert kind in error.message
    sentence.is_of(error)


@pytest.mark.parametrize("kind", ["spark", "parallel", "sweep", "import", "automl"])
def test_so_is_such_a_component(lab: PipelineLab, kind: str) -> None:
    component = {"type": kind, "code": "./src", "entry": {"file": "x.py"}}
    error = lab.refused(pipeline(jobs={"a": {"component": component}}), uploaded=False)
    assert error.at == ("jobs", "a", "component", "type") and error.code == "not_served"
    assert kind in error.message and not error.others


@pytest.mark.parametrize(
    ("changes", "below"),
    [
        ({"comand": "x"}, "comand"),
        ({"command": ""}, "command"),
        ({"command": "train ${{inputs.dat}}"}, "command"),
        ({"command": "train ${{outputs.modl}}"}, "command"),
        ({"environment": None}, "environment"),
        ({"environment_variables": {"A": "${{inputs.x}}"}}, "environment_variables.A"),
        ({"code": "${{inputs.data}}"}, "code"),
        ({"resources": {"instance_count": 0}}, "resources.instance_count"),
        ({"distribution": {"type": "pytorc"}}, "distribution.type"),
        ({"limits": {"timeout": -1}}, "limits.timeout"),
        ({"inputs": {"data": {"type": "uri_foldr"}}}, "inputs.data.type"),
        ({"inputs": {"data": {}}}, "inputs.data.type"),
        ({"inputs": {"data": {"type": "uri_file", "default": "x"}}}, "inputs.data.default"),
        ({"inputs": {"data": {"type": "uri_folder"}, "n": {"type": "number", "min": "low"}}},
         "inputs.n.min"),
        ({"inputs": {"data": {"type": "uri_folder"}, "n": {"type": "string", "enum": "a"}}},
         "inputs.n.enum"),
        ({"inputs": {"data": {"type": "uri_folder"}, "n": {"type": "string", "optional": 3}}},
         "inputs.n.optional"),
        ({"outputs": {"model": {"type": "uri_folder", "mod": "x"}}}, "outputs.model.mod"),
        ({"outputs": {"model": {"type": "uri_folder", "mode": "download"}}}, "outputs.model.mode"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_component_is_told_in_it(
    lab: PipelineLab, sentence: Any, changes: Any, below: str
) -> None:
    error = lab.refused(prep_and_train(train__component={**TRAIN, **changes}))
    assert ".".join(map(str, error.at)) == f"jobs.train.component.{below}"
    sentence.is_of(error)


def test_a_registered_component_is_wrong_where_it_is_named(lab: PipelineLab) -> None:
    lab.register("train", {**TRAIN, "limits": {"timeout": -1}})
    assert lab.faults(prep_and_train(train__component="train@latest")) == [
        ("jobs.train.component", "invalid_spec")
    ]
    mended = prep_and_train(train__component="train@latest", train__limits={"timeout": 5})
    assert lab.check(mended).steps[1].spec.timeout_s == 5


def test_all_faults_of_all_steps_are_told_in_the_order_of_the_file(lab: PipelineLab) -> None:
    document = pipeline(
        display_nam="x",
        settings={"default_datestore": "x"},
        jobs={
            "a": {**OWN, "comput": "local"},
            "b": {"component": "none@latest", "inputs": {"x": "${{parent.inputs.nothing}}"}},
            "c": {"component": TRAIN, "inputs": {"data": "${{parent.jobs.a.outputs.o}}"}},
            "d": {"component": TRAIN, "inputs": {"data": "${{parent.jobs.b.outputs.o}}", "rat": 1}},
            "e": {"component": {**PREP, "command": "x ${{inputs.rowz}}"}},
            "f": {**OWN, "compute": "gpu", "outputs": {"o": {"mode": "x"}}},
            "g": {"type": "spark"},
            "h": {**OWN, "inputs": {"x": "${{parent.jobs.h.inputs.x}}"}, "compute": "tpu"},
        },
        tags=[1],
    )
    assert [place for place, _ in lab.faults(document)] == [
        "display_nam",
        "settings.default_datestore",
        "jobs.a.comput",
        "jobs.b.component",
        "jobs.d.inputs.rat",
        "jobs.e.component.command",
        "jobs.f.compute",
        "jobs.f.outputs.o.mode",
        "jobs.g.type",
        "jobs.h.inputs.x",
        "tags",
    ]


def test_what_hangs_on_a_fault_adds_none(lab: PipelineLab) -> None:
    table = "${{parent.jobs.prep.outputs.table}}"
    wrong_names = prep_and_train(prep__component="none@latest", third=OWN)
    wrong_names["jobs"]["third"] = {**OWN, "inputs": {"x": table}}
    assert lab.faults(wrong_names) == [("jobs.prep.component", "not_found")]
    misspelt = {**prep_and_train(train__inputs__rate="${{parent.inputs.rate}}"), "input": {}}
    assert lab.faults(misspelt) == [("input", "invalid_spec")]


def test_as_many_faults_are_told_as_of_any_document(lab: PipelineLab) -> None:
    jobs = {f"s{n}": {**OWN, "inputs": {"x": "${{parent.inputs.no}}"}} for n in range(50)}
    assert len(lab.faults(pipeline(jobs=jobs))) == MOST
    jobs = {f"s{n}": {**OWN, "compute": f"c{n}"} for n in range(50)}
    assert len(lab.faults(pipeline(jobs=jobs))) == MOST
