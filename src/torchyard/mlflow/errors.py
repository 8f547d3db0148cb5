"""Errors as MLflow's clients read them.

Owns: MLflow's error codes and their HTTP statuses, and the route class that answers with them.
Leaves: what to refuse to the routes.
Always: an MLflow route never answers in torchyard's own error shape.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from torchyard.base import disk
from torchyard.base.errors import Conflict, InvalidInput, NotFound, TorchyardError
from torchyard.mlflow import plugin_uris
from torchyard.workspaces.path_permissions import PathGuardedRoute

_log = logging.getLogger(__name__)

Handle = Callable[[Request], Coroutine[Any, Any, Response]]

_CODES = {
    400: "INVALID_PARAMETER_VALUE",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "RESOURCE_DOES_NOT_EXIST",
    409: "RESOURCE_ALREADY_EXISTS",
    413: "REQUEST_LIMIT_EXCEEDED",
    429: "REQUEST_LIMIT_EXCEEDED",
    503: "TEMPORARILY_UNAVAILABLE",
    507: "TEMPORARILY_UNAVAILABLE",
}


class AlreadyExists(Conflict):
    """MLflow answers 400 where a name is taken."""

    code = "RESOURCE_ALREADY_EXISTS"
    http_status = 400


class NoSuchEndpoint(NotFound):
    """What an MLflow server without the feature would answer."""

    code = "ENDPOINT_NOT_FOUND"


def answer(error: TorchyardError) -> JSONResponse:
    """The error as MLflow's JSON."""
    code = error.code if error.code.isupper() else _CODES.get(error.http_status, "INTERNAL_ERROR")
    message = f"{error.message} ({error.hint})" if error.hint else error.message
    return JSONResponse({"error_code": code, "message": message}, error.http_status)


def guarded(handle: Handle) -> Handle:
    """The handler, with every error answered in MLflow's shape, and places named as who asks
    reads them.
    """

    async def answering(request: Request) -> Response:
        try:
            return plugin_uris.told(request, await handle(request))
        except TorchyardError as error:
            return answer(error)
        except RequestValidationError as error:
            return answer(InvalidInput(f"the request is wrong: {error.errors()[0]['msg']}"))
        except ClientDisconnect:
            raise
        except Exception as error:
            full = disk.meaning(error)
            if full is not None:
                return answer(full)
            _log.exception("%s %s failed", request.method, request.url.path)
            body = {"error_code": "INTERNAL_ERROR", "message": "see `yard server logs`"}
            return JSONResponse(body, 500)

    return answering


class MlflowRoute(PathGuardedRoute):
    """A route whose errors, those of its dependencies too, are MLflow's."""

    def get_route_handler(self) -> Handle:
        return guarded(super().get_route_handler())
