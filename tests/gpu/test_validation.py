"""What a validation runs, on the device: each workload passes there, and says which GPU it had."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import torchyard.releases.workloads
from gpu import launching
from torchyard.environments.selftest import in_environment
from torchyard.releases.workload_list import ONE_NODE, TWO_NODES, WORKLOADS, Workload

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1800)]

# On one rank these have nothing to divide.
_DIVIDED = ("fsdp2", "tensor-parallel")


def validate(chosen: list[Workload], folder: Path, device: str, ranks: int, *words: str) -> None:
    programs = Path(torchyard.releases.workloads.__file__).parent
    package = shutil.copytree(programs, folder / "torchyard_validation")
    shutil.copy(Path(in_environment.__file__).with_name("answer.py"), package)
    workloads = [each.to_json() for each in chosen]
    settings = {"workloads": workloads, "requested": [], "variables": []}
    (package / "settings.json").write_text(json.dumps(settings))
    answers = launching.run("validate.py", ranks, device, str(folder), *words, timeout_s=1500)
    for hardware, _, *results in answers:
        assert bool(hardware["hardware"]["gpus"]) == (device == "cuda"), hardware
        assert [row["name"] for row in results] == [each.name for each in chosen]
    for row in answers[0][2:]:
        print(f"{row['name']:24}{row['status']:9}{row['seconds']:7.1f} s {said(row)}")
    failed = [row for _, _, *results in answers for row in results if row["status"] == "failed"]
    assert failed == []
    assert any(row["status"] == "passed" for row in answers[0][2:])


def said(row: dict[str, Any]) -> str:
    return row["reason"] or ", ".join(f"{name} {value}" for name, value in row["figures"].items())


def test_workloads_of_one_node(device: str, tmp_path: Path) -> None:
    chosen = [each for each in WORKLOADS if each.nodes == ONE_NODE]
    validate(chosen, tmp_path, device, 1, "--alone")


def test_workloads_of_several_ranks(device: str, ranks: int, tmp_path: Path) -> None:
    chosen = [each for each in WORKLOADS if each.nodes == TWO_NODES]
    if ranks == 1:
        chosen = [each for each in chosen if each.name not in _DIVIDED]
    validate(chosen, tmp_path, device, ranks)
