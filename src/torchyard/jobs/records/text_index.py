"""By which jobs are found by a part of their name, display name or description.

Owns: which three letters in a row occur in which jobs, its tables, how far it has come.
Leaves: testing a job's texts to the queries, calling `extend` to the scheduler's rounds.
Always: what a search gets has every job that fits, and may have more: those that are not in the
index yet, because they are new or were renamed, are among them.

Letters are taken by batches of jobs, long after a job was made: writers of new runs pay nothing in
their transactions. Only ASCII counts, in lower case; databases fold other letters differently.
"""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Integer,
    LargeBinary,
    Select,
    Table,
    and_,
    delete,
    false,
    func,
    insert,
    literal_column,
    select,
    update,
)

from torchyard.base.db import Database, metadata
from torchyard.jobs.records.job_candidates import Source, of_ids
from torchyard.jobs.records.renames import job_renames
from torchyard.jobs.records.store import jobs

# Jobs by three letters; ids as 32-bit numbers. In SQLite the table is its own index.
job_letters = Table(
    "job_letters",
    metadata,
    # In this order, so that a new batch is written behind all others.
    Column("batch", Integer, primary_key=True, autoincrement=False),
    Column("letters", Integer, primary_key=True, autoincrement=False),
    Column("ids", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
_ADD = {
    "sqlite": "INSERT INTO job_letters (batch, letters, ids) VALUES (?, ?, ?)",
    "postgresql": "INSERT INTO job_letters (batch, letters, ids) VALUES (%s, %s, %s)",
}

_LEAST_NEW, _LEAST_RENAMED = 1_000, 200
_MOST_NEW, _MOST_RENAMED = 4_000, 500
# PostgreSQL shows a job with a lower number later than one with a higher, by a transaction's time.
_SETTLED_S = 60.0
# The row that says how far the index has come: the last job, and how many batches there are.
_PROGRESS, _PROGRESS_FORMAT = -1, "<qq"
_IS_PROGRESS = and_(job_letters.c.batch == _PROGRESS, job_letters.c.letters == _PROGRESS)
_ID_BYTES = 4
_LETTERS = 3
# A text's letters beyond are not looked for, nor those that more jobs have.
_MOST_LOOKED_FOR, _MOST_READ = 4, 50_000
_COMBINING_DOT = "\u0307"


class _Progress(NamedTuple):
    last_job: int = 0
    batches: int = 0


class TextIndex:
    """Extends the index of one server's database.

    Args:
        now_s: monotonic.
        least_new, least_renamed: so many jobs are worth a batch.
        batch: so many new jobs are added at once.
    """

    def __init__(
        self,
        db: Database,
        now_s: Callable[[], float] = time.monotonic,
        least_new: int = _LEAST_NEW,
        least_renamed: int = _LEAST_RENAMED,
        batch: int = _MOST_NEW,
    ) -> None:
        self._db = db
        self._now_s = now_s
        self._least_new, self._least_renamed, self._batch = least_new, least_renamed, batch
        self._newest, self._newest_at_s = 0, float("-inf")
        self._settled = 0

    def is_due(self) -> bool:
        """Whether there is enough to add."""
        with self._db.read() as connection:
            last = _progress(connection).last_job
            new = select(jobs.c.id).where(jobs.c.id > last, jobs.c.id <= self._bound(connection))
            if _is_many(connection, new, self._least_new):
                return True
            renamed = select(job_renames.c.id).where(job_renames.c.job <= last)
            return _is_many(connection, renamed, self._least_renamed)

    def extend(self) -> None:
        """Add a batch: the next of the new jobs, and those that were renamed."""
        with self._db.read() as connection:
            before = _progress(connection)
            # First, so that what is renamed from now on stays.
            renames = connection.execute(
                select(job_renames)
                .where(job_renames.c.job <= before.last_job)
                .order_by(job_renames.c.id)
                .limit(_MOST_RENAMED)
            ).all()
            new = jobs.c.id > before.last_job, jobs.c.id <= self._bound(connection)
            rows = _texts(
                connection, select(jobs.c.id).where(*new).order_by(jobs.c.id).limit(self._batch)
            )
            last_job = rows[-1][0] if rows else before.last_job
            renamed = sorted({row.job for row in renames})
            rows += _texts(connection, select(jobs.c.id).where(jobs.c.id.in_(renamed)))
        ids_by_letters = _by_letters(rows)
        with self._db.write("job-texts") as connection:
            if _progress(connection) != before:
                return  # another server did it
            _add(connection, before.batches, ids_by_letters)
            _note(connection, before, _Progress(last_job, before.batches + 1))
            done = [row.id for row in renames]
            connection.execute(delete(job_renames).where(job_renames.c.id.in_(done)))

    def _bound(self, connection: Connection) -> int:
        """The last job that may be added; all before it are there."""
        newest = connection.execute(select(func.max(jobs.c.id))).scalar() or 0
        if connection.dialect.name == "sqlite":
            return newest
        now_s = self._now_s()
        if now_s - self._newest_at_s >= _SETTLED_S:
            self._settled = self._newest
            self._newest, self._newest_at_s = newest, now_s
        return self._settled


def candidates(connection: Connection, parts: Iterable[str], limit: int) -> Source | None:
    """The jobs one of whose texts may contain all the parts, together by several queries.

    None if the index can't tell, or has more than `limit`.
    """
    letters = set().union(*map(_letters_of, parts))
    if not letters:
        return None
    progress = _progress(connection)
    ids = _jobs_with(connection, letters, progress.batches)
    if ids is None or len(ids) > limit:
        return None
    return [
        of_ids(sorted(ids)),
        select(jobs.c.id).where(jobs.c.id > progress.last_job),
        select(job_renames.c.job),
    ]


def _jobs_with(connection: Connection, letters: set[int], batches: int) -> set[int] | None:
    """Those in the index that have all of these; None if even the rarest of them are common."""
    # Every place is named, because the index begins with the batch.
    condition = job_letters.c.batch.in_(_written(range(batches))) if batches else false()
    sizes: dict[int, int] = {}
    query = select(job_letters.c.letters, func.length(job_letters.c.ids)).where(
        condition, job_letters.c.letters.in_(_written(letters))
    )
    for each, size_bytes in connection.execute(query):
        sizes[each] = sizes.get(each, 0) + size_bytes
    if len(sizes) < len(letters):
        return set()
    rarest = sorted(letters, key=lambda each: sizes[each])[:_MOST_LOOKED_FOR]
    looked_for = [each for each in rarest if sizes[each] <= _MOST_READ * _ID_BYTES]
    if not looked_for:
        return None
    ids: dict[int, set[int]] = {each: set() for each in looked_for}
    query = select(job_letters.c.letters, job_letters.c.ids).where(
        condition, job_letters.c.letters.in_(_written(looked_for))
    )
    for each, packed in connection.execute(query):
        ids[each].update(_unpacked(packed))
    return set.intersection(*ids.values())


def _written(numbers: Iterable[int]) -> list[ColumnElement[int]]:
    """In the statement itself: databases bound the number of parameters."""
    return [literal_column(str(number)) for number in numbers]


def _texts(connection: Connection, ids: Select[tuple[int]]) -> list[tuple[int, str, str, str]]:
    some = ids.subquery()
    query = (
        select(jobs.c.id, jobs.c.name, jobs.c.display_name, jobs.c.description)
        .join(some, some.c.id == jobs.c.id)
        .order_by(jobs.c.id)
    )
    return [(row[0], row[1], row[2], row[3]) for row in connection.execute(query)]


def _is_many(connection: Connection, query: Select[tuple[int]], count: int) -> bool:
    some = query.limit(count).subquery()
    return connection.execute(select(func.count()).select_from(some)).scalar_one() >= count


def _progress(connection: Connection) -> _Progress:
    packed = connection.execute(select(job_letters.c.ids).where(_IS_PROGRESS)).scalar()
    return _Progress() if packed is None else _Progress(*struct.unpack(_PROGRESS_FORMAT, packed))


def _note(connection: Connection, before: _Progress, now: _Progress) -> None:
    packed = struct.pack(_PROGRESS_FORMAT, *now)
    if before.batches:
        connection.execute(update(job_letters).where(_IS_PROGRESS).values(ids=packed))
    else:
        row = {"batch": _PROGRESS, "letters": _PROGRESS, "ids": packed}
        connection.execute(insert(job_letters), row)


def _add(connection: Connection, batch: int, ids_by_letters: Mapping[str, list[int]]) -> None:
    entries = [
        (batch, _number(letters), struct.pack(f"<{len(ids)}I", *ids))
        for letters, ids in ids_by_letters.items()
        if letters.isascii()
    ]
    if entries:
        # They are many: SQLAlchemy takes ten times as long as the database.
        connection.exec_driver_sql(_ADD[connection.dialect.name], sorted(entries))


def _by_letters(rows: Iterable[tuple[int, str, str, str]]) -> Mapping[str, list[int]]:
    """The jobs of all three letters in a row that a job's texts have."""
    ids: dict[str, list[int]] = defaultdict(list)
    for job_id, name, display_name, description in rows:
        parts = _parts_of(name)
        if display_name != name:
            parts |= _parts_of(display_name)
        if description:
            parts |= _parts_of(description)
        for letters in parts:
            ids[letters].append(job_id)
    return ids


def _letters_of(written: str) -> set[int]:
    return {_number(letters) for letters in _parts_of(written) if letters.isascii()}


def _parts_of(written: str) -> set[str]:
    """All three letters in a row."""
    folded = written.lower().replace(_COMBINING_DOT, "")
    return {folded[at : at + _LETTERS] for at in range(len(folded) - _LETTERS + 1)}


def _number(letters: str) -> int:
    first, second, third = letters.encode()
    return first << 14 | second << 7 | third


def _unpacked(packed: bytes) -> Iterator[int]:
    return (number for (number,) in struct.iter_unpack("<I", packed))
