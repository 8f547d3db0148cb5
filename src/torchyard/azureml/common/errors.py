"""Errors as Azure's clients read them.

Owns: the envelope, Azure's codes, and the route class that answers with them.
Leaves: what to refuse to the other modules.
Always: a route of this package never answers an error in another form; the hint is part of the
message, for people see nothing else of it, and clients print the rest of the envelope below it.

Source: https://github.com/microsoft/api-guidelines/blob/vNext/azure/Guidelines.md (error response)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import IntegrityError
from starlette.requests import ClientDisconnect

from torchyard.base import disk
from torchyard.base.errors import Conflict, InvalidInput, TorchyardError
from torchyard.workspaces.guarded_routes import GuardedRoute

_log = logging.getLogger(__name__)

Handle = Callable[[Request], Coroutine[Any, Any, Response]]

ALL_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]
"""The methods of routes for unknown paths."""

_CODES = {
    400: "UserError",
    401: "InvalidAuthenticationToken",
    403: "AuthorizationFailed",
    404: "ResourceNotFound",
    409: "Conflict",
    413: "RequestEntityTooLarge",
    422: "UserError",
    429: "TooManyRequests",
    501: "NotImplemented",
    503: "ServiceUnavailable",
    507: "ServiceUnavailable",
}


class NotServed(TorchyardError):
    """Something that Azure ML has and torchyard does not have yet."""

    code = "NotImplemented"
    http_status = 501


def envelope(error: TorchyardError) -> dict[str, Any]:
    """The body of an error; what else is wrong with the same document is among its details."""
    code = error.code if error.code[:1].isupper() else _CODES.get(error.http_status, "ServiceError")
    message = f"{error.message}. Hint: {error.hint}" if error.hint else error.message
    target = ".".join(str(part) for part in error.at)
    return {
        "error": {
            "code": code,
            "message": message,
            "target": target or None,
            "details": [envelope(other)["error"] for other in error.others],
            "additionalInfo": [],
        }
    }


def error_response(error: TorchyardError) -> JSONResponse:
    headers = {}
    if error.http_status == 401:
        description = (
            " ".join(error.message.replace('"', "'").split()).encode("ascii", "replace").decode()
        )
        headers["www-authenticate"] = (
            f'Bearer error="invalid_token", error_description="{description}"'
        )
    return JSONResponse(envelope(error), error.http_status, headers)


def answering_errors(handle: Handle) -> Handle:
    """The handler, with every error in Azure's envelope."""

    async def answering(request: Request) -> Response:
        try:
            return await handle(request)
        except TorchyardError as error:
            return error_response(error)
        except RequestValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"])
            return error_response(InvalidInput(f"the request's `{key}` is invalid: {first['msg']}"))
        except IntegrityError as error:
            _log.warning("collision on %s: %s", request.url.path, error)
            return error_response(Conflict("another request changed the same thing", "try again"))
        except ClientDisconnect:
            raise
        except Exception as error:
            full = disk.meaning(error)
            if full is not None:
                return error_response(full)
            _log.exception("%s %s failed", request.method, request.url.path)
            body = {"code": "ServiceError", "message": "see `yard server logs`", "details": []}
            return JSONResponse({"error": body}, 500)

    return answering


class AzureRoute(GuardedRoute):
    """A route whose errors, including those of its dependencies, are Azure's."""

    def get_route_handler(self) -> Handle:
        return answering_errors(super().get_route_handler())
