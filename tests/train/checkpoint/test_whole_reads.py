"""Tensors that are read straight into the state, and those that can't be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader

from torchyard.train.checkpoint import loading
from torchyard.train.checkpoint.whole_reads import read_whole
from train.checkpoint.saving import save

pytestmark = pytest.mark.torch

LENGTH = 1 << 21


def _left(folder: Path, target: dict[str, Any]) -> list[str]:
    """The names of what `read_whole` has left to others."""
    reader, planner = FileSystemReader(folder), DefaultLoadPlanner()
    metadata = reader.read_metadata()
    planner.set_up_planner(target, metadata, True)
    items = planner.create_local_plan().items
    left = read_whole(folder, metadata.storage_data, items, planner)
    return sorted(item.dest_index.fqn for item in left)


def test_tensors_of_every_kind_get_their_own_bytes(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(2, LENGTH // 2, generator=generator)
    kinds = {
        "float32": numbers, "bfloat16": numbers.bfloat16(), "complex64": numbers.cfloat(),
        "int64": (1000 * numbers).long(), "bool": numbers > 0, "transposed": numbers.T,
        "part": torch.cat([numbers, numbers])[1:3],
    }  # fmt: skip
    info = save(tmp_path, kinds)
    target = {name: torch.empty(kind.shape, dtype=kind.dtype) for name, kind in kinds.items()}
    assert _left(info.path, target) == []
    assert all(torch.equal(target[name], kind) for name, kind in kinds.items())


def test_what_means_other_bytes_in_the_state_is_converted(tmp_path: Path) -> None:
    numbers = torch.arange(LENGTH, dtype=torch.float32).reshape(2, -1)
    names = ["conjugate", "half", "small", "transposed"]
    saved = {
        "conjugate": torch.complex(numbers, numbers).conj(), "half": numbers, "plain": numbers,
        "small": numbers[0, :9], "transposed": numbers, "step": 5,
    }  # fmt: skip
    info = save(tmp_path, saved)

    def empty() -> dict[str, Any]:
        return {
            "conjugate": torch.empty(numbers.shape, dtype=torch.complex64),
            "half": torch.empty(numbers.shape, dtype=torch.float64),
            "plain": torch.empty(numbers.shape), "small": torch.empty(9),
            "transposed": torch.empty(numbers.T.shape).T, "step": 0,
        }  # fmt: skip

    assert _left(info.path, empty()) == sorted([*names, "step"])
    target = empty()
    assert loading.load_into(target, info, strict=True)["step"] == 5
    assert all(torch.equal(target[name], saved[name]) for name in (*names[:1], *names[2:], "plain"))
    assert torch.equal(target["half"], numbers.double())


def test_a_file_that_ends_early_is_left_to_the_reader_that_says_so(tmp_path: Path) -> None:
    info = save(tmp_path, {"weight": torch.ones(LENGTH)})
    (name,) = (name for name in info.files if name.endswith(".distcp"))
    content = (info.path / name).read_bytes()
    (info.path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(RuntimeError):
        loading.load_into({"weight": torch.zeros(LENGTH)}, info, strict=True)
