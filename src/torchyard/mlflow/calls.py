"""One request as MLflow's clients make it.

Owns: fields from the query or the JSON body, their types, whose workspace it is.
Leaves: what the fields mean to the routes.
Always: a token that is good for one workspace opens no other.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any

from fastapi import Depends, Request

from torchyard.base.errors import Forbidden, InvalidInput
from torchyard.base.settings import DEFAULT_WORKSPACE
from torchyard.workspaces.types import Identity

Authenticate = Callable[[Request], Identity]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MAX_TIME_MS = 253_402_300_799_000


@dataclass(frozen=True)
class Call:
    """Who asks, where, and with which fields."""

    workspace: str
    identity: Identity
    fields: Mapping[str, Any]

    def text(self, *names: str, default: str | None = None) -> str:
        """The first of the fields that is there, as text.

        Raises:
            InvalidInput: none is there and there is no default, or it is no text.
        """
        for name in names:
            value = self.fields.get(name)
            if value is None:
                continue
            if isinstance(value, str):
                return value
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)
            raise InvalidInput(f"Invalid value for parameter '{name}': no text")
        if default is None:
            raise InvalidInput(f"Missing value for required parameter '{names[0]}'")
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
            raise InvalidInput(f"Missing value for required parameter '{name}'")
        return integer(value, name)

    def time(self, name: str) -> datetime | None:
        """A field in ms since 1970."""
        if self.fields.get(name) is None:
            return None
        milliseconds = self.integer(name)
        if not 0 <= milliseconds <= _MAX_TIME_MS:
            raise InvalidInput(f"Invalid value for parameter '{name}': no time")
        return _EPOCH + timedelta(milliseconds=milliseconds)

    def size(self, name: str, default: int, limit: int) -> int:
        """How many to answer with."""
        found = self.integer(name, default)
        if not 1 <= found <= limit:
            raise InvalidInput(f"'{name}' must be from 1 to {limit}, not {found}")
        return found

    def items(self, name: str) -> list[Any]:
        """A list; one value stands for a list of one, as in a query."""
        value = self.fields.get(name)
        if value is None:
            return []
        return value if isinstance(value, list) else [value]

    def objects(self, name: str) -> list[dict[str, Any]]:
        """
        Raises:
            InvalidInput: an item is no JSON object.
        """
        found = self.items(name)
        for item in found:
            if not isinstance(item, dict):
                raise InvalidInput(f"Invalid value for parameter '{name}': not a list of objects")
        return found

    def texts(self, name: str) -> list[str]:
        """
        Raises:
            InvalidInput: an item is no text.
        """
        found = self.items(name)
        for item in found:
            if not isinstance(item, (str, int)):
                raise InvalidInput(f"Invalid value for parameter '{name}': not a list of texts")
        return [str(item) for item in found]


def integer(value: Any, name: str) -> int:
    """An int64 as MLflow sends it: a JSON number, or a text of digits.

    Raises:
        InvalidInput: it is neither.
    """
    try:
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            return int(value)
        if isinstance(value, float) and value.is_integer():
            return int(value)
    except ValueError:
        pass
    raise InvalidInput(f"Invalid value for parameter '{name}': `{str(value)[:50]}` is no integer")


async def read_fields(request: Request) -> dict[str, Any]:
    """The JSON body, else the query; a name that is repeated in a query becomes a list."""
    content = b"" if request.method == "GET" else await request.body()
    if content.strip():
        try:
            body = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"the request's body is no JSON: {error}") from None
        if not isinstance(body, dict):
            raise InvalidInput("the request's body is no JSON object")
        return body
    query = request.query_params
    return {
        name: values[0] if len(values := query.getlist(name)) == 1 else values for name in query
    }


def caller(authenticate: Authenticate) -> Callable[..., Any]:
    """The dependency that makes a `Call` of a request."""

    async def call(
        request: Request,
        identity: Annotated[Identity, Depends(authenticate)],
        fields: Annotated[dict[str, Any], Depends(read_fields)],
    ) -> Call:
        return Call(workspace_of(request, identity), identity, fields)

    return call


def workspace_of(request: Request, identity: Identity) -> str:
    """
    Raises:
        Forbidden: the token is another workspace's.
    """
    workspace: str = request.path_params.get("workspace", DEFAULT_WORKSPACE)
    if identity.workspace and identity.workspace != workspace:
        raise Forbidden(f"this token is not good for workspace `{workspace}`")
    return workspace
