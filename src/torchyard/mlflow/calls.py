"""One request as MLflow's clients make it.

Owns: fields from the query or the JSON body, their types, whose workspace it is; the route class
of endpoints that take a `Call`.
Leaves: what the fields mean to the routes, which values are secret to whoever passes `masker_of`.
Always: a token that is good for one workspace opens no other; what a script says with its run's
token is masked before any route sees it, names of what exists apart.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool

from torchyard.base.errors import Forbidden, InvalidInput
from torchyard.base.settings import DEFAULT_WORKSPACE
from torchyard.jobs.history.metric_blocks import INT64_MAX, INT64_MIN
from torchyard.mlflow import plugin_uris
from torchyard.mlflow.errors import Handle, MlflowRoute, guarded
from torchyard.shared.masking import Masker
from torchyard.workspaces.types import Identity

Authenticate = Callable[[Request], Identity]
MaskerOf = Callable[[Identity], Masker | None]

REQUEST_HEADER = "x-torchyard-request"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MAX_TIME_MS = 253_402_300_799_000
_LARGE_BYTES = 1_000_000
_SHOWN_LENGTH = 500
_SEE_DOCS = " See the API docs for more information about request parameters."


@dataclass(frozen=True)
class Call:
    """Who asks, where, and with which fields."""

    workspace: str
    identity: Identity
    fields: Mapping[str, Any]
    is_query: bool = False
    # What the client calls this request, to repeat it without doing it twice.
    request_id: str = ""

    def text(self, *names: str, default: str | None = None) -> str:
        """The first of the fields that is there, as text.

        Raises:
            InvalidInput: none is there and there is no default, or it is no text.
        """
        for name in names:
            value = self.fields.get(name)
            if value is None:
                continue
            if not isinstance(value, str):
                raise invalid(name, value)
            if value or default is not None:
                return value
        if default is None:
            raise missing(names[0])
        return default

    def integer(self, name: str, default: int | None = None) -> int:
        """
        Raises:
            InvalidInput: it is missing, or no integer.
        """
        value = self.fields.get(name)
        if value is None and default is not None:
            return default
        if value is None:
            raise missing(name)
        return integer(value, name)

    def time(self, name: str) -> datetime | None:
        """A field in ms since 1970."""
        if self.fields.get(name) is None:
            return None
        milliseconds = self.integer(name)
        if not 0 <= milliseconds <= _MAX_TIME_MS:
            raise invalid(name, milliseconds)
        return _EPOCH + timedelta(milliseconds=milliseconds)

    def size(self, name: str, default: int, limit: int) -> int:
        """How many to answer with."""
        found = self.integer(name, default)
        if not 1 <= found <= limit:
            raise invalid(name, found, f"it must be from 1 to {limit}.")
        return found

    def items(self, name: str) -> list[Any]:
        """A list; one value in a query stands for a list of one.

        Raises:
            InvalidInput: it is no list.
        """
        value = self.fields.get(name)
        if value is None:
            return []
        if isinstance(value, list):
            return value
        if not self.is_query:
            raise invalid(name, value)
        return [value]

    def objects(self, name: str) -> list[dict[str, Any]]:
        """
        Raises:
            InvalidInput: it is no list of JSON objects.
        """
        found = self.items(name)
        if not all(isinstance(item, dict) for item in found):
            raise invalid(name, found)
        return found

    def texts(self, name: str) -> list[str]:
        """
        Raises:
            InvalidInput: it is no list of texts.
        """
        found = self.items(name)
        if not all(isinstance(item, str) for item in found):
            raise invalid(name, found)
        return found


def missing(name: str) -> InvalidInput:
    """A field is not there, in MLflow's words."""
    return InvalidInput(f"Missing value for required parameter '{name}'.{_SEE_DOCS}")


def invalid(name: str, value: Any, why: str = "") -> InvalidInput:
    """A field is wrong, in MLflow's words: the value as JSON without spaces."""
    shown = json.dumps(value, sort_keys=True, separators=(",", ":"))
    if len(shown) > _SHOWN_LENGTH:
        shown = shown[:_SHOWN_LENGTH] + "…"
    why = why or f"Hint: Value was of type '{type(value).__name__}'."
    return InvalidInput(f"Invalid value {shown} for parameter '{name}' supplied: {why}{_SEE_DOCS}")


