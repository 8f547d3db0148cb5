"""Which local things of a job document are looked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.client.snapshots import job_files

MISSING = {"code": "./no-such-folder", "inputs": {"data": {"path": "./nothing"}}}


@pytest.mark.parametrize(
    "kind", [{"type": "pipeline"}, {"type": "finetuning"}, {"jobs": {}}, {"task": {}}]
)
def test_a_job_of_another_type_is_left_to_the_server(tmp_path: Path, kind: dict[str, Any]) -> None:
    files = job_files.find({**MISSING, **kind}, tmp_path)
    assert files.document == {**MISSING, **kind} and files.paths == ()


@pytest.mark.parametrize("kind", [{}, {"type": "command"}, {"type": "Command"}])
def test_a_missing_path_of_a_command_job_is_named(tmp_path: Path, kind: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match="does not exist"):
        job_files.find({"command": "ls", **MISSING, **kind}, tmp_path)
