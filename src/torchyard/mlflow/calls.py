"""One request as MLflow's clients make it.

Owns: the fields of a query or JSON body and their types, the workspace of a request; the
dependencies and the route class of endpoints that take a `Call`.
Leaves: what the fields mean to the routes.
Always: a token of one workspace opens no other; secrets in what a script sends with its run's
token are masked before a route sees them, except in ids and names that the server made.
"""

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from torchyard.base import request_headers
from torchyard.base.errors import Forbidden, InvalidInput
from torchyard.base.settings import DEFAULT_WORKSPACE
from torchyard.jobs.records import job_masking
from torchyard.jobs.services import Services
from torchyard.mlflow import plugin_uris
from torchyard.mlflow.errors import Handler, MlflowRoute, with_mlflow_errors
from torchyard.shared.masking import Masker
from torchyard.shared.record_rules import INT64_MAX, INT64_MIN
from torchyard.workspaces.guarded_routes import identity_of
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity

REQUEST_HEADER = b"x-torchyard-request"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MAX_TIME_MS = 253_402_300_799_000
_MAX_QUOTED_LENGTH = 500
_SEE_DOCS = " See the API docs for more information about request parameters."


@dataclass(frozen=True)
class Call:
    """The caller, the workspace and the fields of one request."""

    workspace: str
    identity: Identity
    fields: Mapping[str, Any]
    is_query: bool = False
    # The client's id of this request: a repeated request is not carried out twice.
    request_id: str = ""

    def text(self, *names: str, default: str | None = None) -> str:
        """The first of the named fields that is set, as text.

        Raises:
            InvalidInput: none is set and there is no default, or the value is not a string.
        """
        for name in names:
            value = self.fields.get(name)
            if value is None:
                continue
            if not isinstance(value, str):
                raise invalid_parameter(name, value)
            if value or default is not None:
                return value
        if default is None:
            raise missing_parameter(names[0])
        return default

    def integer(self, name: str, default: int | None = None) -> int:
        """
        Raises:
            InvalidInput: the field is missing or not an integer.
        """
        value = self.fields.get(name)
        if value is None and default is not None:
            return default
        if value is None:
            raise missing_parameter(name)
        return integer(value, name)

    def time(self, name: str) -> datetime | None:
        """A field in ms since 1970."""
        if self.fields.get(name) is None:
            return None
        milliseconds = self.integer(name)
        if not 0 <= milliseconds <= _MAX_TIME_MS:
            raise invalid_parameter(name, milliseconds)
        return _EPOCH + timedelta(milliseconds=milliseconds)

    def count(self, name: str, default: int, limit: int) -> int:
        """An integer from 1 to `limit`, such as the size of a page."""
        value = self.integer(name, default)
        if not 1 <= value <= limit:
            raise invalid_parameter(name, value, f"it must be from 1 to {limit}.")
        return value

    def items(self, name: str) -> list[Any]:
        """A list; a single value in a query counts as a list of one item.

        Raises:
            InvalidInput: the value is not a list.
        """
        value = self.fields.get(name)
        if value is None:
            return []
        if isinstance(value, list):
            return value
        if not self.is_query:
            raise invalid_parameter(name, value)
        return [value]

    def objects(self, name: str) -> list[dict[str, Any]]:
        """
        Raises:
            InvalidInput: the value is not a list of JSON objects.
        """
        items = self.items(name)
        if not all(isinstance(item, dict) for item in items):
            raise invalid_parameter(name, items)
        return items

    def texts(self, name: str) -> list[str]:
        """
        Raises:
            InvalidInput: the value is not a list of strings.
        """
        items = self.items(name)
        if not all(isinstance(item, str) for item in items):
            raise invalid_parameter(name, items)
        return items


def missing_parameter(name: str) -> InvalidInput:
    """The error for a field that is missing, in MLflow's words."""
    return InvalidInput(f"Missing value for required parameter '{name}'.{_SEE_DOCS}")


