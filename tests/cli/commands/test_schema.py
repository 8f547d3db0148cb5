"""`yard schema`: what editors check files by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import schema_files
from torchyard.cli.parsing.group import yard

# Not in the smallest set of what tests need.
jsonschema: Any = pytest.importorskip("jsonschema")
ROOT = Path(__file__).parents[3]
PIPELINE = ROOT / "examples/pipeline"
EXAMPLES = [
    ("job", file)
    for file in sorted((ROOT / "examples").rglob("*.yml"))
    if "command:" in file.read_text()
    and "search_space" not in file.read_text()
    and file.parent != PIPELINE
] + [
    ("pipeline" if file.stem == "pipeline" else "component", file)
    for file in sorted(PIPELINE.glob("*.yml"))
]


def printed(name: str) -> dict[str, Any]:
    result = CliRunner().invoke(yard, ["schema", name])
    assert result.exit_code == 0, result.output
    schema: dict[str, Any] = json.loads(result.output)
    return schema


@pytest.mark.parametrize("name", schema_files.FILES)
def test_a_schema_is_what_the_model_says(name: str) -> None:
    file = schema_files.FOLDER / f"{name}.json"
    assert file.read_text(encoding="utf-8") == schema_files.text(name), "run `make docs`"
    jsonschema.Draft7Validator.check_schema(printed(name))


@pytest.mark.parametrize(
    ("name", "file"), EXAMPLES, ids=[str(file.relative_to(ROOT)) for _, file in EXAMPLES]
)
def test_the_examples_are_whole_by_it(name: str, file: Path) -> None:
    errors = jsonschema.Draft7Validator(printed(name)).iter_errors(yaml.safe_load(file.read_text()))
    assert [error.message for error in errors] == []


def test_a_misspelt_key_and_a_wrong_value_are_not() -> None:
    job = {"comand": "x", "environment": "python", "distribution": {"type": "torch"}}
    errors = jsonschema.Draft7Validator(printed("job")).iter_errors(job)
    assert sorted(list(error.path) for error in errors) == [[], ["distribution", "type"]]


def test_a_component_has_the_keys_of_its_type() -> None:
    check = jsonschema.Draft7Validator(printed("component"))
    step = {"comand": "x", "environment": "python"}
    component = {"name": "both", "type": "pipeline", "jobs": {"train": step}, "command": "x"}
    assert sorted(list(error.path) for error in check.iter_errors(component)) == [
        [], ["jobs", "train"]
    ]  # fmt: skip
    assert check.is_valid({"name": "one", "type": "command", "command": "x"})
