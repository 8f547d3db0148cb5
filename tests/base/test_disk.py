"""What a full disk is called, without one."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from torchyard.base import disk, files, postgres
from torchyard.base.errors import DiskFailed, DiskFull, from_answer


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_the_folder_is_named_and_nothing_half_is_left(tmp_path: Path, number: int) -> None:
    (tmp_path / "server.id").touch()
    target = tmp_path / "blobs" / "ab" / "abc"
    with (
        pytest.raises(DiskFull, match="no space left on `blobs`"),
        files.write_atomically(target) as writing,
    ):
        writing.write(b"x")
        raise OSError(number, "No space left on device")
    assert list(target.parent.iterdir()) == []


def test_a_disk_that_fails(tmp_path: Path) -> None:
    with pytest.raises(DiskFailed, match="the disk of `logs` fails: Input/output error"):
        with disk.writing(tmp_path / "logs" / "x"):
            raise OSError(errno.EIO, "Input/output error")
    with pytest.raises(FileNotFoundError), disk.writing(tmp_path):
        raise FileNotFoundError


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("database or disk is full", "disk_full"),
        ("disk I/O error", "disk_failed"),
        ("database is locked", "database_unreachable"),
    ],
)
def test_what_sqlite_says(message: str, code: str) -> None:
    error = OperationalError("INSERT", {}, sqlite3.OperationalError(message))
    assert postgres.is_away(error)
    assert postgres.trouble(error).code == code


def test_over_http() -> None:
    error = disk.full("`blobs`")
    assert error.http_status == 507
    assert isinstance(from_answer(507, error.to_json()["error"]), DiskFull)
