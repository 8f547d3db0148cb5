"""What the inputs of steps are: values, data, what is bound to them, and what fits."""

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
from torchyard.data import assets
from torchyard.pipelines.spec.plan import Taken

URL = "https://host/data/"


def one(port: Any, value: Any, **inputs: Any) -> dict[str, Any]:
    """A pipeline of one step with one input."""
    step = {"component": of_inputs(x=port), "inputs": {"x": value}}
    return pipeline(inputs=inputs, jobs={"a": step})


@pytest.mark.parametrize(
    ("port", "value", "read"),
    [
        ({"type": "string"}, "text", "text"),
        ({"type": "string"}, 5, 5),
        ({"type": "string"}, "", ""),
        ({"type": "integer"}, 5, 5),
        ({"type": "integer"}, "5", "5"),
        ({"type": "Integer", "min": "1", "max": "9"}, "9", "9"),
        ({"type": "number"}, "1e-3", "1e-3"),
        ({"type": "number", "min": 0, "max": "1.5"}, 1.5, 1.5),
        ({"type": "number", "enum": ["0.1", 1]}, 1.0, 1.0),
        ({"type": "boolean"}, "True", "True"),
        ({"type": "boolean"}, False, False),
        ({"type": "boolean", "enum": [True]}, "True", "True"),
        ({"type": "string", "enum": ["a", "b"]}, {"value": "b"}, "b"),
        ({"type": "integer"}, {"type": "integer", "value": "7"}, "7"),
        ({"type": "number", "default": "0.5"}, None, "0.5"),
        ({"type": "boolean", "default": False}, None, False),
        ({"type": "integer"}, "${{parent.inputs.n}}", 4),
        ({"type": "string"}, "${{ parent.inputs.group.n }}", "g"),
        ({"type": "number", "optional": True, "default": 2}, "${{parent.inputs.unset}}", 2),
        (
            {"type": "uri_folder"},
            {"path": URL, "mode": "download"},
            {"type": "uri_folder", "path": URL, "mode": "download"},
        ),
        ({"type": "uri_file", "mode": "direct"}, URL, {"type": "uri_file", "path": URL,
                                                       "mode": "direct"}),
        (
            {"type": "uri_folder"},
            "${{parent.inputs.data}}",
            {"type": "uri_folder", "path": URL, "mode": "direct"},
        ),
        (
            {"type": "uri_folder"},
            {"path": "${{parent.inputs.data}}", "mode": "download"},
            {"type": "uri_folder", "path": URL, "mode": "download"},
        ),
        # What is written with the data counts, as at run time in Azure.
        (
            {"type": "uri_folder"},
            {"type": "uri_file", "path": URL},
            {"type": "uri_file", "path": URL},
        ),
        (
            {"type": "uri_file"},
            "${{parent.inputs.data}}",
            {"type": "uri_folder", "path": URL, "mode": "direct"},
        ),
        (
            {"type": "uri_file"},
            "${{parent.inputs.untyped}}",
            {"type": "uri_file", "path": URL},
        ),
    ],
)  # fmt: skip
def test_a_value_that_fits(lab: PipelineLab, port: Any, value: Any, read: Any) -> None:
    inputs: dict[str, Any] = {
        "n": 4,
        "unset": None,
        "data": {"type": "uri_folder", "path": URL, "mode": "direct"},
        "untyped": {"path": URL},
    }
    document = one(port, value, **inputs)
    if isinstance(value, str) and "group" in value:
        document = one(port, "${{parent.inputs.n}}", n="g")
    assert lab.inputs(document, "a") == {"x": read}


