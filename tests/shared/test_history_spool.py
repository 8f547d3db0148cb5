"""The spool of run history on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torchyard.shared.history_spool import HistorySpool

Open = Callable[..., HistorySpool]


def never() -> bool:
    return False


@pytest.fixture
def spool_in() -> Iterator[Open]:
    """Open a spool; each is closed at the end."""
    made: list[HistorySpool] = []

    def open_one(folder: Path, **settings: int) -> HistorySpool:
        made.append(HistorySpool(folder, **settings))
        return made[-1]

    yield open_one
    for spool in made:
        spool.close()


def lines(start: int, count: int) -> list[bytes]:
    return [b'{"n":%d}' % number for number in range(start, start + count)]


def test_records_are_numbered_and_delivered_in_order(tmp_path: Path, spool_in: Open) -> None:
    spool = spool_in(tmp_path)
    assert spool.append(lines(0, 3)) == 3
    assert spool.append(lines(3, 2)) == 5

    assert spool.read(2, 10_000) == (0, lines(0, 2))
    assert spool.read(2, 10_000) == (0, lines(0, 2)), "not delivered, so read again"
    spool.delivered(2)
    assert spool.read(100, 17) == (2, lines(2, 3))
    spool.delivered(4)
    assert not spool.wait_delivered(5, 0.01, never)
    assert spool.read(100, 10_000) == (4, lines(4, 1))
    spool.delivered(5)
    assert spool.wait_delivered(5, 0.01, never)
    assert not spool.wait_for_records(0.01, never)
    assert spool.read(100, 10_000) == (5, [])


def test_a_restart_goes_on_where_it_was(tmp_path: Path, spool_in: Open) -> None:
    first = spool_in(tmp_path)
    first.append(lines(0, 10))
    first.read(4, 10_000)
    first.delivered(3)

    second = spool_in(tmp_path)
    assert second.end == 10
    assert second.read(2, 10_000) == (3, lines(3, 2))
    second.append(lines(10, 1))
    second.delivered(9)
    assert spool_in(tmp_path).read(100, 10_000) == (9, lines(9, 2))


def test_what_is_still_here_can_be_delivered_again(tmp_path: Path, spool_in: Open) -> None:
    spool = spool_in(tmp_path, file_bytes=100)
    for start in range(0, 60, 20):
        spool.append(lines(start, 20))
    spool.delivered(45)
    spool.read(1, 1)
    assert (spool.first, spool.end, spool.left) == (40, 60, 15)
    spool.go_back(50)
    assert spool.left == 15, "that is not a way back"
    spool.go_back(42)
    assert spool.read(100, 10_000) == (42, lines(42, 18))
    spool.go_back(7)
    assert spool.read(3, 10_000) == (40, lines(40, 3)), "what is gone stays gone"
    assert spool_in(tmp_path).left == 20


def test_a_cursor_that_was_lost_means_to_begin_again(tmp_path: Path, spool_in: Open) -> None:
    spool = spool_in(tmp_path)
    spool.append(lines(0, 3))
    spool.delivered(2)
    (tmp_path / "history.cursor").write_text("")
    assert spool_in(tmp_path).read(100, 10_000) == (0, lines(0, 3))


def test_half_a_line_is_cut_off(tmp_path: Path, spool_in: Open) -> None:
    spool_in(tmp_path).append(lines(0, 2))
    with open(tmp_path / "history-000000000000.ndjson", "ab") as file:
        file.write(b'{"n":')

    spool = spool_in(tmp_path)
    assert spool.append(lines(2, 1)) == 3
    assert spool.read(100, 10_000) == (0, lines(0, 3))


def test_files_go_when_they_are_delivered(tmp_path: Path, spool_in: Open) -> None:
    spool = spool_in(tmp_path, file_bytes=50)
    for start in range(0, 100, 10):
        spool.append(lines(start, 10))
    assert len(list(tmp_path.glob("*.ndjson"))) == 10

    records: list[bytes] = []
    while spool.wait_for_records(0.0, never):
        seq, some = spool.read(7, 10_000)
        assert seq == len(records)
        records += some
        spool.delivered(seq + len(some))
        if seq == 50:
            spool = spool_in(tmp_path, file_bytes=50)

    assert records == lines(0, 100)
    spool.read(1, 1)
    assert len(list(tmp_path.glob("*.ndjson"))) == 1
    assert spool_in(tmp_path).append(lines(100, 1)) == 101


def test_lost_files_never_number_a_record_twice(tmp_path: Path, spool_in: Open) -> None:
    spool = spool_in(tmp_path)
    spool.append(lines(0, 10))
    spool.delivered(10)
    (tmp_path / "history-000000000000.ndjson").unlink()

    again = spool_in(tmp_path)
    again.append(lines(10, 1))
    assert again.read(5, 10_000) == (10, lines(10, 1))


def test_a_closed_spool_takes_nothing(tmp_path: Path, spool_in: Open) -> None:
    spool = spool_in(tmp_path)
    spool.close()
    with pytest.raises(OSError, match="closed"):
        spool.append(lines(0, 1))
