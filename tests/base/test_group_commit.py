"""Writes of several requests in one transaction: what each is told, and what is stored."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence

import pytest
from sqlalchemy import Connection, text

from torchyard.base.db import Database
from torchyard.base.errors import DatabaseUnreachable, InvalidInput, Unreachable
from torchyard.base.group_commit import GroupCommit, Plan


class Notes:
    """A kind of write for these tests: a text becomes a row; some texts are refused."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.began = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def gather(self, connection: Connection, items: Sequence[str]) -> Plan:
        def apply() -> list[str | None]:
            self.began.set()
            assert self.may_go_on.wait(60)
            self.groups.append(list(items))
            return [self._write(connection, item) for item in items]

        return Plan([f"note/{item}" for item in items], apply)

    def _write(self, connection: Connection, item: str) -> str | None:
        if item == "skipped":
            return None
        connection.execute(text("INSERT INTO notes VALUES (:note)"), {"note": item})
        if item == "bad":
            raise InvalidInput("bad is refused")
        if item == "away":
            raise DatabaseUnreachable("the server's database does not answer", "wait")
        return item.upper()


@pytest.fixture
def written(db: Database) -> Iterator[GroupCommit]:
    with db.write() as connection:
        connection.execute(text("CREATE TABLE notes (note VARCHAR(20) PRIMARY KEY)"))
    group_commit = GroupCommit(db, threads=1)
    yield group_commit
    group_commit.close()


def rows(db: Database) -> list[str]:
    with db.read() as connection:
        return sorted(connection.execute(text("SELECT note FROM notes")).scalars())


def together(group_commit: GroupCommit, notes: Notes, *items: str) -> list[object]:
    """Hand the items in while the thread is busy with another one, so that they are one group."""

    async def run() -> list[object]:
        notes.began.clear()
        notes.may_go_on.clear()
        first = asyncio.ensure_future(group_commit.run(notes.gather, "first"))
        assert await asyncio.to_thread(notes.began.wait, 30)
        others = [asyncio.ensure_future(group_commit.run(notes.gather, item)) for item in items]
        await asyncio.sleep(0)
        notes.may_go_on.set()
        await first
        return list(await asyncio.gather(*others, return_exceptions=True))

    return asyncio.run(run())


def test_what_comes_while_one_is_written_is_written_together(
    db: Database, written: GroupCommit
) -> None:
    notes = Notes()
    assert together(written, notes, "a", "b", "c") == ["A", "B", "C"]
    assert notes.groups == [["first"], ["a", "b", "c"]]
    assert rows(db) == ["a", "b", "c", "first"]


def test_a_write_that_fails_takes_none_of_the_others_with_it(
    db: Database, written: GroupCommit
) -> None:
    notes = Notes()
    a, bad, b = together(written, notes, "a", "bad", "b")
    assert (a, b) == ("A", "B") and isinstance(bad, InvalidInput)
    assert rows(db) == ["a", "b", "first"]


def test_a_row_that_exists_fails_alone(db: Database, written: GroupCommit) -> None:
    notes = Notes()
    again, b = together(written, notes, "first", "b")
    assert isinstance(again, Exception) and b == "B"
    assert rows(db) == ["b", "first"]


def test_a_write_that_is_left_to_its_route_stores_nothing(
    db: Database, written: GroupCommit
) -> None:
    assert together(written, Notes(), "skipped", "b") == [None, "B"]
    assert rows(db) == ["b", "first"]


def test_nobody_is_told_of_success_when_the_database_was_lost(
    db: Database, written: GroupCommit
) -> None:
    notes = Notes()
    results = together(written, notes, "a", "away", "b")
    assert all(isinstance(result, DatabaseUnreachable) for result in results)
    assert notes.groups == [["first"], ["a", "away", "b"]], "not tried again"
    assert rows(db) == ["first"]


def test_a_request_that_was_given_up_does_not_disturb_the_others(
    db: Database, written: GroupCommit
) -> None:
    notes = Notes()

    async def run() -> object:
        notes.may_go_on.clear()
        gone = asyncio.ensure_future(written.run(notes.gather, "gone"))
        await asyncio.sleep(0.05)
        gone.cancel()
        stays = asyncio.ensure_future(written.run(notes.gather, "stays"))
        await asyncio.sleep(0)
        notes.may_go_on.set()
        return await stays

    assert asyncio.run(run()) == "STAYS"
    assert rows(db) == ["gone", "stays"]


def test_closing_finishes_what_was_handed_in_and_refuses_more(
    db: Database, written: GroupCommit
) -> None:
    notes = Notes()

    async def run() -> None:
        handed_in = asyncio.ensure_future(written.run(notes.gather, "a"))
        await asyncio.sleep(0)
        await asyncio.to_thread(written.close)
        assert await handed_in == "A"
        with pytest.raises(Unreachable):
            await written.run(notes.gather, "b")

    asyncio.run(run())
    assert rows(db) == ["a"]
