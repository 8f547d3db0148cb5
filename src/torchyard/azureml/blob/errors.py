"""Errors as Azure's storage clients read them.

Owns: Azure Storage's codes and its XML; the headers of every response.
Leaves: what to refuse to the blob service.
Always: every error is answered in this form, with our hint in the message.

Source: https://learn.microsoft.com/rest/api/storageservices/status-and-error-codes2,
https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes
"""

from __future__ import annotations

import logging
import re
import uuid
from xml.sax.saxutils import escape

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.requests import ClientDisconnect

from torchyard.azureml.common.errors import Handle
from torchyard.base import disk
from torchyard.base.clock import SystemClock
from torchyard.base.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotAuthenticated,
    NotFound,
    TorchyardError,
)
from torchyard.workspaces.guarded_routes import GuardedRoute

_log = logging.getLogger(__name__)

VERSION = "2021-12-02"
"""The version of the storage service for requests that name none."""

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_CODES = {
    400: "InvalidInput",
    401: "InvalidAuthenticationInfo",
    403: "AuthorizationPermissionMismatch",
    404: "BlobNotFound",
    409: "ResourceTypeMismatch",
    413: "RequestBodyTooLarge",
    429: "ServerBusy",
    501: "NotImplemented",
    503: "ServerBusy",
    507: "InsufficientStorage",
}


class NoContainer(NotFound):
    code = "ContainerNotFound"


class NoBlob(NotFound):
    code = "BlobNotFound"


class Unsigned(NotAuthenticated):
    """The request has neither a signature nor a token."""

    code = "NoAuthenticationInformation"


class BadSignature(Forbidden):
    """A signature that is invalid, has expired, or was made for something else."""

    code = "AuthenticationFailed"


class NotGranted(Forbidden):
    """A valid signature that does not cover the request."""

    code = "AuthorizationPermissionMismatch"


class ConditionNotMet(TorchyardError):
    """A condition of the request does not hold."""

    code = "ConditionNotMet"
    http_status = 412


class NotModified(TorchyardError):
    """A condition of a read: the client has the blob already."""

    code = "ConditionNotMet"
    http_status = 304


class BadRange(TorchyardError):
    code = "InvalidRange"
    http_status = 416


class BadRequest(InvalidInput):
    """An invalid request; created with Azure's own code."""

    code = "InvalidInput"


class Exists(Conflict):
    code = "BlobAlreadyExists"


class NotSupported(TorchyardError):
    """Something that Azure's storage has and torchyard does not."""

    code = "NotImplemented"
    http_status = 501


def error_response(request: Request, error: TorchyardError) -> Response:
    code = error.code if error.code[:1].isupper() else _CODES.get(error.http_status, "")
    code = code or "InternalError"
    headers = {"x-ms-error-code": code, **standard_headers(request)}
    if error.http_status == 401:
        headers["www-authenticate"] = "Bearer authorization_uri=https://login.invalid/"
    if request.method == "HEAD" or error.http_status == 304:
        return Response(status_code=error.http_status, headers=headers)
    message = f"{error.message}. Hint: {error.hint}" if error.hint else error.message
    message += f"\nRequestId:{headers['x-ms-request-id']}\nTime:{SystemClock().now():%FT%T.%fZ}"
    body = (
        '<?xml version="1.0" encoding="utf-8"?>'
        f"<Error><Code>{code}</Code><Message>{escape(printable(message))}</Message></Error>"
    )
    return Response(body.encode("utf-8", "replace"), error.http_status, headers, "application/xml")


def standard_headers(request: Request) -> dict[str, str]:
    """The headers of every response; for one request they are always the same."""
    if not hasattr(request.state, "blob_request_id"):
        request.state.blob_request_id = str(uuid.uuid4())
    headers = {
        "x-ms-request-id": request.state.blob_request_id,
        "x-ms-version": request.headers.get("x-ms-version", VERSION),
    }
    client_request_id = request.headers.get("x-ms-client-request-id", "")
    if client_request_id and len(client_request_id) <= 1024:
        headers["x-ms-client-request-id"] = client_request_id
    return headers


def printable(text: str) -> str:
    """Without the characters that XML forbids."""
    return "".join(character for character in text if _NOT_XML.match(character) is None)


class BlobRoute(GuardedRoute):
    """A route whose errors, including those of its dependencies, are Azure Storage's."""

    def get_route_handler(self) -> Handle:
        handle = super().get_route_handler()

        async def answering(request: Request) -> Response:
            try:
                return await handle(request)
            except TorchyardError as error:
                return error_response(request, error)
            except RequestValidationError as error:
                return error_response(request, BadRequest(str(error.errors()[0]["msg"])))
            except (NotADirectoryError, IsADirectoryError, FileExistsError) as error:
                _log.warning("%s %s: %r", request.method, request.url.path, error)
                return error_response(request, name_conflict())
            except ClientDisconnect:
                raise
            except Exception as error:
                full = disk.meaning(error)
                if full is None:
                    _log.exception("%s %s failed", request.method, request.url.path)
                    full_or_fault = TorchyardError(
                        "the server failed to answer this request", "see `yard server logs`"
                    )
                    return error_response(request, full_or_fault)
                return error_response(request, full)

        return answering


def name_conflict() -> Conflict:
    return Conflict(
        "a blob has the path of this one's folder, or there are blobs below its name",
        "datastores are folders: `a` and `a/b` can't both be blobs; choose another name",
    )
