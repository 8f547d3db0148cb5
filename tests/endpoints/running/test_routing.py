"""The router's table, from rows: whom it lets in, which instances get requests."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from endpoints.running.test_decisions import deployment, instance
from torchyard.endpoints import tokens
from torchyard.endpoints.records.types import (
    AuthMode,
    Endpoint,
    InstanceState,
    ProvisioningState,
)
from torchyard.endpoints.router import access
from torchyard.endpoints.running import routing
from torchyard.endpoints.spec import deployment_spec

_NOW = datetime(2026, 11, 24, tzinfo=timezone.utc)


@pytest.mark.parametrize("mode", list(AuthMode))
def test_an_endpoint_whose_owner_may_run_nothing_lets_nobody_in(mode: AuthMode) -> None:
    state = ProvisioningState.SUCCEEDED
    endpoint = Endpoint(
        workspace="w", name="e", owner="dan", document={}, created_at=_NOW, changed_at=_NOW,
        auth_mode=mode, traffic={}, mirror_traffic={}, state=state, message="",
    )  # fmt: skip
    keys = tokens.new_keys()
    sent = [keys.primary, keys.secondary, "", tokens.sign(keys.token_secret, "w/e", "x", _NOW).text]
    is_open = routing.endpoint_row(endpoint, keys, {}).auth
    closed = routing.endpoint_row(endpoint, keys, {}, may_run=False).auth
    assert closed.mode == "key", "nobody else is asked"
    passed = [
        [access.passes(auth, f"Bearer {each}".encode(), _NOW.timestamp()) for each in sent]
        for auth in (is_open, closed)
    ]
    assert passed[1] == [False] * 4
    assert (mode is AuthMode.KEY) is passed[0][0]


@pytest.mark.parametrize(("served", "answering"), [(0, 2), (1, 1), (2, 2)])
def test_only_the_revision_that_answers_gets_requests(served: int, answering: int) -> None:
    """Until the new one was promoted the old one does, and from then on the new one alone."""
    document = {"name": "blue", "endpoint_name": "eee", "model": "azureml:m:1"}
    ready = [instance((revision, 0), InstanceState.READY) for revision in (1, 2)]
    row = routing.deployment_row(
        deployment(2, served), deployment_spec.read(document), ready, Path("collected")
    )
    assert {each.id for each in row.instances if not each.is_draining} == {
        each.id for each in ready if each.revision == answering
    }
