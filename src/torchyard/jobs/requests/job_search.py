"""Finding jobs of a workspace: conditions, one order, and pages as SQL.

Owns: the queries of lists and leaderboards, on SQLite and PostgreSQL alike.
Leaves: reading a request to job_queries.py, MLflow's searches to run_search.py.
Always: a page begins right after the last job of the one before it, however many jobs were
submitted between the two; jobs without the value come last, those with a NaN just before them.

An order is a row of segments, each with a query of its own that an index or a filter serves: the
jobs with a number, those with a text, those with a NaN, those with nothing. A page is filled from
one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    FromClause,
    Select,
    Text,
    and_,
    case,
    cast,
    exists,
    false,
    func,
    literal,
    null,
    or_,
    select,
    true,
    tuple_,
)

from torchyard.jobs.history.history_store import PARAM_NUMBER, PARAM_START, metrics, params
from torchyard.jobs.records import adoptions, job_candidates, store, text_index
from torchyard.jobs.records.job_candidates import Having, Source
from torchyard.jobs.records.store import RUN_NAME, jobs, tag_of
from torchyard.jobs.records.types import COMMAND, RUN, Job, Status

# Texts of PostgreSQL that are surely numbers in a float's range; SQLite reads them as JSON.
_NUMBER = r"^-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,2})?$"

_NUMBERS, _TEXTS, _NOTHING = (int, float), (str,), (type(None),)
# What the segments of an order are sorted by.
_BY_TEXT = (_NUMBERS, _TEXTS, _NOTHING)
_KINDS = {
    "metrics": (_NUMBERS, _NOTHING, _NOTHING),
    "params": _BY_TEXT,
    "inputs": _BY_TEXT,
    "tags": _BY_TEXT,
}
_FIELD_KINDS = {
    "name": (_TEXTS,),
    "display_name": (_TEXTS,),
    "owner": (_TEXTS,),
    "created_at": (_NUMBERS,),
    "duration_s": (_NUMBERS, _NOTHING),
}
FIELDS = tuple(_FIELD_KINDS)
"""What of a job itself a list can be sorted by."""


@dataclass(frozen=True)
class JobFilter:
    """What the jobs have in common; what is empty or None is not looked at.

    Args:
        archived: True for archived ones only, None for both kinds.
        tags: a tag that is None may have any value.
        text: part of the name, the display name or the description, in any case.
        created_from, created_to: times of submission, the second one excluded.
        types: `command`, `sweep`, `run`; any when empty.
        with_trials: False leaves out what a sweep or another job started.
    """

    workspace: str
    experiment_id: int | None = None
    status: Status | None = None
    archived: bool | None = None
    parent: str = ""
    tags: Mapping[str, str | None] | None = None
    owner: str = ""
    text: str = ""
    created_from: datetime | None = None
    created_to: datetime | None = None
    types: Sequence[str] = ()
    with_trials: bool = True


@dataclass(frozen=True)
class JobOrder:
    """By what: `group` is metrics, params, inputs, tags, or empty for one of `FIELDS`."""

    group: str
    key: str
    descending: bool = False


@dataclass(frozen=True)
class PageEnd:
    """Where a page ended: the last job, its segment and its value there."""

    segment: int
    value: float | str | None
    job_id: int


class Page(NamedTuple):
    """`end` is None on the last page."""

    jobs: list[Job]
    end: PageEnd | None


class _Segment(NamedTuple):
    """Jobs that sort alike: where they come from, which they are, what they are sorted by.

    `value` is None where only the order of submission counts.
    """

    source: FromClause
    job_id: ColumnElement[int]
    where: ColumnElement[bool]
    value: ColumnElement[Any] | None = None


def find_page(
    connection: Connection,
    job_filter: JobFilter,
    order: JobOrder | None,
    after: PageEnd | None,
    limit: int,
    few: int = job_candidates.FEW,
    having: Sequence[Having] = (),
) -> Page:
    """`limit` jobs at the most, right after `after`; newest first without an order.

    Equal values come in the order of submission, the other way round when descending; jobs with
    a NaN or nothing come newest first.

    Args:
        having: what the caller looks for, who still tests what comes: others may be left out.
    """
    dialect = connection.dialect.name
    segments = [_Segment(jobs, jobs.c.id, true())] if order is None else _segments(order, dialect)
    wheres = _conditions(job_filter, dialect)
    sources = [
        *job_candidates.sources_of(job_filter.workspace, having),
        *_sources(job_filter),
    ]
    if job_filter.text:
        text_source = text_index.candidates(connection, [job_filter.text], few)
        sources += [] if text_source is None else [text_source]
    candidates = job_candidates.few(connection, sources, few)
    positions: list[PageEnd] = []
    for number, segment in enumerate(segments):
        if after is not None and number < after.segment:
            continue
        start = after if after is not None and after.segment == number else None
        query = _rows(segment, start, order is not None and order.descending).where(*wheres)
        if candidates is not None:
            query = query.where(segment.job_id.in_(candidates))
        rows = connection.execute(query.limit(limit + 1 - len(positions)))
        positions += [PageEnd(number, row.value, row.id) for row in rows]
        if len(positions) > limit:
            break
    end = positions[limit - 1] if len(positions) > limit else None
    ids = [position.job_id for position in positions[:limit]]
    jobs_by_id = store.jobs_by_id(connection, ids)
    return Page([jobs_by_id[id] for id in ids if id in jobs_by_id], end)


def is_place(order: JobOrder, segment: int, value: object) -> bool:
    """Whether a list in this order can end there, by the kind of the value."""
    kinds = _KINDS.get(order.group) or _FIELD_KINDS[order.key]
    return 0 <= segment < len(kinds) and type(value) in kinds[segment]


def _rows(segment: _Segment, after: PageEnd | None, descending: bool) -> Select[Any]:
    job_id, value = segment.job_id, segment.value
    query = select(
        job_id.label("id"), (null() if value is None else value).label("value")
    ).select_from(segment.source)
    query = query.where(segment.where)
    if value is None:
        if after is not None:
            query = query.where(job_id < after.job_id)
        return query.order_by(job_id.desc())
    if after is not None:
        # Compared as a pair, which an index over both serves.
        pair, last = tuple_(value, job_id), tuple_(literal(after.value), literal(after.job_id))
        query = query.where(pair < last if descending else pair > last)
    if descending:
        return query.order_by(value.desc(), job_id.desc())
    return query.order_by(value, job_id)


def _segments(order: JobOrder, dialect: str) -> list[_Segment]:
    if order.group == "metrics":
        return list(_by_metric(order.key))
    if order.group == "params":
        return list(_by_param(order.key, dialect))
    if not order.group:
        return list(_by_field(order.key))
    value = _input(order.key) if order.group == "inputs" else _tag(order.key, dialect)
    return list(_by_text(jobs, value, dialect))


def _by_metric(key: str) -> Iterator[_Segment]:
    joined = metrics.join(jobs, jobs.c.id == metrics.c.job_id)
    value, is_key = metrics.c.latest_value, metrics.c.key == key
    yield _Segment(joined, metrics.c.job_id, and_(is_key, value.is_not(None)), value)
    yield _Segment(joined, metrics.c.job_id, and_(is_key, value.is_(None)))
    there = exists().where(metrics.c.job_id == jobs.c.id, is_key)
    yield _Segment(jobs, jobs.c.id, ~there)


def _by_param(key: str, dialect: str) -> Iterator[_Segment]:
    """Numbers first, then other texts by as much as an index holds; those begin at the indexes."""
    joined = params.join(jobs, jobs.c.id == params.c.job_id)
    number, is_key = PARAM_NUMBER[dialect], params.c.key == key
    yield _Segment(joined, params.c.job_id, and_(is_key, number.is_not(None)), number)
    yield _Segment(joined, params.c.job_id, and_(is_key, number.is_(None)), PARAM_START)
    there = exists().where(params.c.job_id == jobs.c.id, is_key)
    yield _Segment(jobs, jobs.c.id, ~there)


def _by_text(source: FromClause, value: ColumnElement[Any], dialect: str) -> Iterator[_Segment]:
    """Numbers come before other texts."""
    number = _number_in(value, dialect)
    yield _Segment(source, jobs.c.id, number.is_not(None), number)
    yield _Segment(source, jobs.c.id, and_(number.is_(None), value.is_not(None)), value)
    yield _Segment(source, jobs.c.id, value.is_(None))


def _by_field(key: str) -> Iterator[_Segment]:
    if key == "created_at":
        # Numbers are given in the order of submission.
        yield _Segment(jobs, jobs.c.id, true(), jobs.c.id)
        return
    value: ColumnElement[Any] = RUN_NAME if key == "display_name" else jobs.c[key]
    yield _Segment(jobs, jobs.c.id, value.is_not(None), value)
    if key == "duration_s":
        yield _Segment(jobs, jobs.c.id, value.is_(None))


def _input(name: str) -> ColumnElement[Any]:
    """A literal, the `value` of a longer one, or the `path` of data."""
    paths = (("inputs", name, "value"), ("inputs", name, "path"), ("inputs", name))
    value: ColumnElement[Any] = func.coalesce(
        *(cast(jobs.c.spec[path].as_string(), Text) for path in paths)
    )
    return value


def _tag(key: str, dialect: str) -> ColumnElement[Any]:
    return tag_of(jobs.c.tags, key, dialect)


def _number_in(value: ColumnElement[Any], dialect: str) -> ColumnElement[Any]:
    """The number that a text is, null for another text."""
    if dialect == "sqlite":
        # An outer `case` because `json_type` fails where the text is not JSON.
        kind = case((func.json_valid(value) == 1, func.json_type(value)), else_=None)
        return case((kind.in_(("integer", "real")), cast(value, Double)), else_=None)
    return case((value.regexp_match(_NUMBER), cast(value, Double)), else_=None)


def _sources(job_filter: JobFilter) -> Iterator[Source]:
    """The jobs that can meet each of the conditions that an index serves."""
    if job_filter.status is not None:
        yield job_candidates.of_column(jobs.c.status, (job_filter.status.value,))
    if job_filter.parent:
        yield job_candidates.of_parent((job_filter.parent,))
    if job_filter.owner:
        yield job_candidates.of_column(jobs.c.owner, (job_filter.owner,))
    if job_filter.created_from is not None or job_filter.created_to is not None:
        yield job_candidates.of_submission(job_filter.created_from, job_filter.created_to)
    for key, tag_value in (job_filter.tags or {}).items():
        yield job_candidates.of_tag(key, None if tag_value is None else (tag_value,))


def _conditions(job_filter: JobFilter, dialect: str) -> list[ColumnElement[bool]]:
    wheres = [jobs.c.workspace == job_filter.workspace, jobs.c.deleted == false()]
    same = {
        jobs.c.experiment_id: job_filter.experiment_id,
        jobs.c.status: None if job_filter.status is None else job_filter.status.value,
        jobs.c.archived: job_filter.archived,
        jobs.c.owner: job_filter.owner or None,
    }
    wheres += [column == value for column, value in same.items() if value is not None]
    if job_filter.parent:
        wheres.append(adoptions.is_child_of((job_filter.parent,)))
    if job_filter.types:
        wheres.append(jobs.c.type.in_(job_filter.types))
    if not job_filter.with_trials:
        above = jobs.alias()
        is_job = (
            above.c.workspace == job_filter.workspace,
            above.c.type.not_in((COMMAND, RUN)),
        )
        wheres.append(jobs.c.parent.not_in(select(above.c.name).where(*is_job)))
    if job_filter.created_from is not None:
        wheres.append(jobs.c.created_at >= job_filter.created_from)
    if job_filter.created_to is not None:
        wheres.append(jobs.c.created_at < job_filter.created_to)
    for key, tag_value in (job_filter.tags or {}).items():
        tag = tag_of(jobs.c.tags, key, dialect)
        wheres.append(tag.is_not(None) if tag_value is None else tag == tag_value)
    if job_filter.text:
        columns = (jobs.c.name, jobs.c.display_name, jobs.c.description)
        wheres.append(or_(*(c.icontains(job_filter.text, autoescape=True) for c in columns)))
    return wheres
