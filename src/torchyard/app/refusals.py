"""Refusals before any route is looked for.

Owns: an error's body in the shape that the clients of a path read.
Leaves: what is refused to the middlewares.
Always: an answer is JSON, with its length.
"""

from __future__ import annotations

import json

from starlette.types import Scope, Send

from torchyard.azureml.common import errors as azure_errors
from torchyard.base.errors import TorchyardError


async def refuse(scope: Scope, send: Send, error: TorchyardError) -> None:
    body = error.to_json()
    if "/api/2.0/mlflow" in scope["path"]:
        # MLflow's clients read these two.
        body = {"error_code": "INVALID_PARAMETER_VALUE", "message": error.message, **body}
    elif scope["path"].startswith(("/azureml/", "/azureml-above/")):
        body = azure_errors.envelope(error)
    content = json.dumps(body).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]
    await send({"type": "http.response.start", "status": error.http_status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
