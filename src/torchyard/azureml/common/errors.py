"""Errors as Azure's clients read them.

Owns: the envelope, Azure's codes, and the route class that answers with them.
Leaves: what to refuse to the rooms.
Always: a route of this room never answers in another shape; the hint is part of the message,
for people see nothing else of it, and what else is in the envelope is printed beneath it.

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
from torchyard.workspaces.path_permissions import PathGuardedRoute

_log = logging.getLogger(__name__)

Handle = Callable[[Request], Coroutine[Any, Any, Response]]

ALL_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]
"""Of the routes that say what is not there."""

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
    """The body of Azure's error answer."""
    code = error.code if error.code[:1].isupper() else _CODES.get(error.http_status, "ServiceError")
    message = f"{error.message}. Hint: {error.hint}" if error.hint else error.message
    target = ".".join(str(part) for part in error.at)
    return {
        "error": {
            "code": code,
            "message": message,
            "target": target or None,
            "details": [],
            "additionalInfo": [],
        }
    }


def answer(error: TorchyardError) -> JSONResponse:
    headers = {}
    if error.http_status == 401:
        said = " ".join(error.message.replace('"', "'").split()).encode("ascii", "replace").decode()
        headers["www-authenticate"] = f'Bearer error="invalid_token", error_description="{said}"'
    return JSONResponse(envelope(error), error.http_status, headers)


def guarded(handle: Handle) -> Handle:
    """The handler, with every error answered in Azure's envelope."""

    async def answering(request: Request) -> Response:
        try:
            return await handle(request)
        except TorchyardError as error:
            return answer(error)
        except RequestValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            return answer(InvalidInput(f"the request's `{place}` is wrong: {first['msg']}"))
        except IntegrityError as error:
            _log.warning("collision on %s: %s", request.url.path, error)
            return answer(Conflict("another request changed the same thing", "try again"))
        except ClientDisconnect:
            raise
        except Exception as error:
            full = disk.meaning(error)
            if full is not None:
                return answer(full)
            _log.exception("%s %s failed", request.method, request.url.path)
            body = {"code": "ServiceError", "message": "see `yard server logs`", "details": []}
            return JSONResponse({"error": body}, 500)

    return answering


class AzureRoute(PathGuardedRoute):
    """A route whose errors, those of its dependencies too, are Azure's."""

    def get_route_handler(self) -> Handle:
        return guarded(super().get_route_handler())
