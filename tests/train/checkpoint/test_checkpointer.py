"""Saving and loading as users call them, with a writer in a process of its own."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from torchyard.train import Loop
from torchyard.train.checkpoint import (
    Checkpointer,
    CheckpointError,
    NonFiniteState,
    folders,
    resumption,
)
from torchyard.train.checkpoint.checkpointer import default_folder
from train.checkpoint.saving import save, weights

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkpointer]:
    """Of one writer for several tests: its start takes seconds."""
    checkpointer = Checkpointer(tmp_path_factory.mktemp("checkpoints"), keep_last=2)
    yield checkpointer
    checkpointer.close()


def test_what_changes_after_save_returned_is_not_in_the_checkpoint(running: Checkpointer) -> None:
    state = weights()
    pending = running.save(1, state)
    state["model"]["weight"].zero_()
    assert running.load(step=None) is not None
    assert pending.done() and pending.wait().name == "step-00000001"
    loaded = running.load(step=1)
    assert loaded is not None
    assert torch.equal(loaded[1]["model"]["weight"], weights()["model"]["weight"])


def test_the_last_of_several_saves_of_one_step_is_kept(running: Checkpointer) -> None:
    for value in (1.0, 2.0, 3.0):
        running.save(1, {"weight": torch.full((1,), value)})
    loaded = running.load(step=1)
    assert loaded is not None and loaded[1]["weight"].item() == 3.0


def test_older_ones_are_deleted_by_the_rule_and_one_by_hand(running: Checkpointer) -> None:
    for step in (2, 3, 4):
        running.save(step, weights())
    running.wait(60)
    assert [info.step for info in running.list()] == [3, 4]
    running.delete(4)
    assert running.latest() == 3
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 4 .*\n.*there are: 3"):
        running.delete(4)
    with pytest.raises(CheckpointError, match="no checkpoint of step 9"):
        running.load(step=9)


def test_a_save_is_durable_where_an_older_one_can_not_be_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".deleted-step-00000001").touch()  # where it would be moved to
    checkpointer = Checkpointer(tmp_path, keep_last=1)
    checkpointer.save(1, weights()).wait(120)
    with caplog.at_level(logging.WARNING):
        assert checkpointer.save(2, weights()).wait(120).name == "step-00000002"
        checkpointer.wait(60)
    assert "old checkpoints in" in caplog.text and "can't be deleted" in caplog.text
    assert [info.step for info in checkpointer.list()] == [1, 2]
    (tmp_path / ".deleted-step-00000001").unlink()
    checkpointer.save(3, weights())
    checkpointer.close()
    assert [info.step for info in checkpointer.list()] == [3]


def test_a_save_is_durable_where_an_older_one_can_not_be_ranked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = save(tmp_path, weights())
    folders.write_manifest(replace(first, metric="high"), first.path)  # type: ignore[arg-type]
    checkpointer = Checkpointer(tmp_path, keep_best=1)
    with caplog.at_level(logging.WARNING):
        assert checkpointer.save(2, weights(), metric=0.5).wait(120).name == "step-00000002"
        checkpointer.close()
    assert "can't be deleted" in caplog.text
    assert [info.step for info in checkpointer.list()] == [1, 2]


def test_a_writer_that_is_killed_is_replaced_and_its_copy_is_written(
    running: Checkpointer, caplog: pytest.LogCaptureFixture
) -> None:
    running.save(6, weights()).wait(120)
    pid = running._writer.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    pending = running.save(7, weights())
    os.kill(pid, signal.SIGKILL)
    with caplog.at_level(logging.WARNING):
        assert pending.wait(120).name == "step-00000007"
    assert "the process that writes checkpoints ended (-9); starting another" in caplog.text
    assert running._writer.pid != pid


def test_a_copy_that_was_complete_when_its_rank_died_is_made_durable(tmp_path: Path) -> None:
    script = """
        import os, signal, sys, torch
        from torchyard.train import checkpoint
        checkpoint.configure(sys.argv[1])
        checkpoint.save(1, {"a": torch.ones(1000)})
        os.kill(os.getpid(), signal.SIGKILL)
    """
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], timeout=100
    )
    assert process.returncode == -signal.SIGKILL
    # A writer of the same rank waits until that one has ended.
    with_next = Checkpointer(tmp_path)
    with_next.save(2, {"a": torch.ones(1000)}).wait(100)
    assert [info.step for info in with_next.list()] == [1, 2]
    with_next.close()


def test_a_second_training_in_the_same_folder_is_refused_by_name(running: Checkpointer) -> None:
    running.save(20, weights()).wait(60)
    second = Checkpointer(running.folder, timeout_s=1)
    with pytest.raises(CheckpointError, match="another process writes rank 0's checkpoints"):
        second.save(21, weights())
    second.close()


def test_without_memory_it_waits_until_the_checkpoint_is_durable_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpointer = Checkpointer(tmp_path, staging_bytes=10)
    with caplog.at_level(logging.WARNING):
        assert checkpointer.save(1, weights()).done()
        assert checkpointer.save(2, weights()).done()
    assert [info.step for info in checkpointer.list()] == [1, 2]
    assert caplog.text.count("written while training waits") == 1
    assert "`staging_bytes` allows 10" in caplog.text


def test_nan_is_refused_before_the_copy_if_that_was_asked_for(tmp_path: Path) -> None:
    checkpointer = Checkpointer(tmp_path, refuse_nan=True, staging_bytes=10)
    state = {"a": torch.ones(2), "b": {"c": torch.tensor([1.0, float("nan")])}, "d": 1}
    with pytest.raises(NonFiniteState, match=r"`?step 3.*: b\.c") as raised:
        checkpointer.save(3, state)
    assert raised.value.keys == ("b.c",)
    assert checkpointer.latest() is None
    state["b"]["c"].fill_(0)
    checkpointer.save(3, state)
    assert checkpointer.latest() == 3


def test_a_newest_checkpoint_that_is_damaged_gives_way_to_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, weights(), step=1)
    newest = save(tmp_path, weights(), step=2)
    (newest.path / "__0_0.distcp").write_bytes(b"cut off")
    checkpointer = Checkpointer(tmp_path)
    with caplog.at_level(logging.WARNING):
        loaded = checkpointer.load()
    assert loaded is not None and loaded[0] == 1
    assert "`__0_0.distcp` has 7 bytes instead of" in caplog.text
    with pytest.raises(CheckpointError, match="is damaged"):
        checkpointer.load(step=2)


def test_an_empty_folder_has_nothing_to_load(tmp_path: Path) -> None:
    checkpointer = Checkpointer(tmp_path / "none")
    assert checkpointer.load() is None
    assert checkpointer.latest() is None and checkpointer.list() == ()


@pytest.mark.parametrize("step", [-1, 1.5, True, "3"])
def test_a_step_that_is_none_is_named(tmp_path: Path, step: int) -> None:
    with pytest.raises(CheckpointError, match=r"`step` must be an integer >= 0"):
        Checkpointer(tmp_path).save(step, weights())
    with pytest.raises(CheckpointError, match=r"`step` must be an integer >= 0"):
        Checkpointer(tmp_path).load(step=step)


def test_what_can_not_be_pickled_is_named(running: Checkpointer) -> None:
    state = {"model": weights(), "data": {"lock": threading.Lock()}}
    with pytest.raises(CheckpointError, match=r"`data\.lock` can't be saved: cannot pickle"):
        running.save(1, state)
    assert running.save(30, weights()).wait().name == "step-00000030"


def test_a_file_where_the_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").touch()
    checkpointer = Checkpointer(tmp_path / "checkpoints")
    for look in (checkpointer.load, checkpointer.latest, checkpointer.list):
        with pytest.raises(CheckpointError, match=r"checkpoints, can't be read: Not a directory"):
            look()


def test_the_folder_is_in_the_outputs_of_a_job() -> None:
    assert default_folder({"AZUREML_OUTPUT_DIRECTORY": "/w/outputs"}) == Path(
        "/w/outputs/checkpoints"
    )
    assert default_folder({}) == Path("outputs/checkpoints")
    shared = {"AZUREML_OUTPUT_DIRECTORY": "/w/outputs", "TORCHYARD_CHECKPOINTS": "/node-0/all"}
    assert default_folder(shared) == Path("/node-0/all")


def test_the_platform_is_told_from_where_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "note.json"
    monkeypatch.setenv("TORCHYARD_RESUMED", str(note))
    monkeypatch.setattr(resumption, "_is_told", False)
    before = time.time_ns() // 1_000_000
    checkpointer = Checkpointer(tmp_path / "checkpoints")
    assert checkpointer.load() is None and not note.exists()
    checkpointer.save(3, weights()).wait()
    after = time.time_ns() // 1_000_000
    checkpointer.save(4, weights()).wait()
    checkpointer.load(step=3)
    content = json.loads(note.read_text())
    assert content["step"] == 3 and before <= content["saved_at"] <= after
    assert content["began_at"] == resumption._began_at <= before
    # A look at another one, such as the best at the end, changes nothing.
    note.unlink()
    checkpointer.load(step=4)
    assert not note.exists()
    monkeypatch.setattr(resumption, "_is_told", False)
    monkeypatch.setenv("TORCHYARD_RESUMED", str(tmp_path / "no" / "note"))
    checkpointer.load(step=4)
    checkpointer.close()


def test_a_second_attempt_without_a_checkpoint_says_that_it_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "note"
    monkeypatch.setenv("TORCHYARD_RESUMED", str(note))
    monkeypatch.setattr(resumption, "_is_told", False)
    for attempt, is_told in ((None, False), ("1", False), ("2", True)):
        if attempt is not None:
            monkeypatch.setenv("TORCHYARD_ATTEMPT_NUMBER", attempt)
        loop = Loop({"model": torch.nn.Linear(1, 1)}, save_every=1, folder=tmp_path / "none")
        loop.checkpointer.close()
        assert note.exists() is is_told
    content = json.loads(note.read_text())
    assert content == {"step": 0, "saved_at": 0, "began_at": resumption._began_at}
