from __future__ import annotations

from pathlib import Path

import pytest

from torchyard.base.errors import InvalidInput
from torchyard.jobs.records.logs import LogFile, LogGap, Logs

PATH = "user_logs/std_log.txt"


def test_repeats_are_dropped_and_overlaps_cut(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    assert logs.append("w", "j", 1, PATH, 0, b"hello ") == 6
    assert logs.append("w", "j", 1, PATH, 0, b"hello ") == 6
    assert logs.append("w", "j", 1, PATH, 3, b"lo world\xff") == 12
    assert logs.file("w", "j", 1, PATH).read_bytes() == b"hello world\xff"


def test_a_gap_tells_where_to_go_on(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.append("w", "j", 1, PATH, 0, b"abc")
    with pytest.raises(LogGap) as gap:
        logs.append("w", "j", 1, PATH, 5, b"x")
    assert gap.value.size_bytes == 3


def test_lists_every_attempt(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    assert list(logs.list("w", "j")) == []
    logs.append("w", "j", 2, PATH, 0, b"b")
    logs.append("w", "j", 10, PATH, 0, b"")
    assert list(logs.list("w", "j")) == [LogFile(2, PATH, 1), LogFile(10, PATH, 0)]


def test_a_log_cannot_leave_its_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        Logs(tmp_path).append("w", "j", 1, "../../x", 0, b"x")
