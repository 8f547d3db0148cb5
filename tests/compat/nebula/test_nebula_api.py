"""Scripts' calls of nebulaml in one process."""

from __future__ import annotations

import csv
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from eventually import eventually
from torchyard.train.checkpoint.errors import CheckpointError

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]


def test_the_newest_checkpoint_of_the_documents_example_loads(nm: Any, tmp_path: Path) -> None:
    path = (str(tmp_path / "test"),)  # as the example's comma makes it
    nm.init(path, persistent_time_interval=2)
    assert nm.get_latest_checkpoint() is None and nm.list_checkpoints() == []
    weights = torch.arange(6.0)
    for epoch in range(3):
        checkpoint = nm.Checkpoint()
        checkpoint.save("checkpoint", {"epoch": epoch, "weights": weights})
        weights += 1  # after the copy
    latest = nm.get_latest_checkpoint()
    loaded = latest.load("checkpoint")
    assert loaded["epoch"] == 2 and torch.equal(loaded["weights"], torch.arange(6.0) + 2)
    file = nm.get_latest_checkpoint_path("checkpoint", path)
    assert torch.load(file, weights_only=False)["epoch"] == 2
    assert [saved.load("checkpoint")["epoch"] for saved in nm.list_checkpoints()][-1] == 2


def test_a_counted_checkpoint_is_there_with_its_last_object(nm: Any, tmp_path: Path) -> None:
    nm.init(str(tmp_path), persistent_time_interval=0)
    checkpoint = nm.Checkpoint("step-1", 2)
    checkpoint.save("model", [1])
    assert nm.get_checkpoint(tag="step-1") is None
    other = nm.Checkpoint("step-2", 2)
    other.save("model", [2])
    other.save("optimizer", [3])
    assert [saved.tag for saved in nm.list_checkpoints()] == ["step-2"]
    assert nm.get_checkpoint(tag="step-2", persist_path=str(tmp_path)).load("optimizer") == [3]


def test_a_checkpoint_that_is_committed_is_whole(nm: Any, tmp_path: Path) -> None:
    import torch_nebula

    torch_nebula.init(
        persistent_storage_path=str(tmp_path), persistent_time_interval=0,
        num_of_version_in_retention=1,
    )  # fmt: skip
    checkpoint = torch_nebula.Checkpoint("global_step10", -2)
    checkpoint.save("model.pt", {"w": torch.ones(3)})
    assert checkpoint.commit() is True
    latest = torch_nebula.get_latest_checkpoint(persist_path=str(tmp_path))
    assert latest.tag == "global_step10"
    assert torch.equal(latest.load("model.pt", map_location="cpu")["w"], torch.ones(3))
    with pytest.raises(CheckpointError, match="takes no more objects"):
        checkpoint.save("late", 1)
    with pytest.raises(CheckpointError, match=r"no `missing`.*\n.*model\.pt"):
        latest.load("missing")


def test_between_two_intervals_the_newest_stay_in_memory(nm: Any, tmp_path: Path) -> None:
    nm.init(str(tmp_path / "store"), 3600, num_of_version_in_retention=2)
    for step in range(6):
        nm.Checkpoint(f"step-{step}", 1).save("model", torch.full((1000,), step))
    tags = [saved.tag for saved in nm.list_checkpoints()]
    # The first was due; of the others two stayed until the script asked.
    assert tags == ["step-0", "step-4", "step-5"]
    (table,) = (tmp_path / "outputs" / "Nebula").iterdir()
    assert table.name == "checkpointHistories.csv"
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert sorted(row["tag"] for row in rows) == tags
    assert all(float(row["duration_s"]) > 0 and int(row["size_bytes"]) > 8000 for row in rows)
    assert all(float(row["throughput_mb_per_s"]) > 0 for row in rows)


def test_a_tag_that_is_saved_again_has_the_new_objects_only(nm: Any, tmp_path: Path) -> None:
    nm.init(str(tmp_path), 0)
    for value in (1, 2):
        nm.Checkpoint("last", 1).save("model", value)
    assert [saved.load("model") for saved in nm.list_checkpoints()] == [2]
    assert len(list((tmp_path / "last").iterdir())) == 1