@pytest.mark.parametrize(
    ("port", "value", "at", "code"),
    [
        ({"type": "integer"}, "5.5", "x", "type_mismatch"),
        ({"type": "integer"}, "", "x", "type_mismatch"),
        ({"type": "boolean"}, "yes", "x", "type_mismatch"),
        ({"type": "number"}, True, "x", "type_mismatch"),
        ({"type": "integer", "min": "1"}, 0, "x", "invalid_spec"),
        ({"type": "number", "max": "1.5"}, "1.6", "x", "invalid_spec"),
        ({"type": "string", "enum": ["a", "b"]}, "c", "x", "invalid_spec"),
        ({"type": "number"}, {"path": URL}, "x", "type_mismatch"),
        ({"type": "uri_folder"}, 5, "x", "type_mismatch"),
        ({"type": "uri_folder"}, {"value": "text"}, "x", "type_mismatch"),
        ({"type": "uri_folder"}, "text", "x", "invalid_input"),
        ({"type": "string"}, "${{parent.inputs.data}}", "x", "type_mismatch"),
        ({"type": "uri_folder"}, "${{parent.inputs.n}}", "x", "type_mismatch"),
        ({"type": "integer"}, [1], "x", "invalid_spec"),
        ({"type": "integer"}, {"vale": 1}, "x.vale", "invalid_spec"),
        ({"type": "integer"}, "${{parent.inputs.unset}}", "x", "invalid_spec"),
        ({"type": "integer"}, None, "", "invalid_spec"),
        ({"type": "string"}, "rate ${{parent.inputs.n}}", "x", "invalid_spec"),
        ({"type": "string"}, "${{inputs.n}}", "x", "invalid_spec"),
        ({"type": "string"}, "${{parent.inputs.nn}}", "x", "invalid_spec"),
        ({"type": "string"}, "${{parent.outputs.n}}", "x", "invalid_spec"),
        ({"type": "string"}, {"value": "${{parent.jobs.b.outputs.n}}"}, "x.value", "invalid_spec"),
        ({"type": "string"}, "${{parent.jobs.a.outputs.n}}", "x", "invalid_spec"),
        ({"type": "string"}, "${{parent.jobs.a.inputs.y}}", "x", "invalid_spec"),
        ({"type": "string"}, "${{parent.jobs.a.inputs.x}}", "x", "cyclic_reference"),
    ],
)
def test_a_value_that_does_not(
    lab: PipelineLab, sentence: Any, port: Any, value: Any, at: str, code: str
) -> None:
    inputs: dict[str, Any] = {"n": 4, "unset": None, "data": {"type": "uri_folder", "path": URL}}
    error = lab.refused(one(port, value, **inputs))
    place = "jobs.a.inputs" + (f".{at}" if at else "")
    assert (".".join(map(str, error.at)), error.code, error.others) == (place, code, ())
    sentence.is_of(error)


def test_a_default_is_checked_as_a_value(lab: PipelineLab) -> None:
    component = of_inputs(x={"type": "integer", "default": "many"})
    document = pipeline(jobs={"a": {"component": component}})
    assert lab.faults(document) == [("jobs.a.component.inputs.x.default", "type_mismatch")]
    lab.register("c", component)
    document = pipeline(jobs={"a": {"component": "c@latest"}})
    assert lab.faults(document) == [("jobs.a.component", "type_mismatch")]


def test_an_optional_input_comes_or_stays_out_of_the_command(lab: PipelineLab) -> None:
    bound = prep_and_train(train__inputs__rate="${{parent.inputs.rate}}")
    assert lab.inputs({**bound, "inputs": {"rate": 0.1}}, "train") == {"rate": 0.1}
    assert lab.inputs({**bound, "inputs": {"rate": None}}, "train") == {}
    always = {**TRAIN, "command": TRAIN["command"].replace("$[[", "").replace("]]", "")}
    document = prep_and_train(train__component=always)
    assert lab.faults(document) == [("jobs.train.component.command", "invalid_spec")]


def test_an_input_is_passed_on_from_step_to_step(lab: PipelineLab) -> None:
    document = prep_and_train(prep__inputs__rows="${{parent.jobs.third.inputs.n}}")
    document["jobs"]["third"] = {
        **OWN,
        "inputs": {
            "n": "${{parent.jobs.fourth.inputs.n}}",
            "d": {"path": "${{parent.jobs.train.inputs.data}}", "mode": "download"},
        },
    }
    document["jobs"]["fourth"] = {**OWN, "inputs": {"n": 7}}
    assert lab.inputs(document, "prep") == {"rows": 7}
    assert lab.step(document, "third").takes == {
        "d": Taken("prep", "table", "uri_folder", "download")
    }


def test_inputs_that_are_bound_to_each_other(lab: PipelineLab, sentence: Any) -> None:
    jobs = {
        "a": {**OWN, "inputs": {"x": "${{parent.jobs.b.inputs.x}}"}},
        "b": {**OWN, "inputs": {"x": "${{parent.jobs.c.inputs.x}}"}},
        "c": {**OWN, "inputs": {"x": "${{parent.jobs.a.inputs.x}}"}},
    }
    error = lab.refused(pipeline(jobs=jobs))
    assert error.code == "cyclic_reference" and error.at == ("jobs", "a", "inputs", "x")
    assert not error.others
    sentence.is_of(error)


