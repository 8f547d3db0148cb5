"""What the router itself says instead of a model's answer.

Owns: statuses, codes and messages, in the shape of Azure's endpoints.
Leaves: when each is due to the others.
Always: JSON with its length; nothing of a key, a path or another endpoint is in it.

Source: https://learn.microsoft.com/azure/machine-learning/how-to-troubleshoot-online-endpoints
(the statuses); the body is the error object of Azure's REST APIs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """
    Attributes:
        retry_after_s: said with the answer when not 0.
    """

    status: int
    reason: str
    code: str
    message: str
    retry_after_s: int = 0

    def body(self) -> bytes:
        error = {"code": self.code, "message": self.message}
        return json.dumps({"error": error}).encode()


BAD_REQUEST = Refusal(400, "Bad Request", "BadRequest", "The request is not valid HTTP.")
UNAUTHORIZED = Refusal(
    401, "Unauthorized", "Unauthorized", "The key or token is missing, wrong or expired."
)
FORBIDDEN = Refusal(
    403, "Forbidden", "Forbidden", "The token has no permission to score with this endpoint."
)
NO_ENDPOINT = Refusal(404, "Not Found", "NotFound", "No endpoint has this address.")
NO_DEPLOYMENT = Refusal(
    404,
    "Not Found",
    "NotFound",
    "The endpoint has no such deployment, or none with traffic.",
)
NOT_ALLOWED = Refusal(405, "Method Not Allowed", "MethodNotAllowed", "CONNECT is not supported.")
TIMEOUT = Refusal(
    408,
    "Request Timeout",
    "RequestTimeout",
    "The model took longer than request_timeout_ms of the deployment's request_settings.",
)
SLOW_REQUEST = Refusal(
    408, "Request Timeout", "RequestTimeout", "The request came too slowly; send it again."
)
TOO_LARGE = Refusal(
    413, "Payload Too Large", "PayloadTooLarge", "The body is longer than the deployment takes."
)
LONG_HEAD = Refusal(
    431, "Request Header Fields Too Large", "HeadersTooLarge", "The request's head is too long."
)
BUSY = Refusal(
    429,
    "Too Many Requests",
    "TooManyRequests",
    "Too many pending requests: every instance of the deployment is busy. Try again later.",
    1,
)
LOST = Refusal(
    502, "Bad Gateway", "BadGateway", "The instance ended or failed before its answer was whole."
)
BAD_ANSWER = Refusal(502, "Bad Gateway", "BadGateway", "The instance's answer is not valid HTTP.")
NO_INSTANCE = Refusal(
    503,
    "Service Unavailable",
    "ServiceUnavailable",
    "The deployment has no instance that takes requests. Try again later.",
    2,
)
NO_SERVER = Refusal(
    503,
    "Service Unavailable",
    "ServiceUnavailable",
    "The server that checks tokens does not answer. Try again later.",
    2,
)
CROWDED = Refusal(
    503, "Service Unavailable", "ServiceUnavailable", "The router has too many connections.", 2
)
BAD_BATCH = Refusal(
    424,
    "Failed Dependency",
    "ModelError",
    "The deployment joins requests (batching), but the model's answer is not a list with one value "
    "for each row of the request.",
)
