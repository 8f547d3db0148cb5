"""Errors as MLflow's clients read them.

Owns: MLflow's error codes and their HTTP statuses, the route class that responds with them.
Leaves: what to refuse to the routes.
Always: an MLflow route never responds in torchyard's own error shape.
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
from torchyard.workspaces.guarded_routes import GuardedRoute

_log = logging.getLogger(__name__)

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

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
    """MLflow responds with 400 when a name is taken."""

    code = "RESOURCE_ALREADY_EXISTS"
    http_status = 400


class EndpointNotFound(NotFound):
    """The response of an MLflow server that lacks the feature."""

    code = "ENDPOINT_NOT_FOUND"


def error_response(error: TorchyardError) -> JSONResponse:
    """The error as MLflow's JSON."""
    code = error.code if error.code.isupper() else _CODES.get(error.http_status, "INTERNAL_ERROR")
    message = f"{error.message} ({error.hint})" if error.hint else error.message
    return JSONResponse({"error_code": code, "message": message}, error.http_status)


def with_mlflow_errors(handle: Handler) -> Handler:
    """The handler, with every error in MLflow's shape and every file URI as the client reads it."""

    async def handle_errors(request: Request) -> Response:
        try:
            return plugin_uris.translate_response(request, await handle(request))
        except TorchyardError as error:
            return error_response(error)
        except RequestValidationError as error:
            return error_response(InvalidInput(f"invalid request: {error.errors()[0]['msg']}"))
        except ClientDisconnect:
            raise
        except Exception as error:
            disk_error = disk.meaning(error)
            if disk_error is not None:
                return error_response(disk_error)
            _log.exception("%s %s failed", request.method, request.url.path)
            body = {"error_code": "INTERNAL_ERROR", "message": "see `yard server logs`"}
            return JSONResponse(body, 500)

    return handle_errors


class MlflowRoute(GuardedRoute):
    """A route that answers its errors, and those of its dependencies, as MLflow does."""

    def get_route_handler(self) -> Handler:
        return with_mlflow_errors(super().get_route_handler())
