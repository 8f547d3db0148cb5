"""Locks of files, among descriptors as among processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchyard.shared import locks


def test_a_lock_has_one_holder_and_ends_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    first, second = locks.open_lock(file), locks.open_lock(file)
    assert locks.try_lock(first)
    assert not locks.try_lock(second)
    os.close(first)
    assert locks.try_lock(second)
    os.close(second)
    assert file.exists()


def test_a_shared_lock_has_many_holders_and_no_sole_one(tmp_path: Path) -> None:
    descriptors = [locks.open_lock(tmp_path / "lock") for _ in range(3)]
    assert locks.try_lock(descriptors[0], shared=True)
    assert locks.try_lock(descriptors[1], shared=True)
    assert not locks.try_lock(descriptors[2])
    for descriptor in descriptors:
        os.close(descriptor)


def test_who_waits_may_give_up(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with locks.hold(file) as is_held:
        assert is_held
        with locks.held_if_free(file) as is_held_again:
            assert not is_held_again
        answers = iter([False, True])
        with locks.hold(file, canceled=lambda: next(answers)) as is_held_later:
            assert not is_held_later
    with locks.held_if_free(file) as is_free:
        assert is_free


def test_a_lock_shared_until_exit_ends_with_its_process(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    file.touch()
    script = (
        "import sys, pathlib\n"
        "from torchyard.shared import locks\n"
        "locks.share_until_exit(pathlib.Path(sys.argv[1]))\n"
        "print('shared', flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == b"shared\n"
    with locks.held_if_free(file) as is_free:
        assert not is_free
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    deadline = time.monotonic() + 60
    with locks.hold(file, canceled=lambda: time.monotonic() > deadline) as is_held:
        assert is_held


def test_a_missing_file_can_not_be_shared(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        locks.share_until_exit(tmp_path / "lock")
