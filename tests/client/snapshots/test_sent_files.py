"""What a document names on this machine, sent to the real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.served_workspace import ServedWorkspace
from torchyard import Client, InvalidInput


@pytest.fixture
def client(server: ServedWorkspace) -> Iterator[Client]:
    with server.client() as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in ("own/src/train.py", "common/a.py", "tools.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    return tmp_path / "own"


STEP = {"command": "python train.py", "environment": "python", "code": "src"}


def test_a_job_has_the_includes_among_its_code(client: Client, folder: Path) -> None:
    includes = ["../common", "../tools.py"]
    job = client.jobs.create({**STEP, "additional_includes": includes}, folder)
    assert [file.path for file in client.jobs.code(job.name)] == [
        "common/a.py",
        "tools.py",
        "train.py",
    ]
    client.jobs.restore_code(job.name, folder / "restored")
    assert (folder / "restored" / "common" / "a.py").read_text() == "common/a.py"
    alone = client.jobs.create({**STEP, "code": None, "additional_includes": includes[1:]}, folder)
    assert [file.path for file in client.jobs.code(alone.name)] == ["tools.py"]


def test_a_component_has_them_too(client: Client, folder: Path) -> None:
    (folder / "train.additional_includes").write_text("../tools.py\n")
    document = {**STEP, "name": "train", "additional_includes": ["../common"]}
    made = client.components.create(document, folder, file=folder / "train.yml")
    assert made.raw["code"].startswith("snapshot:") and not made.raw.get("additional_includes")
    with_both = client.jobs.create(
        {**STEP, "additional_includes": ["../common", "../tools.py"]}, folder
    )
    assert client.jobs.document(with_both.name)["spec"]["code"] == made.raw["code"]


def test_all_that_is_missing_is_told_with_what_the_server_finds(
    client: Client, folder: Path
) -> None:
    document = {
        "command": "ls",
        "code": "no",
        "environment": {"image": "debian", "conda_file": "no.yml"},
        "inputs": {"x": {"path": "no"}},
        "additional_includes": ["no.py", "../no"],
        "limits": {"timeout": "long"},
    }
    with pytest.raises(InvalidInput) as caught:
        client.jobs.validate(document, folder)
    assert {each.at for each in (caught.value, *caught.value.others)} == {
        ("code",),
        ("environment", "conda_file"),
        ("inputs", "x", "path"),
        ("additional_includes", 0),
        ("additional_includes", 1),
        ("limits", "timeout"),
    }