def integer(value: Any, name: str) -> int:
    """An int64 as MLflow sends it: a JSON number, or a text of digits.

    Raises:
        InvalidInput: it is neither.
    """
    try:
        whole = isinstance(value, (int, str)) or (isinstance(value, float) and value.is_integer())
        if whole and not isinstance(value, bool) and INT64_MIN <= int(value) <= INT64_MAX:
            return int(value)
    except ValueError:
        pass
    raise invalid(name, value)


def read_fields(request: Request, content: bytes) -> dict[str, Any]:
    """The JSON body, else the query; a name that is repeated in a query becomes a list.

    Raises:
        InvalidInput: the body is no JSON object.
    """
    if content.strip():
        try:
            body = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"the request's body is no JSON: {error}") from None
        if isinstance(body, str):
            # Old clients encode twice.
            return read_fields(request, body.encode())
        if body is None:
            return {}
        if not isinstance(body, dict):
            raise InvalidInput("the request's body is no JSON object")
        return body
    query = request.query_params
    return {
        name: values[0] if len(values := query.getlist(name)) == 1 else values for name in query
    }


# They name what the server made. A short secret may happen to be a part of one.
_NAMES_WHAT_EXISTS = frozenset(
    "run_id run_ids run_uuid run_uuids parent_run_id source_run_id experiment_id experiment_ids "
    "model_id model_ids logged_model_id logged_model_ids page_token max_results order_by "
    "stage version status".split()
)


def masked(body: Any, masker: Masker) -> Any:
    """The fields with stars for what the masker knows, wherever it stands."""
    if isinstance(body, Mapping):
        return {
            masker.text(key): value if key in _NAMES_WHAT_EXISTS else masked(value, masker)
            for key, value in body.items()
        }
    if isinstance(body, list):
        return [masked(one, masker) for one in body]
    return masker.text(body) if isinstance(body, str) else body


def _nothing_hidden(identity: Identity) -> None:
    return None


@dataclass(frozen=True)
class Caller:
    """The dependency that makes a `Call` of a request.

    Args:
        masker_of: what hides the secrets of the one who asks; None when nothing is hidden.
    """

    authenticate: Authenticate
    masker_of: MaskerOf = _nothing_hidden

    async def __call__(self, request: Request) -> Call:
        return await run_in_threadpool(self.call, request, await self.content(request))

    async def content(self, request: Request) -> bytes:
        """The body; a large one is read for those only who may pass."""
        if request.method == "GET":
            return b""
        if int(request.headers.get("content-length", _LARGE_BYTES)) >= _LARGE_BYTES:
            await run_in_threadpool(self.authenticate, request)
        return await request.body()

    def call(self, request: Request, content: bytes) -> Call:
        identity = self.authenticate(request)
        fields = plugin_uris.taken(read_fields(request, content))
        masker = self.masker_of(identity)
        return Call(
            workspace_of(request, identity),
            identity,
            fields if masker is None else masked(fields, masker),
            is_query=not content.strip(),
            request_id=request.headers.get(REQUEST_HEADER, ""),
        )

    @property
    def route_class(self) -> type[MlflowRoute]:
        """Of routes whose endpoint takes a `call` and no more: asked and acted on in one thread.

        FastAPI would go to a thread and back for the identity and once more for the endpoint,
        which takes longer than to store a metric.
        """
        caller = self

        class CallRoute(MlflowRoute):
            def get_route_handler(self) -> Handle:
                if list(inspect.signature(self.endpoint).parameters) != ["call"]:
                    return super().get_route_handler()

                def act(request: Request, content: bytes) -> Response:
                    answer: Response = self.endpoint(caller.call(request, content))
                    return answer

                async def handle(request: Request) -> Response:
                    return await run_in_threadpool(act, request, await caller.content(request))

                return guarded(self.guard(handle))

        return CallRoute


def workspace_of(request: Request, identity: Identity) -> str:
    """
    Raises:
        Forbidden: the token is another workspace's.
    """
    workspace: str = request.path_params.get("workspace", DEFAULT_WORKSPACE)
    if identity.workspace and identity.workspace != workspace:
        raise Forbidden(f"this token is not good for workspace `{workspace}`")
    return workspace
