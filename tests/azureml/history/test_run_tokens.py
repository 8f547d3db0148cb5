"""Tokens of a run, as azureml-mlflow asks for them inside a job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from azureml.azure_server import WORKSPACE
from torchyard.base.clock import FakeClock
from workspaces.served import HERE, JOB, Served, served

HISTORY = f"/history/v1.0{WORKSPACE}"


@pytest.fixture
def site(tmp_path: Path, database_url: str, clock: FakeClock) -> Iterator[Served]:
    with served(tmp_path, database_url, clock) as created:
        created.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "one"})
        created.job_token("one", "dan")
        yield created


def jwt_of(site: Served, user: str) -> str:
    response: Any = site.client.get(
        "/msi/token",
        params={"api-version": "2019-08-01", "resource": "https://management.azure.example/"},
        headers={"X-IDENTITY-HEADER": site.tokens[user]},
    )
    return str(response.json()["access_token"])


@pytest.mark.parametrize("below", ["", "/experiments/Default", "/experimentids/0"])
def test_a_job_gets_its_own_token_again(site: Served, clock: FakeClock, below: str) -> None:
    site.tokens["job"] = jwt_of(site, "job of dan")
    response = site.ok("job", "GET", f"{HISTORY}{below}/runs/one/token")
    assert response["token"] == site.tokens["job"]
    ends_at = datetime.fromisoformat(response["expiryTimeUtc"])
    assert ends_at == clock.now() + timedelta(hours=1)


def test_another_kind_of_token_gets_a_jwt_for_an_hour(site: Served, clock: FakeClock) -> None:
    response = site.ok("dan", "GET", f"{HISTORY}/runs/one/token")
    assert response["token"].count(".") == 2
    site.tokens["jwt"] = response["token"]
    assert site.ok("jwt", "GET", "/v1/whoami")["user"] == "dan"
    clock.advance(3600)
    assert site.ask("jwt", "GET", "/v1/whoami").status_code == 401


def test_a_run_that_does_not_exist_has_no_token(site: Served) -> None:
    assert site.ask("dan", "GET", f"{HISTORY}/runs/none/token").status_code == 404
