"""The OpenAPI document of the native API, from which the page's types are made.

Owns: which groups of routes it covers; the schemas of answers, from what their routes return, and
of errors; examples, from openapi_examples.json.
Leaves: requests, which FastAPI describes by itself.
Always: the schemas are made for the document alone; they cost no request anything.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from starlette.routing import BaseRoute

from torchyard.base.lazy_routes import LazyRoutes, every_route
from torchyard.workspaces.guarded_routes import GuardedRoute

EXAMPLES = Path(__file__).with_name("openapi_examples.json")
"""Requests in an order in which they can be sent to an empty server, each with its answer."""

_REFERENCE = "#/components/schemas/{model}"
_TEXT = {"type": "string"}
_ERROR = {
    "type": "object",
    "required": ["code", "message", "hint", "at"],
    "properties": {
        "code": {"type": "string", "description": "Stable; one class of errors."},
        "message": _TEXT,
        "hint": {"type": "string", "description": "The next step; may be empty."},
        "at": {
            "type": "array",
            "items": {"type": ["string", "integer"]},
            "description": "Keys and indexes in the document that was sent.",
        },
        "others": {
            "type": "array",
            "items": {"$ref": _REFERENCE.format(model="Error")},
            "description": "Further faults of the document.",
        },
    },
}
_ERROR_ANSWER = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"$ref": _REFERENCE.format(model="Error")}},
}


def of(app: FastAPI) -> dict[str, Any]:
    """The document of the app's described groups."""
    described = tuple(
        route for route in app.router.routes if not isinstance(route, LazyRoutes) or route.described
    )
    routes = [route for _, route in every_route(described)]
    document = get_openapi(
        title=app.title,
        version=app.version,
        openapi_version=app.openapi_version,
        routes=routes,
    )
    _describe_answers(document, routes)
    _describe_errors(document)
    for example in json.loads(EXAMPLES.read_text(encoding="utf-8")):
        _add_example(document, example)
    return document


def _describe_answers(document: dict[str, Any], routes: Sequence[BaseRoute]) -> None:
    """Put the schemas of what routes return into a document."""
    described = [
        (route, route.answer)
        for route in routes
        if isinstance(route, GuardedRoute) and route.answer is not None and route.include_in_schema
    ]
    references, definitions = TypeAdapter.json_schemas(
        [(answer, "serialization", TypeAdapter(answer)) for _, answer in described],
        ref_template=_REFERENCE,
    )
    for name, schema in definitions["$defs"].items():
        if schema["type"] == "object":
            schema.setdefault("additionalProperties", False)
        document["components"]["schemas"][name] = schema
    for route, answer in described:
        content = {"application/json": {"schema": references[answer, "serialization"]}}
        for method in route.methods or ():
            responses = document["paths"][route.path_format][method.lower()]["responses"]
            responses[str(route.status_code or 200)]["content"] = content


def _describe_errors(document: dict[str, Any]) -> None:
    """As error_responses.py answers, where FastAPI describes its own answer."""
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Error"], schemas["ErrorAnswer"] = _ERROR, _ERROR_ANSWER
    reference = {"$ref": _REFERENCE.format(model="ErrorAnswer")}
    content = {"application/json": {"schema": reference}}
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = {"description": "An error", "content": content}


def _add_example(document: dict[str, Any], example: dict[str, Any]) -> None:
    method, path = example["operation"].split(" ")
    operation, name = document["paths"][path][method.lower()], example["name"]
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in example["parameters"]:
            parameter.setdefault("example", example["parameters"][parameter["name"]])
    if "request" in example:
        content = operation["requestBody"]["content"]["application/json"]
        content.setdefault("examples", {})[name] = {"value": example["request"]}
    response = operation["responses"][str(example["status"])]
    if "media_type" in example:
        response["content"] = {example["media_type"]: {"schema": _TEXT}}
    (content,) = response.setdefault("content", {"application/json": {"schema": {}}}).values()
    content.setdefault("examples", {})[name] = {"value": example["response"]}
