"""The server's log stays within its bounds, however many write it and whenever they are killed."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from eventually import eventually

_WRITER = """
import logging, os, sys
from pathlib import Path
from torchyard.app import server_log
name, count = sys.argv[2], int(sys.argv[3])
handler = server_log.RotatingHandler(Path(sys.argv[1]), limit_bytes=5_000, count=3)
logging.getLogger().addHandler(handler)
for number in range(count):
    logging.warning("%s line %d %s", name, number, "x" * 40)
    if number % 50 == 0:
        print("raw output of", name, file=sys.stderr, flush=True)
"""


def _start(log: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    with open(log, "ab") as opened:
        command = [sys.executable, "-c", _WRITER, str(log), name, str(count)]
        return subprocess.Popen(command, stdout=opened, stderr=opened)


def _numbers(log: Path, name: str) -> list[int]:
    """Of the lines that are kept, oldest file first."""
    files = [log.with_name(f"{log.name}.{n}") for n in (3, 2, 1)]
    text = "".join(file.read_text() for file in [*files, log] if file.exists())
    lines = [line for line in text.splitlines() if f"{name} line" in line]
    return [int(line.split(f"{name} line ")[1].split()[0]) for line in lines]


def test_the_newest_lines_are_kept_in_order(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    assert _start(log, "a", 1000).wait(60) == 0
    sizes = {file.name: file.stat().st_size for file in tmp_path.glob("server.log*")}
    assert set(sizes) == {"server.log", "server.log.1", "server.log.2", "server.log.3"}
    assert all(size < 5_200 for size in sizes.values()), sizes
    numbers = _numbers(log, "a")
    assert numbers == list(range(numbers[0], 1000)) and len(numbers) > 100


def test_several_servers_write_to_the_same_successor(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    writers = [_start(log, name, 400) for name in "abc"]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    files = sorted(file.name for file in tmp_path.glob("server.log*"))
    assert files == ["server.log", "server.log.1", "server.log.2", "server.log.3"]
    for name in "abc":
        numbers = _numbers(log, name)
        # A line that is written while another server renames lands at the old file's end.
        assert sorted(numbers) == sorted(set(numbers))
    assert max(number for name in "abc" for number in _numbers(log, name)) == 399


def _state(log: Path) -> tuple[int, int] | None:
    with suppress(FileNotFoundError):
        return log.stat().st_ino, log.stat().st_size
    return None


@pytest.mark.slow
def test_a_killed_server_leaves_a_log_that_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    moments = random.Random(5)
    for _ in range(6):
        before = _state(log)
        writer = _start(log, "k", 1_000_000)
        eventually(lambda: _state(log) != before, "the first line")  # noqa: B023
        time.sleep(moments.random() * 0.3)
        writer.kill()
        writer.wait()
    assert _start(log, "last", 300).wait(60) == 0
    numbers = _numbers(log, "last")
    assert numbers == list(range(numbers[0], 300))
    assert all(file.stat().st_size < 5_300 for file in tmp_path.glob("server.log*"))


def test_output_elsewhere_is_left_alone(tmp_path: Path) -> None:
    log, elsewhere = tmp_path / "server.log", tmp_path / "journal"
    log.write_text("x" * 10_000)
    program = (
        "import sys; from pathlib import Path; from torchyard.app import server_log\n"
        "import logging\n"
        "server_log.rotate(Path(sys.argv[1])); logging.warning('here')\n"
    )
    with open(elsewhere, "wb") as opened:
        subprocess.run(
            [sys.executable, "-c", program, str(log)], stderr=opened, check=True, timeout=60
        )
    assert log.stat().st_size == 10_000 and "here" in elsewhere.read_text()
    assert not list(tmp_path.glob("server.log.*"))