def test_steps_that_wait_for_each_other(lab: PipelineLab, sentence: Any) -> None:
    model = "${{parent.jobs.train.outputs.model}}"
    prep = {**PREP, "inputs": {**PREP["inputs"], "old": {"type": "uri_folder", "optional": True}}}
    error = lab.refused(prep_and_train(prep__component=prep, prep__inputs__old=model))
    assert error.code == "cyclic_reference" and error.at == ("jobs", "prep", "inputs")
    sentence.is_of(error)


@pytest.mark.parametrize(
    ("made", "taken", "becomes"),
    [
        ("uri_folder", "uri_folder", "uri_folder"),
        ("uri_folder", "mltable", "mltable"),
        ("uri_folder", "mlflow_model", "mlflow_model"),
        ("uri_folder", "custom_model", "custom_model"),
        ("mlflow_model", "uri_folder", "uri_folder"),
        ("custom_model", "uri_file", "uri_file"),
        ("uri_file", "path", "uri_file"),
        ("uri_file", "custom_model", "custom_model"),
        ("onnx_model", "uri_file", "uri_file"),
        ("onnx_model", "path", "uri_file"),
        ("path", "mltable", "mltable"),
        ("uri_file", "uri_folder", ""),
        ("uri_folder", "uri_file", ""),
        ("mltable", "uri_file", ""),
        ("onnx_model", "mlflow_model", ""),
        ("uri_file", "string", ""),
    ],
)
def test_what_a_step_makes_fits_by_its_type(
    lab: PipelineLab, made: str, taken: str, becomes: str
) -> None:
    maker = {**OWN, "outputs": {"o": {"type": made}}}
    taker = {"component": of_inputs(x={"type": taken}), "inputs": {
        "x": "${{parent.jobs.a.outputs.o}}"}}  # fmt: skip
    document = pipeline(jobs={"a": {"component": maker}, "b": taker})
    if becomes:
        assert lab.step(document, "b").takes == {"x": Taken("a", "o", becomes)}
    else:
        assert lab.faults(document) == [("jobs.b.inputs.x", "type_mismatch")]


def test_data_of_the_workspace_is_pinned_and_checked(lab: PipelineLab) -> None:
    services = lab.services
    request = assets.DataRequest("rows", "https://host/t/", "mltable")
    assets.create(
        services.db, services.clock, services.datastores, services.blobs.of(WORKSPACE),
        lambda *_: "", WORKSPACE, request, ME.user,
    )  # fmt: skip
    document = prep_and_train(train__inputs__data="${{parent.inputs.rows}}")
    document["inputs"] = {"rows": {"type": "mltable", "path": "azureml:rows@latest"}}
    step = lab.check(document).steps[1]
    assert step.paths == {"data": "azureml:rows:1"} and step.spec.inputs["data"].type == "mltable"
    document["inputs"] = {"rows": {"path": "azureml:rows:7"}}
    document["jobs"]["again"] = document["jobs"]["train"]
    error = lab.refused(document)
    assert error.at == ("inputs", "rows", "path") and error.code == "not_found"
    assert not error.others, "what two steps are bound to is told once"


@pytest.mark.parametrize("uploaded", [True, False])
def test_what_lies_in_a_registry_is_refused_by_name(lab: PipelineLab, uploaded: bool) -> None:
    registry = "azureml://registries/azureml"
    model = {"type": "custom_model", "path": f"{registry}/models/bert/versions/1"}
    document = prep_and_train(
        prep__component=f"{registry}/components/prep/labels/latest",
        other__component=f"{registry}/components/prep",
        train__inputs__data=model,
    )
    error = lab.refused(document, uploaded)
    first, second, third = (error, *error.others)
    assert [each.at for each in (first, second, third)] == [
        ("jobs", "prep", "component"),
        ("jobs", "train", "inputs", "data", "path"),
        ("jobs", "other", "component"),
    ]
    assert first.code == third.code == "not_served"
    for each in (first, second, third):
        assert registry in each.message and "registry" in each.message


def test_folders_that_are_yet_to_be_uploaded_are_taken(lab: PipelineLab) -> None:
    local, code = {"type": "uri_folder", "path": "local:./data"}, {**PREP, "code": "local:."}
    document = prep_and_train(train__inputs__data=local, prep__component=code)
    lab.check(document, uploaded=False)
    assert [place for place, _ in lab.faults(document)] == [
        "jobs.prep.component.code",
        "jobs.train.inputs.data.path",
    ]
