"""What a client is told that asks wrongly, and that nothing is left of it."""

from __future__ import annotations

import base64
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from job_operations import command_job
from operations import ERROR, EXPIRED, World, operation


def _client(world: World, token: str, workspace: str = "") -> Any:
    """A client with a token of its own choice."""
    from azure.ai.ml import MLClient
    from azure.core.credentials import AccessToken

    class Fixed:
        def get_token(self, *scopes: str, **options: Any) -> Any:
            return AccessToken(token, int(time.time()) + 3600)

    ml = world.ml
    name = workspace or ml.workspace_name
    return MLClient(Fixed(), ml.subscription_id, ml.resource_group_name, name)


def _foreign() -> str:
    def part(body: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(body).encode()).rstrip(b"=").decode()

    claims = {"aud": "https://management.azure.com", "exp": int(time.time()) + 3600, "oid": "x"}
    return f"{part({'alg': 'RS256', 'typ': 'JWT'})}.{part(claims)}.c2lnbmF0dXJl"


@operation("Errors", "a token of another issuer", ERROR, "not issued by this server")
def foreign_token(world: World) -> Any:
    return [job.name for job in _client(world, _foreign()).jobs.list()]


@operation("Errors", "a token whose time is over", ERROR, "expired")
def expired_token(world: World) -> Any:
    return [job.name for job in _client(world, os.environ[EXPIRED]).jobs.list()]


@operation("Errors", "a workspace that is not there", ERROR, "no-such-workspace")
def no_workspace(world: World) -> Any:
    from azure.ai.ml import MLClient
    from azure.identity import DefaultAzureCredential

    ml = world.ml
    names = (ml.subscription_id, ml.resource_group_name, "no-such-workspace")
    return [job.name for job in MLClient(DefaultAzureCredential(), *names).jobs.list()]


@operation("Errors", "the workspace of another resource group", ERROR, "other-group")
def other_group(world: World) -> Any:
    from azure.ai.ml import MLClient
    from azure.identity import DefaultAzureCredential

    ml = world.ml
    names = (ml.subscription_id, "other-group", ml.workspace_name)
    return [job.name for job in MLClient(DefaultAzureCredential(), *names).jobs.list()]


@operation("Errors", "two clients create one name: one job, and one is told so")
def two_at_once(world: World) -> Any:
    def create(text: str) -> str:
        job = command_job(world, "race", command=f"echo {text}")
        try:
            world.ml.jobs.create_or_update(job)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "made"

    with ThreadPoolExecutor(2) as pool:
        outcomes = sorted(pool.map(create, ("this", "that")), key=lambda outcome: outcome != "made")
    assert outcomes[0] == "made", outcomes
    assert "exists" in outcomes[1] and "Hint" in outcomes[1], outcomes
    return outcomes[1]
