"""The examples of the OpenAPI document are as their schemas say, and as a server answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema

import openapi_file
from web import api_examples
from workspaces.served import served

ONE_DATABASE = True


def _examples(document: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """What it is of, its schema, its value."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            operation_name = f"{method.upper()} {path}"
            for parameter in operation.get("parameters", ()):
                if "example" in parameter:
                    yield operation_name, parameter["schema"], parameter["example"]
            for described in (operation.get("requestBody", {}), *operation["responses"].values()):
                for content in described.get("content", {}).values():
                    for example in content.get("examples", {}).values():
                        yield operation_name, content["schema"], example["value"]


def test_each_example_is_as_its_schema_says() -> None:
    document = json.loads(openapi_file.text())
    seen = set()
    for operation, schema, value in _examples(document):
        whole = {**schema, "components": document["components"]}
        validator = jsonschema.Draft202012Validator(whole)
        faults = [error.message for error in validator.iter_errors(value)]
        assert not faults, (operation, faults)
        seen.add(operation)
    assert seen == {example["operation"] for example in api_examples.stored()}


def test_an_error_is_as_the_document_says(tmp_path: Path, database_url: str) -> None:
    document = json.loads(openapi_file.text())
    errors = {"$ref": "#/components/schemas/ErrorAnswer", "components": document["components"]}
    with served(tmp_path, database_url) as site:
        for method, path, body in (
            ("GET", "/v1/workspaces/default/jobs/none", None),
            ("GET", "/v1/workspaces/default/jobs?limit=x", None),
            ("POST", "/v1/workspaces/default/jobs", {"comand": "x", "environmet": "y"}),
        ):
            answer = site.ask("home", method, path, body)
            assert answer.status_code in (400, 404)
            jsonschema.Draft202012Validator(errors).validate(answer.json())


def test_a_server_answers_each_example(tmp_path: Path, database_url: str) -> None:
    with served(tmp_path, database_url) as site:
        for example, answer in api_examples.sent(site):
            difference = _difference(example.get("response"), answer)
            assert not difference, (
                f"{example['operation']}: {difference}; record them again: "
                "PYTHONPATH=tests python -m web.api_examples"
            )


def _difference(recorded: Any, answered: Any, at: str = "") -> str:
    """In keys and types; null is of any type, and lists are compared by what they begin with."""
    if recorded is None or answered is None:
        return ""
    if type(recorded) is not type(answered):
        return f"`{at}` is {answered!r}, not {recorded!r}"
    if isinstance(recorded, list):
        pairs = [(str(n), *pair) for n, pair in enumerate(zip(recorded, answered, strict=False))]
    elif isinstance(recorded, dict):
        if recorded.keys() != answered.keys():
            return f"`{at}` differs in {sorted(recorded.keys() ^ answered.keys())}"
        pairs = [(key, recorded[key], answered[key]) for key in recorded]
    else:
        return ""
    return next(filter(None, (_difference(a, b, f"{at}.{key}") for key, a, b in pairs)), "")
