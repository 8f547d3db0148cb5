"""Which local things of a job document are looked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.client.snapshots import job_files

MISSING = {"code": "./no-such-folder", "inputs": {"data": {"path": "./nothing"}}}


@pytest.mark.parametrize("kind", [{"type": "parallel"}, {"type": "finetuning"}, {"task": {}}])
def test_a_job_of_another_type_is_left_to_the_server(tmp_path: Path, kind: dict[str, Any]) -> None:
    files = job_files.find({**MISSING, **kind}, tmp_path)
    assert files.document == {**MISSING, **kind} and files.paths == ()


@pytest.mark.parametrize("kind", [{}, {"type": "command"}, {"type": "Command"}])
def test_a_missing_path_of_a_command_job_is_named(tmp_path: Path, kind: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match="does not exist"):
        job_files.find({"command": "ls", **MISSING, **kind}, tmp_path)


def test_what_an_ignore_file_leaves_out_is_recorded_with_the_job(tmp_path: Path) -> None:
    for name in ("lib/a.py", "train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    job = {"command": "ls", "code": "."}
    with job_files.find(job, tmp_path).with_code() as ready:
        assert "torchyard.left_out" not in ready.document.get("properties", {})
    (tmp_path / ".amlignore").write_text("lib/\n")
    with job_files.find(job, tmp_path).with_code() as ready:
        assert ready.document["properties"]["torchyard.left_out"] == '{"lib/": ".amlignore:1"}'


def test_of_much_that_is_left_out_the_outermost_is_recorded(tmp_path: Path) -> None:
    for number in range(400):
        (tmp_path / f"package_{number:03d}" / "inner").mkdir(parents=True)
        (tmp_path / f"package_{number:03d}" / "inner" / "a.py").touch()
    (tmp_path / ".amlignore").write_text("*\n!x/\n")
    with job_files.find({"command": "ls", "code": "."}, tmp_path).with_code() as ready:
        recorded = ready.document["properties"]["torchyard.left_out"]
    assert len(recorded) <= 4000
    assert "package_000/" in json.loads(recorded)
