"""A component's document: its ports, its kinds, what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.components import documents

COMMAND: dict[str, Any] = {
    "name": "train",
    "command": "train --rate ${{inputs.rate}}",
    "environment": "azureml:sklearn@latest",
    "inputs": {"rate": {"type": "Number", "min": "0", "max": 1, "optional": None}},
}
PIPELINE: dict[str, Any] = {
    "name": "steps",
    "type": "pipeline",
    "inputs": {"rate": {"type": "number", "default": 0.1}},
    "outputs": {"model": {"type": "uri_folder"}},
    "jobs": {
        "train": {
            "component": "azureml:train@latest",
            "inputs": {"rate": "${{parent.inputs.rate}}"},
            "outputs": {"model": "${{parent.outputs.model}}"},
        }
    },
}


def refused(document: Any) -> InvalidSpec:
    with pytest.raises(InvalidSpec) as error:
        documents.read(document)
    assert error.value.hint and not error.value.others
    return error.value


def test_a_command_component_is_read() -> None:
    request = documents.read({**COMMAND, "version": 3, "tags": {"a": 1}, "is_deterministic": False})
    assert (request.name, request.version, request.type) == ("train", "3", "command")
    assert request.tags == {"a": "1"}
    assert request.definition == {
        "type": "command",
        "command": COMMAND["command"],
        "environment": "sklearn@latest",
        "inputs": {"rate": {"type": "number", "min": "0", "max": 1}},
        "is_deterministic": False,
    }


def test_the_same_content_has_the_same_hash() -> None:
    other = {**COMMAND, "environment": "sklearn@latest", "type": "Command", "description": "x"}
    assert documents.read(other).hash == documents.read(COMMAND).hash
    assert documents.read({**COMMAND, "command": "false"}).hash != documents.read(COMMAND).hash


def test_a_pipeline_component_keeps_its_steps_as_they_are_written() -> None:
    request = documents.read(PIPELINE)
    assert request.type == "pipeline"
    assert request.definition["jobs"] == PIPELINE["jobs"]


@pytest.mark.parametrize(
    ("changes", "at", "code"),
    [
        ({"type": "spark"}, "type", "not_served"),
        ({"type": "paralel"}, "type", "not_served"),
        ({"type": "comand"}, "type", "invalid_spec"),
        ({"command": None}, "command", "invalid_spec"),
        ({"environment": 5}, "environment", "invalid_spec"),
        ({"environmnt": "python"}, "environmnt", "invalid_spec"),
        ({"inputs": [1]}, "inputs", "invalid_spec"),
        ({"inputs": {"rate": {"type": "floot"}}}, "inputs.rate.type", "invalid_spec"),
        ({"inputs": {"rate": {"type": "number", "min": True}}}, "inputs.rate.min", "invalid_spec"),
        ({"inputs": {"rate": {"type": "number", "max": "a"}}}, "inputs.rate.max", "invalid_spec"),
        ({"inputs": {"rate": {"type": "string", "enum": {}}}}, "inputs.rate.enum", "invalid_spec"),
        ({"inputs": {"rate": {"type": "string", "optional": 1}}}, "inputs.rate.optional",
         "invalid_spec"),
        ({"inputs": {"rate": {"type": "mltable", "default": "x"}}}, "inputs.rate.default",
         "invalid_spec"),
        ({"inputs": {f"x{n}": {"type": "string"} for n in range(1001)}}, "inputs", "invalid_spec"),
        ({"outputs": {"o": {"typ": "uri_file", "type": "uri_file"}}}, "outputs.o.typ",
         "invalid_spec"),
        ({"command": "train ${{inputs.rat}}"}, "command", "invalid_spec"),
        ({"command": "train ${{inputs.rate"}, "command", "invalid_spec"),
        ({"code": "${{inputs.rate}}"}, "code", "invalid_spec"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_command_component(
    sentence: Any, changes: Any, at: str, code: str
) -> None:
    error = refused({**COMMAND, **changes})
    assert (".".join(map(str, error.at)), error.code) == (at, code)
    sentence.is_of(error)


@pytest.mark.parametrize("jobs", [None, {}, [], "x"])
def test_a_pipeline_component_has_steps(jobs: Any) -> None:
    assert refused({**PIPELINE, "jobs": jobs}).at == ("jobs",)
