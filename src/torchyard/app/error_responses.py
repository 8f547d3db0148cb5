"""Responses to errors of any package.

Owns: the status and message of each kind of error outside the protocols.
Leaves: the protocols' envelopes to mlflow/errors.py and azureml/common/errors.py.
Always: every error is answered as `error`, `hint` and a code.
"""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from sqlalchemy.exc import DataError, IntegrityError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from torchyard.base import disk
from torchyard.base.errors import Conflict, Internal, InvalidInput, NotFound, TorchyardError

_log = logging.getLogger(__name__)


def _http_refusal(request: Request, error: HTTPException) -> TorchyardError:
    if error.status_code == 400:
        # What FastAPI says of a body, whose cause is lost.
        return InvalidInput("the request's body can't be read", "send JSON, nested less deeply")
    kind = NotFound if error.status_code == 404 else InvalidInput
    return kind(f"nothing answers {request.method} `{request.url.path}`")


def _gone(request: Request, error: Exception) -> Response:
    """Nobody reads the answer to a client that is gone."""
    return Response(status_code=400)


def answer_errors(app: FastAPI) -> None:
    app.add_exception_handler(ClientDisconnect, _gone)

    @app.exception_handler(TorchyardError)
    def refused(request: Request, error: TorchyardError) -> JSONResponse:
        return JSONResponse(error.to_json(), error.http_status)

    @app.exception_handler(RequestValidationError)
    def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        refusal = InvalidInput(f"the request's `{key}` is wrong: {first['msg']}")
        return JSONResponse(refusal.to_json(), refusal.http_status)

    @app.exception_handler(HTTPException)
    def no_route(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse(_http_refusal(request, error).to_json(), error.status_code)

    @app.exception_handler(IntegrityError)
    def collided(request: Request, error: IntegrityError) -> JSONResponse:
        _log.warning("collision on %s: %s", request.url.path, error)
        refusal = Conflict("another request changed the same thing", "try again")
        return JSONResponse(refusal.to_json(), refusal.http_status)

    @app.exception_handler(NotADirectoryError)
    @app.exception_handler(IsADirectoryError)
    @app.exception_handler(FileExistsError)
    def in_the_way(request: Request, error: Exception) -> JSONResponse:
        _log.warning("%s %s: %r", request.method, request.url.path, error)
        refusal = Conflict("a file and a folder would have one path", "choose another path")
        return JSONResponse(refusal.to_json(), refusal.http_status)

    @app.exception_handler(OSError)
    def disk_failed(request: Request, error: OSError) -> JSONResponse:
        known_failure = disk.meaning(error)
        if known_failure is None:
            return failed(request, error)
        _log.warning(
            "%s %s: %s: %r", request.method, request.url.path, known_failure.message, error
        )
        return JSONResponse(known_failure.to_json(), known_failure.http_status)

    @app.exception_handler(OverflowError)
    @app.exception_handler(RecursionError)
    @app.exception_handler(UnicodeEncodeError)
    @app.exception_handler(DataError)
    def beyond(request: Request, error: Exception) -> JSONResponse:
        _log.warning("%s %s: %r", request.method, request.url.path, error)
        refusal = InvalidInput(
            "the request holds a number, a text or a nesting that nothing here can keep",
            "numbers have 63 bits at the most, and texts are Unicode",
        )
        return JSONResponse(refusal.to_json(), refusal.http_status)

    @app.exception_handler(Exception)
    def failed(request: Request, error: Exception) -> JSONResponse:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        fault = Internal("the server failed at this request", "see `yard server logs`")
        return JSONResponse(fault.to_json(), fault.http_status)