def invalid_parameter(name: str, value: Any, reason: str = "") -> InvalidInput:
    """The error for a wrong field, in MLflow's words: the value as JSON without spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    if len(text) > _MAX_QUOTED_LENGTH:
        text = text[:_MAX_QUOTED_LENGTH] + "…"
    reason = reason or f"Hint: Value was of type '{type(value).__name__}'."
    return InvalidInput(
        f"Invalid value {text} for parameter '{name}' supplied: {reason}{_SEE_DOCS}"
    )


def integer(value: Any, name: str) -> int:
    """An int64 as MLflow sends it: a JSON number or a string of digits.

    Raises:
        InvalidInput: the value is neither.
    """
    try:
        is_whole = isinstance(value, int | str) or (isinstance(value, float) and value.is_integer())
        if is_whole and not isinstance(value, bool) and INT64_MIN <= int(value) <= INT64_MAX:
            return int(value)
    except ValueError:
        pass
    raise invalid_parameter(name, value)


def read_fields(request: Request, content: bytes) -> dict[str, Any]:
    """The JSON body, or the query when there is none; a repeated name becomes a list.

    Raises:
        InvalidInput: the body is not a JSON object.
    """
    if content.strip():
        try:
            body = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"request body is not JSON: {error}") from None
        if isinstance(body, str):
            # Old clients encode the body twice.
            return read_fields(request, body.encode())
        if body is None:
            return {}
        if not isinstance(body, dict):
            raise InvalidInput("request body is not a JSON object")
        return body
    query = request.query_params
    return {
        name: values[0] if len(values := query.getlist(name)) == 1 else values for name in query
    }


# They name what the server made; a short secret may happen to be part of such a name.
_UNMASKED_FIELDS = frozenset(
    "run_id run_ids run_uuid run_uuids parent_run_id source_run_id experiment_id experiment_ids "
    "model_id model_ids logged_model_id logged_model_ids page_token max_results order_by "
    "stage version status".split()
)


def mask_fields(body: Any, masker: Masker) -> Any:
    """The fields with every secret that the masker knows replaced by stars."""
    if isinstance(body, Mapping):
        return {
            masker.text(key): value if key in _UNMASKED_FIELDS else mask_fields(value, masker)
            for key, value in body.items()
        }
    if isinstance(body, list):
        return [mask_fields(item, masker) for item in body]
    return masker.text(body) if isinstance(body, str) else body


def page_response(name: str, items: Sequence[Any], next_page_token: str) -> JSONResponse:
    """One page of a search; an empty token says that it is the last one."""
    body: dict[str, Any] = {name: items}
    if next_page_token:
        body["next_page_token"] = next_page_token
    return JSONResponse(body)


def workspace_of(request: Request, identity: Identity) -> str:
    """
    Raises:
        Forbidden: the token is another workspace's.
    """
    workspace: str = request.path_params.get("workspace", DEFAULT_WORKSPACE)
    if identity.workspace and identity.workspace != workspace:
        raise Forbidden(f"this token is not valid for workspace `{workspace}`")
    return workspace


async def call_of(request: Request) -> Call:
    return await run_in_threadpool(_read_call, request, await request.body())


CallOf = Annotated[Call, Depends(call_of)]


def _read_call(request: Request, content: bytes) -> Call:
    identity = identity_of(request)
    fields = plugin_uris.translate_fields(read_fields(request, content))
    services: Services = request.app.state.services
    masker = job_masking.masker_of_script(services.db, identity)
    return Call(
        workspace_of(request, identity),
        identity,
        fields if masker is None else mask_fields(fields, masker),
        is_query=not content.strip(),
        request_id=request_headers.header(request.scope, REQUEST_HEADER),
    )


class CallRoute(MlflowRoute):
    """A route that works in one thread, if its endpoint takes a call and services alone.

    By itself FastAPI would switch threads for the call and for the endpoint, and each switch takes
    about as long as to store a metric.
    """

    def get_route_handler(self) -> Handler:
        if list(inspect.signature(self.endpoint).parameters) != ["call", "services"]:
            return super().get_route_handler()

        def run(request: Request, content: bytes) -> Response:
            services: Services = request.app.state.services
            response: Response = self.endpoint(_read_call(request, content), services)
            return response

        assert self.needs is not None
        logs = self.needs.permission is Permission.LOG

        async def handle(request: Request) -> Response:
            services: Services = request.app.state.services
            in_thread = services.history.threads.run if logs else run_in_threadpool
            return await in_thread(run, request, await request.body())

        return with_mlflow_errors(self.guard(handle))