def test_a_killed_writer_is_replaced_and_loses_nothing(
    nm: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from nebulaml import checkpoints

    nm.init(str(tmp_path), 3600, 4)
    for step in range(4):
        nm.Checkpoint(f"step-{step}", 1).save("model", step)
        if step == 2:
            os.kill(checkpoints._require().writer.pid, signal.SIGKILL)
    assert [saved.load("model") for saved in nm.list_checkpoints()] == [0, 1, 2, 3]
    assert "starting another" in caplog.text


def test_memory_for_copies_is_a_share_of_the_nodes_limit(
    fresh_nm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NEBULA_MEMORY_BUFFER_SIZE", "200000")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    nm = fresh_nm
    nm.init(str(tmp_path), 3600, 10)
    for step in range(4):  # each takes more than half of 25,000 bytes
        nm.Checkpoint(f"step-{step}", 1).save("model", torch.full((2000,), step))
    assert caplog.text == ""
    nm.Checkpoint("large", 1).save("model", torch.zeros(100_000))
    assert "there is no memory for a copy of `model`" in caplog.text
    tags = [saved.tag for saved in nm.list_checkpoints()]
    assert tags == ["step-0", "step-1", "step-2", "step-3", "large"]


def test_a_disk_that_is_full_while_training_waits_is_what_is_raised(
    fresh_nm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEBULA_MEMORY_BUFFER_SIZE", "1000")
    fresh_nm.init(str(tmp_path))
    checkpoint = fresh_nm.Checkpoint("step-1", 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(CheckpointError, match=r"can't be written to .*: File too large"):
            checkpoint.save("model", torch.zeros(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert fresh_nm.list_checkpoints() == []
    checkpoint.save("model", torch.zeros(1 << 20))
    assert [saved.tag for saved in fresh_nm.list_checkpoints()] == ["step-1"]


def test_a_disk_that_fails_is_told_and_nothing_half_is_found(
    nm: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nm.init(str(tmp_path), 0)
    checkpoint = nm.Checkpoint("broken", -2)
    checkpoint.save("model", 1)
    version = checkpoint._opened.version
    (version.folder / "second").mkdir()  # an object can't be renamed to a folder
    (version.folder / "second" / "file").touch()
    checkpoint.save("second", 2)
    checkpoint.commit()
    assert nm.list_checkpoints() == []
    assert "`second` of checkpoint `broken` can't be written" in caplog.text


def test_a_changed_file_is_not_loaded(nm: Any, tmp_path: Path) -> None:
    nm.init(str(tmp_path), 0)
    nm.Checkpoint("step-1", 1).save("model", torch.zeros(100))
    file = Path(nm.get_latest_checkpoint_path("model"))
    content = bytearray(file.read_bytes())
    content[-200] ^= 1
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match="is damaged: `model`"):
        nm.get_latest_checkpoint().load("model")
    file.write_bytes(content[:100])
    assert nm.get_latest_checkpoint() is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"persistent_storage_path": None}, "persistent_storage_path"),
        ({"persistent_time_interval": -1}, "persistent_time_interval"),
        ({"persistent_time_interval": "2s"}, "persistent_time_interval"),
        ({"num_of_version_in_retention": 0}, "num_of_version_in_retention"),
    ],
)
def test_arguments_of_init_are_refused_by_name(
    nm: Any, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=f"`{message}`"):
        nm.init(**{"persistent_storage_path": str(tmp_path), **arguments})


def test_calls_that_cannot_work_say_what_to_do(
    fresh_nm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nm = fresh_nm
    with pytest.raises(CheckpointError, match=r"call `nebulaml\.init"):
        nm.Checkpoint()
    with pytest.raises(AttributeError, match="nebulaml has no `flush_persistence`"):
        _ = nm.flush_persistence
    monkeypatch.setenv("NEBULA_MEMORY_BUFFER_SIZE", "200MB")
    with pytest.raises(CheckpointError, match=r"NEBULA_MEMORY_BUFFER_SIZE.*'200MB'"):
        nm.init(str(tmp_path))
    monkeypatch.delenv("NEBULA_MEMORY_BUFFER_SIZE")
    nm.init(str(tmp_path))
    for number in (0, -3, "two", True):
        with pytest.raises(CheckpointError, match="num_of_files"):
            nm.Checkpoint("step", number)


def test_a_checkpoint_is_written_when_its_interval_is_over(nm: Any, tmp_path: Path) -> None:
    from nebulaml import versions

    nm.init(str(tmp_path), 0.5)
    for step in range(2):
        checkpoint = nm.Checkpoint(f"step-{step}", -2)
        checkpoint.save("model", step)
        checkpoint.commit()
    eventually(lambda: len(versions.whole_versions(tmp_path)) >= 2, "two whole versions")
    assert len(versions.whole_versions(tmp_path)) == 2
