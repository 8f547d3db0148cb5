"""A request that a person tries on the web page, which speaks to the server alone.

Owns: sending it with the endpoint's own credential, and what came back.
Leaves: answering it to the router.
Always: it waits no longer than `LIMIT_S`, and no more than `LONGEST` bytes of an answer are read.
"""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from torchyard.base import certificates
from torchyard.base import http as base_http
from torchyard.base.errors import Conflict, Unreachable
from torchyard.endpoints.actions import credentials, deployments, endpoints
from torchyard.endpoints.records import address
from torchyard.endpoints.records.types import AuthMode
from torchyard.jobs.services import FileServices
from torchyard.workspaces.types import Identity

LIMIT_S = 60.0
LONGEST = 64 * 1024


@dataclass(frozen=True)
class Answer:
    """`status` is HTTP's; `text` is cut at `LONGEST` bytes."""

    status: int
    text: str
    milliseconds: float


def send(
    services: FileServices,
    workspace: str,
    name: str,
    deployment: str,
    request: str,
    identity: Identity,
) -> Answer:
    """Send JSON to the endpoint as its callers do.

    Args:
        deployment: which one is to answer, whatever the traffic says; empty for none.

    Raises:
        Conflict: the endpoint takes the tokens of people, or has no address yet.
        NotFound: no such deployment.
        Unreachable: nothing answered.
    """
    endpoint = endpoints.get(services.db, workspace, name)
    if deployment:
        deployments.get(services.db, workspace, name, deployment)
    uri = address.of_endpoint(services.home, workspace, name)
    if not uri:
        raise Conflict(
            f"endpoint `{name}` has no address yet: its router has not started",
            "create a deployment, and try again when it has",
            code="router_missing",
        )
    if endpoint.auth_mode is AuthMode.AML_TOKEN:
        credential = credentials.token(services, workspace, name, identity).text
    else:
        credential = credentials.keys(services.db, workspace, name).primary
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {credential}"}
    if deployment:
        headers["azureml-model-deployment"] = deployment
    parts = urlsplit(f"{uri}/score")
    ca_cert = certificates.authority_file(services.home)
    connection = base_http.opened(parts, LIMIT_S, str(ca_cert) if ca_cert.exists() else "")
    begun = time.monotonic()
    try:
        connection.request("POST", parts.path, request.encode(), headers)
        response = connection.getresponse()
        text = response.read(LONGEST).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(
            f"endpoint `{name}` did not answer ({error})", "see the logs of its instances"
        ) from error
    finally:
        connection.close()
    return Answer(response.status, text, (time.monotonic() - begun) * 1000)
