"""States of several ranks, loaded on another number of ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from train import training_ranks

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]


@pytest.mark.parametrize(
    ("kind", "saved_on", "loaded_on"),
    [("ddp", 4, (2, 1)), ("fsdp2", 4, (2, 1)), ("tensor-parallel", 2, (1,))],
)
def test_what_ranks_saved_loads_on_another_number_of_ranks(
    tmp_path: Path, kind: str, saved_on: int, loaded_on: tuple[int, ...]
) -> None:
    saved = training_ranks.run("train.rank_functions:save", saved_on, kind, str(tmp_path))
    assert len(set(saved)) == 1
    for ranks in loaded_on:
        loaded = training_ranks.run("train.rank_functions:load", ranks, kind, str(tmp_path))
        assert loaded == [[saved[0], 3]] * ranks


def test_of_a_ddp_state_each_rank_writes_a_part_and_nothing_is_written_twice(
    tmp_path: Path,
) -> None:
    training_ranks.run("train.rank_functions:save", 2, "ddp", str(tmp_path))
    training_ranks.run("train.rank_functions:save", 1, "ddp", str(tmp_path / "alone"))

    def sizes(folder: Path) -> dict[str, int]:
        files = json.loads((folder / "step-00000003/manifest.json").read_text())["checkpoint"]
        return {
            name: file["size_bytes"] for name, file in files["files"].items() if name != ".metadata"
        }

    shares, total = sizes(tmp_path), sum(sizes(tmp_path / "alone").values())
    assert set(shares) == {"__0_0.distcp", "__1_0.distcp"}
    assert abs(sum(shares.values()) - total) < 0.01 * total
    assert min(shares.values()) > 0.2 * total


def test_a_rank_that_does_not_save_is_named_and_the_next_checkpoint_is_whole(
    tmp_path: Path,
) -> None:
    answers = training_ranks.run("train.rank_functions:one_saves_alone", 2, str(tmp_path))
    assert answers[0].endswith("rank 1 did not save step 2 within 15 s")
    assert sorted(path.name for path in tmp_path.glob("step-*")) == [
        "step-00000001",
        "step-00000003",
    ]


def test_all_ranks_stop_at_the_step_at_which_one_was_told() -> None:
    assert training_ranks.run("train.rank_functions:told_to_stop", 3, 4) == [[4, 4]] * 3
