"""A request to an endpoint, as any program would send it.

Owns: the request to the router, its headers, the errors for what it answers.
Leaves: keys and addresses to online_endpoints.py.
Always: an answer is returned as it came; a status of 400 and above is an error with its text.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from torchyard.base import http as base_http
from torchyard.base.errors import InvalidInput, NotAuthenticated, TorchyardError, Unreachable

_LIMIT_S = 400.0  # longer than a request may wait for a deployment that was scaled to zero
_SHOWN = 2000


class ScoringFailed(TorchyardError):
    """The endpoint answered with a status of 400 or above."""

    code = "scoring_failed"
    http_status = 424
    exit_code = 1


@dataclass(frozen=True)
class Answer:
    """`headers` by lower-case name."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            ScoringFailed: it is something else.
        """
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise ScoringFailed(
                f"the answer is not JSON: {self.text[:200]!r}", "read `text` or `body` instead"
            ) from error


def score(
    uri: str,
    credential: str,
    body: bytes,
    deployment: str = "",
    ca_cert: str = "",
    content_type: str = "application/json",
) -> Answer:
    """
    Args:
        credential: a key or a token.
        deployment: which one is to answer, whatever the traffic says.
        ca_cert: a PEM file with certificates that are trusted beside the system's own.

    Raises:
        ScoringFailed: what the endpoint answered.
        NotAuthenticated: the key or the token is wrong.
        Unreachable: nothing answered.
    """
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(f"`{uri[:200]}` is not an address of an endpoint")
    connection = base_http.opened(parts, _LIMIT_S, ca_cert)
    headers = {"Content-Type": content_type, "Authorization": f"Bearer {credential}"}
    if deployment:
        headers["azureml-model-deployment"] = deployment
    try:
        connection.request("POST", parts.path, body, headers)
        response = connection.getresponse()
        answer = Answer(
            response.status,
            response.read(),
            {name.lower(): value for name, value in response.getheaders()},
        )
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unreachable(
            f"the endpoint at `{parts.scheme}://{parts.netloc}` did not answer ({error})",
            "see `yard online-endpoint show`, and whether a firewall is in between",
        ) from error
    finally:
        connection.close()
    if answer.status >= 400:
        # …/endpoints/WORKSPACE/NAME/score
        name = unquote(parts.path.rstrip("/").rpartition("/")[0].rpartition("/")[2])
        raise _error(answer, name, deployment)
    return answer


def _error(answer: Answer, endpoint: str, deployment: str) -> TorchyardError:
    text = answer.text.strip()
    try:
        document = json.loads(text)
        if isinstance(document, dict):  # the router's form, or that of Azure's inference server
            error = document.get("error", document)
            text = str(error.get("message") or text) if isinstance(error, dict) else text
    except (ValueError, RecursionError):
        pass
    if answer.status == 401:
        return NotAuthenticated(
            f"the endpoint refused the key or token: {text[:_SHOWN]}",
            "get them with `yard online-endpoint get-credentials`",
        )
    by = answer.headers.get("azureml-model-deployment") or deployment
    who = f"deployment `{by}`" if by else "the endpoint"
    return ScoringFailed(
        f"{who} answered {answer.status}: {text[:_SHOWN] or 'nothing'}",
        _hint(answer.status, endpoint, by),
    )


def _hint(status: int, endpoint: str, deployment: str) -> str:
    if status == 404:
        return f"list its deployments with `yard online-deployment list -e {endpoint}`"
    if status == 413:
        return "raise the deployment's `torchyard: {max_body_mb: n}`, or send less at once"
    return f"see `yard online-deployment get-logs -n {deployment or 'NAME'} -e {endpoint}`"
