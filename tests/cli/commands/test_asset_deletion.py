"""`yard model|data|environment delete` and the SDK's `delete`, against the real server."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.conftest import Yard
from cli.real_server import RealServer
from torchyard import Conflict, NotFound

JOB = "command: x ${{inputs.a}}\nenvironment: python\nname: reader\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    made = RealServer(tmp_path_factory.mktemp("server"))
    yield made
    made.stop()


@pytest.fixture
def real(served: RealServer, monkeypatch: pytest.MonkeyPatch) -> RealServer:
    monkeypatch.setenv("TORCHYARD_URL", served.url)
    monkeypatch.setenv("TORCHYARD_TOKEN", served.token)
    return served


@contextmanager
def answered(monkeypatch: pytest.MonkeyPatch, text: bytes) -> Iterator[None]:
    """Have commands read this from a pipe."""
    reading, writing = os.pipe()
    os.write(writing, text)
    os.close(writing)
    with os.fdopen(reading) as stdin, monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", stdin)
        yield


def test_data_that_a_job_names_is_kept_until_forced(real: RealServer, yard: Yard) -> None:
    Path("d").mkdir()
    Path("d/x.csv").write_text("0,1")
    yard("data", "create", "-n", "digits", "-p", "d")
    assert yard("data", "delete", "digits", "--yes").err == "Data asset `digits:1` is deleted.\n"
    assert yard("data", "delete", "digits", "--yes").code == 2
    yard("data", "create", "-n", "digits", "-p", "d")
    Path("job.yml").write_text(JOB + "inputs: {a: {path: 'azureml:digits@latest'}}\n")
    assert yard("job", "create", "-f", "job.yml").code == 0
    busy = yard("data", "delete", "digits:2", "--force", "--yes")
    assert busy.code == 2 and "hint: end it first: `yard job cancel -n reader`" in busy.err
    yard("job", "cancel", "reader")
    answer = yard("data", "delete", "digits")
    assert "error: data `digits:2` can't be deleted: job `reader` names it" in answer.err
    with real.client() as client:
        with pytest.raises(Conflict):
            client.data.delete("digits", "2")
        assert client.data.delete("digits", force=True, dry_run=True).versions[0].size_bytes == 3
    deleted = yard("data", "delete", "digits:2", "--force", "--yes", "-o", "json")
    assert json.loads(deleted.out)["deleted"][0]["version"] == "2"
    assert (
        "warning: without it, job `reader` lacks its input `a` when it is run again" in deleted.err
    )
    audit = "".join(path.read_text() for path in (real.home / "audit").rglob("*.jsonl"))
    assert "/data/digits/versions/2" in audit and "DELETE" in audit


def test_several_versions_take_all(
    real: RealServer, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("m.pt").write_bytes(b"weights")
    for _ in range(2):
        yard("model", "create", "-n", "net", "-p", "m.pt")
    use = json.loads(yard("disk", "-r", "1000", "-o", "json").out)
    assert [item["name"] for item in use["largest"] if item["kind"] == "models"] == [
        "net:1", "net:2"
    ]  # fmt: skip
    assert "models" in yard("disk").text and "Make room with" in yard("disk").text
    answer = yard("model", "delete", "net")
    assert answer.code == 2 and "model `net` has 2 versions: 2, 1" in answer.err
    assert "There is no terminal to ask at" in yard("model", "delete", "net", "--all").err
    with answered(monkeypatch, b"n\n"):
        assert "not confirmed; nothing was done" in yard("model", "delete", "net", "--all").err
    with answered(monkeypatch, b"y\ny\ny\n"):
        done = yard("model", "delete", "net", "--all")
    assert (
        "Delete all 2 versions of model `net` with 14 B of files permanently? [y/N]: y" in done.err
    )
    assert done.code == 0 and "All 2 versions of model `net` are deleted." in done.err
    with real.client() as client, pytest.raises(NotFound):
        client.models.get("net")


def test_an_environment_is_deleted_by_its_own_workspace_alone(real: RealServer, yard: Yard) -> None:
    Path("r.txt").write_text("six==1.17.0\n")
    yard("environment", "create", "-n", "vision", "--pip-requirements", "r.txt")
    dry = yard("environment", "delete", "vision", "--dry-run", "-o", "json")
    assert json.loads(dry.out) == [{"name": "vision", "version": "1", "size_bytes": 0}]
    assert yard("environment", "delete", "vision", "-y").code == 0
    assert "does not exist" in yard("environment", "show", "vision").err
    curated = yard("environment", "delete", "python", "-y")
    assert curated.code == 2 and "is curated and can't be deleted" in curated.err
