"""Checkpoints reach the server while their job runs, and none that is not whole looks whole."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually
from torchyard.shared.connection import Connection
from torchyard.shared.server_address import ServerAddress
from torchyard.worker.files.uploads import upload_folder
from torchyard.worker.node.checkpoint_delivery import CheckpointDelivery
from worker.stub_server import StubServer, running

PUTS = list[tuple[str, str]]


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with running() as created:
        yield created


@pytest.fixture
def link(stub: StubServer) -> Iterator[Connection]:
    connection = Connection.of_attempt(ServerAddress(stub.url), "yard_a_test", "a1")
    yield connection
    connection.close()


@pytest.fixture
def requests(stub: StubServer) -> PUTS:
    """(method, path) of each request that the server gets, in order."""
    seen: PUTS = []

    def note(method: str, path: str) -> tuple[int, dict[str, Any]] | None:
        seen.append((method, path))
        return None

    stub.refuse = note
    return seen


def save(outputs: Path, step: int, content: str = "state", is_complete: bool = True) -> Path:
    folder = outputs / "checkpoints" / f"step-{step:08d}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__RANK_0.distcp").write_text(f"{content} {step}")
    (folder / "zzz").write_text("behind the manifest by name")
    if is_complete:
        (folder / "manifest.new").write_text("{}")
        os.rename(folder / "manifest.new", folder / "manifest.json")
    return folder


def names(stub: StubServer) -> list[str]:
    return sorted(path.removeprefix("outputs/checkpoints/") for path in stub.files)


def wait_until(condition: Callable[[], bool]) -> None:
    eventually(condition, "what the delivery is to come to")


def test_the_manifest_is_sent_last_and_each_file_once(
    stub: StubServer, link: Connection, requests: PUTS, tmp_path: Path
) -> None:
    delivery = CheckpointDelivery(link, tmp_path)
    save(tmp_path, 100, is_complete=False)
    delivery.deliver()
    assert requests == []
    save(tmp_path, 100)
    delivery.deliver()
    delivery.deliver()
    assert [path.rsplit("/", 1)[1] for _, path in requests] == [
        "__RANK_0.distcp", "zzz", "manifest.json"
    ]  # fmt: skip
    assert stub.files["outputs/checkpoints/step-00000100/__RANK_0.distcp"] == b"state 100"


def test_what_a_script_deletes_goes_on_the_server_too(
    stub: StubServer, link: Connection, tmp_path: Path
) -> None:
    delivery = CheckpointDelivery(link, tmp_path)
    old, new = save(tmp_path, 100), save(tmp_path, 200)
    delivery.deliver()
    shutil.rmtree(old)
    delivery.deliver()
    assert names(stub) == [
        f"step-00000200/{name}" for name in ("__RANK_0.distcp", "manifest.json", "zzz")
    ]
    shutil.rmtree(new)
    save(tmp_path, 200, "another")
    delivery.deliver()
    assert stub.files["outputs/checkpoints/step-00000200/__RANK_0.distcp"] == b"another 200"


def test_the_end_sends_only_what_is_missing(
    stub: StubServer, link: Connection, requests: PUTS, tmp_path: Path
) -> None:
    delivery = CheckpointDelivery(link, tmp_path)
    folder = save(tmp_path, 100)
    delivery.deliver()
    (tmp_path / "model.pt").write_text("weights")
    (folder / "zzz").write_text("written again, and longer than it was")
    del requests[:]
    upload_folder(link, tmp_path, "/files/outputs", lambda: False, delivery.is_sent)
    assert [path for _, path in requests] == [
        "/files/outputs/checkpoints/step-00000100/zzz", "/files/outputs/model.pt"
    ]  # fmt: skip


def test_what_an_earlier_attempt_left_is_not_sent_again(
    link: Connection, requests: PUTS, tmp_path: Path
) -> None:
    save(tmp_path, 100)
    delivery = CheckpointDelivery(link, tmp_path)
    delivery.deliver()
    assert requests == []
    shutil.rmtree(tmp_path / "checkpoints" / "step-00000100")
    delivery.deliver()
    assert requests == [("DELETE", "/files/outputs/checkpoints/step-00000100")]


def test_it_goes_on_when_the_server_is_back(
    stub: StubServer, link: Connection, tmp_path: Path
) -> None:
    delivery = CheckpointDelivery(link, tmp_path, every_s=0.05)
    stub.stop()
    delivery.start()
    save(tmp_path, 100)
    time.sleep(0.3)
    stub.start()
    wait_until(lambda: "step-00000100/manifest.json" in names(stub))
    delivery.close()
    save(tmp_path, 200)
    time.sleep(0.2)
    assert "step-00000200/manifest.json" not in names(stub)


def test_a_refused_file_keeps_its_manifest_back_and_no_other_checkpoint(
    stub: StubServer, link: Connection, tmp_path: Path
) -> None:
    def refuse(method: str, path: str) -> tuple[int, dict[str, Any]] | None:
        return (400, {"error": {"message": "no such name"}}) if "100/zzz" in path else None

    stub.refuse = refuse
    delivery = CheckpointDelivery(link, tmp_path)
    save(tmp_path, 100)
    save(tmp_path, 200)
    delivery.deliver()
    assert "step-00000100/manifest.json" not in names(stub)
    assert "step-00000200/manifest.json" in names(stub)


@pytest.mark.parametrize("kind", ["missing", "a file", "a link"])
def test_a_folder_that_is_none_is_nothing(
    link: Connection, requests: PUTS, tmp_path: Path, kind: str
) -> None:
    if kind == "a file":
        (tmp_path / "checkpoints").write_text("x")
    elif kind == "a link":
        (tmp_path / "checkpoints").symlink_to(tmp_path / "nowhere")
    CheckpointDelivery(link, tmp_path).deliver()
    assert requests == []
