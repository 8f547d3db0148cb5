"""Ranks of several machines save without a folder that all of them see."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import TCPStore

from torchyard.train.checkpoint import CheckpointError, folders, loading, rendezvous
from torchyard.train.checkpoint.folders import CheckpointInfo
from torchyard.train.checkpoint.rendezvous import StoreAddress
from train import training_ranks
from train.checkpoint.saving import commit_of, run_together

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
STATE: dict[str, Any] = {"a": torch.rand(1000), "b": torch.rand(1000), "c": "text"}


@pytest.fixture
def store() -> Iterator[Any]:
    yield TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)


def part(folder: Path, rank: int, store: Any, **changed: Any) -> Any:
    """What one rank saves to its own machine's folder."""
    address = StoreAddress("127.0.0.1", store.port)
    return commit_of(
        folder / str(rank), STATE, rank=rank, ranks=2, store=address, leader=rank, leaders=(0, 1),
        **changed,
    )  # fmt: skip


def test_each_machine_has_its_part_and_all_together_are_whole(tmp_path: Path, store: Any) -> None:
    first, second = run_together(part(tmp_path, 0, store), part(tmp_path, 1, store))
    assert isinstance(first, CheckpointInfo) and isinstance(second, CheckpointInfo)
    assert first.files == second.files and first.path.name == second.path.name
    assert (first.path / "__0_0.distcp").exists() and not (first.path / "__1_0.distcp").exists()
    assert (second.path / "__1_0.distcp").exists()
    with pytest.raises(CheckpointError, match=r"`__1_0.distcp` can't be read"):
        folders.verify(first)
    # As the next attempt finds them: every node has what all nodes delivered.
    shutil.copytree(second.path, first.path, dirs_exist_ok=True)
    folders.verify(first)
    loaded = loading.load_all(first)
    assert all(torch.equal(loaded[name], STATE[name]) for name in "ab") and loaded["c"] == "text"
    assert sorted(path.name for path in (tmp_path / "0").iterdir()) == [first.path.name]


def test_a_machine_that_does_not_save_is_named_in_time(tmp_path: Path, store: Any) -> None:
    with pytest.raises(CheckpointError, match=r"rank 1 did not save step 1 within 0.3 s"):
        part(tmp_path, 0, store, timeout_s=0.3).run()
    assert folders.checkpoints(tmp_path / "0") == {}


def test_a_store_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_CONNECT_S", 0.5)

    class Gone:
        port = 9  # nobody listens

    with pytest.raises(CheckpointError, match="the process group's store does not answer"):
        part(tmp_path, 0, Gone, timeout_s=1).run()


def test_ranks_find_out_that_they_share_no_folder(tmp_path: Path) -> None:
    answers = training_ranks.run("train.rank_functions:save_apart", 3, str(tmp_path))
    assert [answer["leader"] for answer in answers] == [0, 0, 2]
    assert answers[0]["leaders"] == [0, 2]
    assert "the job finds it whole when it is tried again" in answers[0]["same_run"]
    first, second = tmp_path / "machine-0", tmp_path / "machine-1"
    assert not list(first.rglob(".rank-*")) and not list(first.rglob(".saving-*"))
    for source, target in ((first, second), (second, first)):
        shutil.copytree(source, target, dirs_exist_ok=True)
    answers = training_ranks.run("train.rank_functions:load_apart", 3, str(tmp_path))
    assert answers == [[5, 1.5]] * 3
    # A machine was lost before its part was delivered: the one before is taken.
    (second / "checkpoints" / "step-00000005" / "__2_0.distcp").unlink()
    (first / "checkpoints" / "step-00000005" / "__2_0.distcp").unlink()
    answers = training_ranks.run("train.rank_functions:load_apart", 3, str(tmp_path))
    assert answers == [[4, 0.5]] * 3
