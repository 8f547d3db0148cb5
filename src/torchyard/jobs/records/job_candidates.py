"""Which few jobs can meet a condition, by the indexes of values.

Owns: counting what indexes hold of the values that are asked for, choosing the fewest.
Leaves: testing jobs to the queries, which look at all conditions again.
Always: every job that meets a condition is among those of its source; a source may have more.

Queries go through the jobs in the order of a page and stop when it is full, which is quick when
many fit. When one condition has few candidates, only these are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    false,
    func,
    literal_column,
    select,
    text,
    union_all,
)

from torchyard.jobs.records import adoptions
from torchyard.jobs.records.store import jobs
from torchyard.jobs.records.tag_store import job_tags, key_of, value_of

FEW = 2_000
"""So many jobs at the most are tested by themselves instead of in the order of the page."""
# Of so many conditions the candidates are counted.
_MOST_COUNTED = 8
_LAST_LETTER, _BEFORE_SURROGATES, _AFTER_SURROGATES = 0x10FFFF, 0xD7FF, 0xE000

# The candidates of one condition: numbers of jobs, of all these queries together.
Source = Sequence[Select[Any]]


def few(connection: Connection, sources: Sequence[Source], limit: int = FEW) -> Select[Any] | None:
    """The smallest source as one query; None if each of them has more than `limit`."""
    counted = sources[:_MOST_COUNTED]
    if not counted:
        return None
    counts = [_count(source, limit) for source in counted]
    numbers = connection.execute(select(*counts)).one()
    fewest = min(range(len(counted)), key=lambda number: numbers[number])
    if numbers[fewest] > limit:
        return None
    # The limit tells a database that guesses how few they are.
    bound = max(1, numbers[fewest])
    queries = [select(query.limit(bound).subquery()) for query in counted[fewest]]
    return queries[0] if len(queries) == 1 else select(union_all(*queries).subquery())


def few_in_all(
    connection: Connection, sources: Sequence[Source], limit: int = FEW
) -> Select[Any] | None:
    """The jobs that are in all sources of one query; None if these are more than `limit`.

    It reads the first source, and looks each of its jobs up in the others.
    """
    queries = [source[0] for source in sources if len(source) == 1][:_MOST_COUNTED]
    if len(queries) < 2:
        return None
    first = queries[0].subquery()
    job_id = next(iter(first.c))
    # Looked up one by one: to intersect them, SQLite would first copy each of them.
    others = [
        query.where(next(iter(query.selected_columns)) == job_id).correlate(first).exists()
        for query in (each.order_by(None) for each in queries[1:])
    ]
    joint = select(job_id).where(*others).limit(limit + 1)
    ids = list(connection.execute(joint).scalars())
    return None if len(ids) > limit else of_ids(ids)


def _count(source: Source, limit: int) -> ColumnElement[int]:
    """How many candidates a source has, none counted beyond what is too many."""
    total: ColumnElement[int] = literal_column("0")
    for query in source:
        some = query.limit(limit + 1).subquery()
        total = total + select(func.count()).select_from(some).scalar_subquery()
    return total


@dataclass(frozen=True)
class Having:
    """One of these values of what jobs are ids by; None is any.

    `kind` is name, status, parent or, with its key, tag.
    """

    kind: str
    key: str
    values: tuple[str, ...] | None

    def is_about(self, other: Having) -> bool:
        return (self.kind, self.key) == (other.kind, other.key)


def sources_of(workspace: str, sought: Sequence[Having]) -> list[Source]:
    """Of each that an index serves; names are looked up in the workspace."""
    sources: list[Source] = []
    for having in sought:
        if having.kind == "tag":
            sources.append(of_tag(having.key, having.values))
        elif having.values is None:
            continue
        elif having.kind == "parent":
            sources.append(of_parent(having.values))
        elif having.kind == "status":
            sources.append(of_column(jobs.c.status, having.values))
        elif having.kind == "name":
            by_name = select(jobs.c.id).where(jobs.c.workspace == workspace)
            sources.append([by_name.where(one_of(jobs.c.name, having.values))])
    return sources


def of_tag(key: str, values: Sequence[str] | None) -> Source:
    """None takes any value."""
    query = select(job_tags.c.job_id).where(job_tags.c.key == key_of(key))
    if values is None:
        return [query]
    return [query.where(one_of(job_tags.c.value, sorted(set(map(value_of, values)))))]


def of_column(column: ColumnElement[Any], values: Sequence[Any]) -> Source:
    return [select(jobs.c.id).where(one_of(column, values))]


def of_parent(names: Sequence[str]) -> Source:
    # As the index says it, which has only these.
    has_parent = jobs.c.parent != literal_column("''")
    own = select(jobs.c.id).where(one_of(jobs.c.parent, names), has_parent)
    return [own, adoptions.adopted_by(names)]


def of_submission(since: datetime | None, until: datetime | None) -> Source:
    query = select(jobs.c.id)
    if since is not None:
        query = query.where(jobs.c.created_at >= since)
    if until is not None:
        query = query.where(jobs.c.created_at < until)
    return [query]


def of_ids(ids: Iterable[int]) -> Select[Any]:
    """Written out: databases bound the number of parameters."""
    written = ",".join(str(int(number)) for number in ids)
    return select(jobs.c.id).where(text(f"jobs.id IN ({written})") if written else false())


def one_of(column: ColumnElement[Any], values: Sequence[Any]) -> ColumnElement[bool]:
    return column == values[0] if len(values) == 1 else column.in_(values)


def begins_with(column: ColumnElement[Any], start: str) -> ColumnElement[bool]:
    """Texts of a column sort by their characters' numbers, so that these stand together."""
    end = _behind(start)
    from_start = column >= start
    return from_start if end is None else and_(from_start, column < end)


def _behind(start: str) -> str | None:
    """The first text behind all that begin with `start`; None if all later ones do."""
    prefix = start.rstrip(chr(_LAST_LETTER))
    if not prefix:
        return None
    last = ord(prefix[-1])
    return prefix[:-1] + chr(_AFTER_SURROGATES if last == _BEFORE_SURROGATES else last + 1)
