"""`--set a.b=value`: which key it reaches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click.testing
import pytest

from torchyard.base.errors import InvalidInput
from torchyard.cli.jobs.commands import clone, create, validate
from torchyard.cli.parsing import documents


def _set(*assignments: str, start: dict[str, Any] | None = None) -> dict[str, Any]:
    document = documents.Document("f", Path(), start or {})
    for assignment in assignments:
        document.set(assignment)
    return document.value


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("a=1", {"a": 1}),
        ("a.b[0]=x", {"a": {"b": ["x"]}}),
        ("a= b=c ", {"a": "b=c"}),
        ("properties.torchyard.hang_after_s=60", {"properties": {"torchyard.hang_after_s": 60}}),
        ("properties.x=1", {"properties": {"x": "1"}}),
        ('properties."torchyard.secrets"=[A]', {"properties": {"torchyard.secrets": ["A"]}}),
        ("tags.mlflow.note.content=hi", {"tags": {"mlflow.note.content": "hi"}}),
        ("properties={a.b: 1.10}", {"properties": {"a.b": "1.10"}}),
        ("tags.of[0]=x", {"tags": {"of[0]": "x"}}),
        ("tags.kept=yes", {"tags": {"kept": "yes"}}),
        ("tags.batch=1e3", {"tags": {"batch": "1e3"}}),
        ("tags.gone=null", {"tags": {"gone": None}}),
        ("environment_variables.DEBUG=on", {"environment_variables": {"DEBUG": "on"}}),
        ("inputs.shuffle=yes", {"inputs": {"shuffle": True}}),
        ('inputs."a.b".path=p', {"inputs": {"a.b": {"path": "p"}}}),
        ('environment_variables."A=B"=1', {"environment_variables": {"A=B": "1"}}),
        ('jobs.one.properties.torchyard.x="a=b"', {"jobs": {"one": {"properties": {
            "torchyard.x": "a=b"}}}}),
    ],
)  # fmt: skip
def test_the_key_that_is_set(assignment: str, value: Any) -> None:
    assert _set(assignment) == value


@pytest.mark.parametrize(
    "assignment",
    ["", "a", "=1", ".a=1", "a.=1", "a..b=1", 'a."b=1', 'a"b"=1', '"a"b=1', "properties.=1",
     "a[x]=1", "a[=1", "tags.=2"],
)  # fmt: skip
def test_an_invalid_assignment_is_refused(assignment: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        _set(assignment)
    assert "a.b=value" in caught.value.hint


def test_a_dotted_property_takes_the_place_of_the_files_own() -> None:
    start = {"properties": {"torchyard.hang_after_s": 5, "other": "x"}}
    value = _set("properties.torchyard.hang_after_s=60", start=start)
    assert value == {"properties": {"torchyard.hang_after_s": 60, "other": "x"}}


@pytest.mark.parametrize("verb", [create, validate, clone])
def test_the_help_tells_of_dots(verb: Any) -> None:
    shown = " ".join(click.testing.CliRunner().invoke(verb, ["--help"]).output.split())
    assert "quote a name" in shown and "`properties.`" in shown
