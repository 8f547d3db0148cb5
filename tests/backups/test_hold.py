"""A restored home: read, not changed, and it starts nothing until its owner says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from sentences import Sentence
from torchyard import server
from torchyard.app import application
from torchyard.backups import actions as backups
from torchyard.base.home import hold
from torchyard.base.settings import Settings
from torchyard.cli.parsing.group import run
from torchyard.executors.fake import FakeExecutor
from workspaces.served import HERE, JOB, served

ONE_DATABASE = True


@pytest.fixture
def restored(tmp_path: Path) -> Path:
    """A home with a waiting job."""
    with served(tmp_path / "old", "") as site:
        site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "waits"})
        backups.backup(tmp_path / "old", "", tmp_path / "b.tar")
    backups.restore(tmp_path / "new", "", tmp_path / "b.tar")
    return tmp_path / "new"


@contextmanager
def running(home: Path) -> Iterator[tuple[application.Parts, TestClient]]:
    """A whole server, with what runs beside its requests."""
    parts = application.build(
        home, "http://127.0.0.1:1", os.environ, executor=FakeExecutor(), database=""
    )
    server.ensure_token(parts, Settings(home).token_file)
    headers = {"Authorization": f"Bearer {Settings(home).token_file.read_text().strip()}"}
    with TestClient(application.create_app(parts), headers=headers) as client:
        yield parts, client


def test_a_restored_home_is_read_and_not_changed(restored: Path, sentence: Sentence) -> None:
    with running(restored) as (parts, client):
        assert not parts.scheduler.is_alive
        assert client.get(f"{HERE}/jobs/waits").json()["status"] == "NotStarted"
        refused = client.post(f"{HERE}/jobs", json=JOB)
        assert refused.status_code == 409 and refused.json()["error"]["code"] == "restored"
        sentence.is_answer(refused.json())
        assert client.post(f"{HERE}/jobs/waits/cancel").status_code == 409
        health = client.get("/health").json()
        assert health["status"] == "degraded" and "yard server resume" in health["trouble"]
        # Who administers it may look at its people.
        assert client.get("/v1/users").status_code == 200


def test_a_resumed_home_goes_on(restored: Path) -> None:
    assert hold.resume(restored) and not hold.resume(restored)
    with running(restored) as (parts, client):
        assert parts.scheduler.is_alive
        assert client.post(f"{HERE}/jobs", json=JOB).status_code == 201
        assert client.get("/health").json()["status"] == "ok"


def test_the_command_resumes_a_restored_home_only(
    restored: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHYARD_HOME", str(restored))
    assert run(["server", "resume"]) == 0 and not hold.is_held(restored)
    assert run(["server", "resume"]) == 2 and "is not held" in capfd.readouterr().err
