"""The OpenAPI document of the native API, from which the page's types are made.

Owns: which groups of routes it covers; the schemas of answers, from what their routes return.
Leaves: requests, which FastAPI describes by itself.
Always: the schemas are made for the document alone; they cost no request anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from starlette.routing import BaseRoute

from torchyard.base.lazy_routes import LazyRoutes, every_route
from torchyard.workspaces.guarded_routes import GuardedRoute

_REFERENCE = "#/components/schemas/{model}"


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
