"""Whether a workspace takes something else in the place of a published environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from torchyard import server
from torchyard.app import application
from torchyard.base.settings import Settings
from torchyard.executors.fake import FakeExecutor
from workspaces.served import HERE, PEOPLE, Served

PUBLISHED = "azureml:AzureML-ACPT-pytorch-1.13-py38-cuda11.7-gpu@latest"
# With torch 2.5, which no environment of the package has.
OLD_IMAGE = "mcr.microsoft.com/aifx/acpt/stable-ubuntu2204-cu124-py310-torch251"
BASE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04"


def serve(home: Path, database_url: str, for_others: bool) -> Iterator[Served]:
    parts = application.build(
        home,
        "http://127.0.0.1:1",
        os.environ,
        executor=FakeExecutor(),
        database=database_url,
        for_others=for_others,
    )
    token_file = Settings(home).token_file
    server.ensure_token(parts, token_file)
    client = TestClient(application.create_app(parts), raise_server_exceptions=False)
    made = Served(parts, client, {"home": token_file.read_text().strip()})
    for name, role in PEOPLE.items():
        made.add(name, role)
    yield made
    client.close()
    parts.services.db.close()


@pytest.fixture
def shared(tmp_path: Path, database_url: str) -> Iterator[Served]:
    yield from serve(tmp_path, database_url, for_others=True)


@pytest.fixture
def alone(tmp_path: Path, database_url: str) -> Iterator[Served]:
    yield from serve(tmp_path, database_url, for_others=False)


def answered(answer: Any) -> Any:
    """What came back, or the error in it."""
    return answer.json().get("error") or answer.json()


def submit(served: Served, environment: Any, who: str = "dan") -> Any:
    job = {"command": "true", "environment": environment}
    return answered(served.ask(who, "POST", f"{HERE}/jobs", job))


def resolved(served: Served, environment: Any) -> Any:
    return served.ok("rita", "POST", f"{HERE}/environments/resolve", {"environment": environment})


def allow(served: Served, value: Any, who: str = "olga") -> Any:
    return answered(served.ask(who, "PATCH", HERE, {"allow_substitutes": value}))


def test_a_shared_server_accepts_substitutes_only_once_an_owner_allows_them(shared: Served) -> None:
    refused = submit(shared, PUBLISHED)
    assert refused["code"] == "substitute_refused" and refused["at"] == ["environment"]
    assert f"`{PUBLISHED}`" in refused["message"] and "`acpt-pytorch-1.13-" in refused["message"]
    assert "environment: azureml:acpt-pytorch-1.13-" in refused["hint"]
    assert "yard workspace update -n default --allow-substitutes true" in refused["hint"]
    inline = {"image": BASE, "conda_file": {"dependencies": [{"pip": ["six"]}]}}
    assert submit(shared, inline)["at"] == ["environment", "image"]
    document = {"name": "mine", **inline}
    answer = answered(shared.ask("dan", "POST", f"{HERE}/environments", document))
    assert (answer["code"], answer["at"]) == ("substitute_refused", ["image"])
    assert resolved(shared, PUBLISHED)["refused"] == refused["message"]
    assert allow(shared, True)["allow_substitutes"] is True
    for environment in (PUBLISHED, inline):
        assert "takes its place" in submit(shared, environment)["notices"][0]
    assert "refused" not in resolved(shared, PUBLISHED)
    assert "name" in submit(shared, "sklearn-1.5")


def test_a_registered_environment_is_shown_even_when_refused(shared: Served) -> None:
    allow(shared, True)
    shared.ok("dan", "POST", f"{HERE}/environments", {"name": "mine", "image": BASE})
    allow(shared, None)
    assert submit(shared, "azureml:mine:1")["code"] == "substitute_refused"
    assert shared.ok("rita", "GET", f"{HERE}/environments/mine/versions/1")["image"] == BASE
    names = [
        environment["name"]
        for environment in shared.ok("rita", "GET", f"{HERE}/environments")["value"]
    ]
    assert "mine" in names


def test_a_server_without_users_accepts_substitutes_by_default(alone: Served) -> None:
    assert "name" in submit(alone, PUBLISHED)
    assert allow(alone, False)["allow_substitutes"] is False
    assert submit(alone, PUBLISHED)["code"] == "substitute_refused"
    for environment in ("sklearn-1.5", "AzureML-sklearn-1.5@latest", {"image": "python:3.11"}):
        assert "name" in submit(alone, environment)
    assert allow(alone, None)["allow_substitutes"] is None
    assert "name" in submit(alone, PUBLISHED)


def test_a_job_keeps_what_belongs_to_the_name_of_its_environment(alone: Served) -> None:
    job = submit(alone, {"image": OLD_IMAGE})
    assert job["spec"]["environment_variables"] == {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    assert any("`torch.load` reads whole models" in notice for notice in job["notices"])
    written = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "0", "A": "b"}
    document = {
        "command": "true",
        "environment": {"image": OLD_IMAGE},
        "environment_variables": written,
    }
    job = answered(alone.ask("dan", "POST", f"{HERE}/jobs", document))
    assert job["spec"]["environment_variables"] == written


def test_only_an_owner_allows_them(shared: Served) -> None:
    assert allow(shared, True, "carl")["message"].startswith("only an owner")
    shared.job_token("any", "olga")
    assert allow(shared, True, "job of olga")["code"] == "forbidden"
    assert shared.ok("carl", "PATCH", HERE, {"description": "x"})["allow_substitutes"] is None
    wrong_values: tuple[Any, ...] = ("yes", 1, [])
    for wrong in wrong_values:
        assert allow(shared, wrong)["at"] == ["allow_substitutes"]
