"""Files of collected data: whole lines, limits, and what a killed writer leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from torchyard.endpoints.router import collected_files
from torchyard.endpoints.router.collected_files import FORMS, CollectedFiles

AT = datetime(2026, 11, 24, 5, 59, tzinfo=timezone.utc)
LINE = b'{"data": 1}\n'
MOST = 1 << 20


def below(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*.jsonl"))


@pytest.mark.parametrize(
    ("rolling", "file"),
    [
        ("minute", "2026/11/24/05/59.jsonl"),
        ("hour", "2026/11/24/05.jsonl"),
        ("day", "2026/11/24.jsonl"),
        ("month", "2026/11.jsonl"),
        ("year", "2026.jsonl"),
    ],
)
def test_a_file_for_each_length_of_time(tmp_path: Path, rolling: str, file: str) -> None:
    files = CollectedFiles(tmp_path)
    for _ in range(2):
        files.append("model_inputs", AT, LINE, rolling, MOST)
    assert below(tmp_path) == [f"model_inputs/{file}"]
    assert (tmp_path / "model_inputs" / file).read_bytes() == 2 * LINE
    assert set(FORMS) == {"minute", "hour", "day", "month", "year"}


def test_a_line_that_was_cut_stays_a_line_of_its_own(tmp_path: Path) -> None:
    files = CollectedFiles(tmp_path)
    files.append("a", AT, LINE, "hour", MOST)
    (file,) = tmp_path.rglob("*.jsonl")
    with open(file, "ab") as opened:
        opened.write(b'{"data": ')
    files.append("a", AT, LINE, "hour", MOST)
    assert file.read_bytes() == LINE + b'{"data": \n' + LINE


def test_the_oldest_hours_of_all_collections_go(tmp_path: Path) -> None:
    files = CollectedFiles(tmp_path)
    for hour in range(30):
        for name in ("model_inputs", "model_outputs"):
            files.append(name, AT + timedelta(hours=hour), LINE * 10, "hour", 1000)
        size_bytes = sum(each.stat().st_size for each in tmp_path.rglob("*.jsonl"))
        assert size_bytes <= 1000
    newest = (AT + timedelta(hours=29)).strftime("%Y/%m/%d/%H.jsonl")
    left = below(tmp_path)
    assert {f"model_inputs/{newest}", f"model_outputs/{newest}"} <= set(left)
    assert not any("2026/11/24/05" in each for each in left)
    assert not (tmp_path / "model_inputs/2026/11/24").exists()


def test_an_hour_over_the_limit_is_dropped_and_not_deleted(tmp_path: Path) -> None:
    files = CollectedFiles(tmp_path)
    for _ in range(8):
        files.append("a", AT, LINE, "hour", 100)
    with pytest.raises(OSError, match="limit"):
        files.append("a", AT, LINE, "hour", 100)
    assert (tmp_path / "a/2026/11/24/05.jsonl").read_bytes() == LINE * 8
    files.append("a", AT + timedelta(hours=1), LINE, "hour", 100)
    assert below(tmp_path) == ["a/2026/11/24/06.jsonl"]


def test_files_of_before_count(tmp_path: Path) -> None:
    CollectedFiles(tmp_path).append("a", AT, LINE * 8, "hour", MOST)
    files = CollectedFiles(tmp_path)
    files.append("a", AT + timedelta(hours=1), LINE, "hour", 100)
    assert below(tmp_path) == ["a/2026/11/24/06.jsonl"]


def test_others_lines_count_after_a_while(tmp_path: Path) -> None:
    now_s = 0.0
    files = CollectedFiles(tmp_path, lambda: now_s)
    files.append("a", AT, LINE, "hour", 100)
    CollectedFiles(tmp_path).append("a", AT, LINE * 7, "hour", 1000)
    now_s = 700.0
    with pytest.raises(OSError, match="limit"):
        files.append("a", AT, LINE, "hour", 100)


def test_the_last_space_of_the_disk_stays_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collected_files, "LEAST_FREE_BYTES", 1 << 60)
    with pytest.raises(OSError, match="too little space"):
        CollectedFiles(tmp_path / "new").append("a", AT, LINE, "hour", MOST)
    assert not (tmp_path / "new").exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "other"
    target.write_text("")
    file = tmp_path / "kept" / "a" / "2026.jsonl"
    file.parent.mkdir(parents=True)
    file.symlink_to(target)
    with pytest.raises(OSError):
        CollectedFiles(tmp_path / "kept").append("a", AT, LINE, "year", MOST)
    assert target.read_text() == ""


_WRITER = """
import sys
from datetime import datetime, timezone
from pathlib import Path
from torchyard.endpoints.router.collected_files import CollectedFiles
files = CollectedFiles(Path(sys.argv[1]))
at = datetime(2026, 11, 24, tzinfo=timezone.utc)
number = 0
while True:
    files.append("a", at, b'{"n": %d, "x": "%s"}\\n' % (number, b"x" * 5000), "hour", 1 << 30)
    number += 1
    print(number, flush=True)
"""


def test_what_was_acknowledged_is_there_after_kills(tmp_path: Path) -> None:
    acknowledged = []
    for rounds in (50, 1, 200):
        words = [sys.executable, "-c", _WRITER, str(tmp_path)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(rounds):
                last = int(process.stdout.readline())
            os.kill(process.pid, signal.SIGKILL)
        acknowledged.append(last)
    (file,) = tmp_path.rglob("*.jsonl")
    numbers = []
    for line in file.read_text().splitlines():
        try:
            numbers.append(json.loads(line)["n"])
        except ValueError:
            pass
    starts = [index for index, number in enumerate(numbers) if number == 0]
    assert len(starts) == 3
    for start, end, last in zip(starts, [*starts[1:], len(numbers)], acknowledged, strict=True):
        assert numbers[start:end] == list(range(end - start)) and end - start >= last
