"""How the ranks' copies become one checkpoint, or none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from torchyard.train.checkpoint import CheckpointError, folders, loading
from torchyard.train.checkpoint.folders import CheckpointInfo
from train.checkpoint.saving import commit_of, run_together, save, weights

pytestmark = pytest.mark.torch


def test_two_ranks_with_the_same_state_write_each_tensor_once(tmp_path: Path) -> None:
    state = {"a": torch.rand(1000), "b": torch.rand(1000)}
    infos = run_together(*(commit_of(tmp_path, state, rank=rank, ranks=2) for rank in (0, 1)))
    assert infos[0] == infos[1]
    info = infos[0]
    assert isinstance(info, CheckpointInfo)
    sizes = [info.files[f"__{rank}_0.distcp"].size_bytes for rank in (0, 1)]
    assert 4000 < min(sizes) <= max(sizes) < 8000
    loaded = loading.load_all(info)
    assert all(torch.equal(loaded[name], state[name]) for name in state)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_the_folder_is_one_that_torch_reads(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    info = save(tmp_path, weights())
    state = {"model": {"weight": torch.zeros(3, 4)}}
    dcp.load(state, checkpoint_id=info.path, no_dist=True)
    assert torch.equal(state["model"]["weight"], weights()["model"]["weight"])


@pytest.mark.parametrize("missing", [0, 1])
def test_a_rank_that_does_not_save_is_named_in_time(tmp_path: Path, missing: int) -> None:
    commit = commit_of(tmp_path, weights(), step=7, rank=1 - missing, ranks=2, timeout_s=0.2)
    with pytest.raises(CheckpointError, match=rf"rank {missing} did not save step 7 within 0.2 s"):
        commit.run()
    assert folders.checkpoints(tmp_path) == {}


def test_every_rank_that_saved_is_told_who_did_not(tmp_path: Path) -> None:
    answers = run_together(
        *(commit_of(tmp_path, weights(), rank=rank, ranks=4, timeout_s=1) for rank in (0, 2))
    )
    assert ["ranks 1, 3 did not save step 1 within 1 s" in str(error) for error in answers] == [
        True,
        True,
    ]


def test_a_full_disk_is_told_and_tried_again(tmp_path: Path) -> None:
    first = tmp_path / ".saving-00000001-s-0-0"
    first.mkdir()
    (first / "__1_0.distcp").symlink_to("/dev/full")
    messages: list[str] = []
    infos = run_together(
        commit_of(tmp_path, weights(), rank=0, ranks=2),
        commit_of(tmp_path, weights(), rank=1, ranks=2, log=messages.append),
    )
    assert infos[0] == infos[1] and isinstance(infos[0], CheckpointInfo)
    assert messages == [
        "checkpoint of step 1 failed: rank 1: No space left on device; trying again in 1 s"
    ]
    folders.verify(infos[0])


def test_a_disk_that_is_full_for_the_metadata_is_given_back_what_was_written(
    tmp_path: Path,
) -> None:
    first = tmp_path / ".saving-00000001-s-0-0"
    first.mkdir()
    (first / ".metadata").symlink_to("/dev/full")
    info = save(tmp_path, weights())
    assert info.save_id.endswith("-1")
    assert not (first / "__0_0.distcp").exists()
    folders.verify(info)


def test_a_disk_that_stays_full_gives_up_this_checkpoint_and_no_other(tmp_path: Path) -> None:
    older = save(tmp_path, weights(), step=1)
    for attempt in range(3):
        folder = tmp_path / f".saving-00000002-s-0-{attempt}"
        folder.mkdir()
        (folder / "__0_0.distcp").symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match="No space left on device\nhint: free space"):
        save(tmp_path, weights(), step=2)
    assert list(folders.checkpoints(tmp_path).values()) == [older]
    assert sorted(folders.checkpoints(tmp_path)) == [1]
    save(tmp_path, weights(), step=3)
    assert sorted(folders.checkpoints(tmp_path)) == [1, 3]


def test_what_no_rank_copied_is_named(tmp_path: Path) -> None:
    state = {"a": torch.ones(3), "b": torch.ones(3)}
    with pytest.raises(CheckpointError, match="`b` was copied by no rank"):
        save(tmp_path, state, copied=(0,))


def test_a_writer_that_replaces_a_killed_one_finds_what_is_done(tmp_path: Path) -> None:
    info = save(tmp_path, weights())
    assert save(tmp_path, weights()) == info
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_a_step_that_is_saved_again_replaces_the_older_one_when_it_is_whole(
    tmp_path: Path,
) -> None:
    save(tmp_path, {"a": torch.zeros(2)})
    newer = save(tmp_path, {"a": torch.ones(2)}, session="t")
    assert folders.checkpoints(tmp_path) == {1: newer}
    folders.remove_stale(tmp_path, "t", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001.1"]


def test_a_commit_that_was_cut_off_between_its_renames_is_finished(tmp_path: Path) -> None:
    info = save(tmp_path, weights())
    (info.path / "manifest.json").rename(info.path / ".manifest.part")
    (info.path / "plan.0").write_bytes(b"")
    assert folders.checkpoints(tmp_path) == {}
    assert save(tmp_path, weights()) == info
    assert sorted(path.name for path in info.path.iterdir()) == [
        ".metadata",
        "__0_0.distcp",
        "manifest.json",
    ]
