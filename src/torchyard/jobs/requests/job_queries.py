"""Lists of jobs as requests ask for them, and as they are answered.

Owns: which conditions, orders and columns a list may have; the text by which it goes on.
Leaves: SQL to job_search.py.
Always: a request that names something unknown is refused before the database is searched.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from torchyard.base import clock, fields
from torchyard.base.errors import InvalidInput, NotFound, did_you_mean
from torchyard.jobs import actions
from torchyard.jobs.admission import waiting_reasons
from torchyard.jobs.history import history_store
from torchyard.jobs.records import experiment_store, job_masking
from torchyard.jobs.records.job_candidates import Having
from torchyard.jobs.records.types import COMMAND, RUN, Job, Status
from torchyard.jobs.requests import job_search
from torchyard.jobs.requests.answer_types import JobPage, JobRow, ListColumns
from torchyard.jobs.requests.job_search import JobFilter, JobOrder, PageEnd
from torchyard.jobs.requests.to_json import summary_json
from torchyard.jobs.services import RecordServices, Services
from torchyard.jobs.spec.inputs import IO_NAME
from torchyard.shared.record_rules import number_json

GROUPS = ("metrics", "params", "inputs", "tags")
_COLUMN_GROUPS = ("metrics", "params", "inputs")
_MOST_JOBS = 1000
# Of jobs with all of their metrics, which may be many.
_MOST_JOBS_WITH_ALL = 100
_MOST_COLUMNS = 100
_MOST_TAGS = 100
_WAITING = "waiting"
# Each takes several queries.
_MOST_WAITING = 50


@dataclass(frozen=True)
class ListRequest:
    """A list as it is asked for, in texts.

    Args:
        tags: each `key` or `key=value`; a job has all of them.
        text: part of a name, a display name or a description.
        created_after, created_before: ISO 8601 with a zone.
        sort: `metrics.loss`, `params.x`, `inputs.lr`, `tags.team`, or a field of the job.
        columns: what rows hold beside the summary: `metrics.loss`, all `metrics`, or `waiting`,
            why a job waits.
        before: `next` of the page before.
        type: `command`, `sweep` or `run`.
    """

    experiment_name: str = ""
    status: str = ""
    archived: str = "false"
    parent: str = ""
    tags: Sequence[str] = ()
    owner: str = ""
    text: str = ""
    created_after: str = ""
    created_before: str = ""
    sort: str = ""
    descending: bool = False
    columns: Sequence[str] = ()
    before: str = ""
    limit: int = 50
    type: str = ""


def list_page(services: Services, workspace: str, request: ListRequest) -> JobPage:
    """A page as JSON; `next` is None on the last one.

    Raises:
        InvalidInput: a condition, an order, a column or a place that can't be.
        NotFound: no such experiment or parent.
    """
    order = _order(request)
    columns = _columns([name for name in request.columns if name != _WAITING])
    maximum = _MOST_JOBS_WITH_ALL if None in columns.values() else _MOST_JOBS
    if not 1 <= request.limit <= maximum:
        raise InvalidInput(f"`limit` must be between 1 and {maximum}, not {request.limit}")
    after = _parse_token(request.before, order)
    if request.parent:
        actions.get(services, workspace, request.parent)
    with services.db.read() as connection:
        job_filter = _filter(services, connection, workspace, request)
        page = job_search.find_page(connection, job_filter, order, after, request.limit)
        cells = _cells(connection, page.jobs, columns)
    rows: list[JobRow] = [{**summary_json(job), **cells[job.id]} for job in page.jobs]
    if _WAITING in request.columns:
        for row, reason in zip(rows, waiting_of(services, page.jobs), strict=True):
            row["waiting"] = reason
    return {"value": rows, "next": None if page.end is None else _token(page.end, order)}


def list_in(
    services: RecordServices,
    workspace: str,
    *,
    experiment_name: str = "",
    archived: bool | None = None,
    parent: str = "",
    tags: Sequence[str] = (),
    having: Sequence[Having] = (),
    before: int | None = None,
    limit: int = 50,
    types: Sequence[str] = (),
    with_trials: bool = True,
) -> list[Job]:
    """Newest first, for other packages; `before` is the id of the last one seen.

    Args:
        archived, types, with_trials: as in `JobFilter`; `tags` as in `ListRequest`, `having` as in
            `find_page`.

    Raises:
        NotFound: no such experiment or parent.
    """
    if parent:
        actions.get(services, workspace, parent)
    after = None if before is None else PageEnd(0, None, before)
    with services.db.read() as connection:
        job_filter = JobFilter(
            workspace,
            _experiment_id(connection, workspace, experiment_name),
            archived=archived,
            parent=parent,
            tags=actions.wanted_tags(tags),
            types=types,
            with_trials=with_trials,
        )
        page = job_search.find_page(connection, job_filter, None, after, limit, having=having)
    return page.jobs


def waiting_of(services: Services, jobs: Sequence[Job]) -> list[str]:
    """Why each of the jobs waits; empty for one that does not, and for all but the first few."""
    waiting = [job for job in jobs if job.status in (Status.QUEUED, Status.PROVISIONING)]
    described = {job.id for job in waiting[:_MOST_WAITING]}
    return [waiting_reasons.describe(services, job) if job.id in described else "" for job in jobs]


def _filter(
    services: Services, connection: Connection, workspace: str, request: ListRequest
) -> JobFilter:
    if len(request.tags) > _MOST_TAGS:
        raise InvalidInput(f"{len(request.tags)} tags are too many", f"use {_MOST_TAGS} or fewer")
    type = _type(services, request.type)
    return JobFilter(
        workspace,
        _experiment_id(connection, workspace, request.experiment_name),
        actions.status_named(request.status) if request.status else None,
        fields.archived(request.archived),
        request.parent,
        actions.wanted_tags(request.tags),
        request.owner,
        request.text,
        _moment("created_after", request.created_after),
        _moment("created_before", request.created_before),
        [type] if type else (),
    )


def _experiment_id(connection: Connection, workspace: str, name: str) -> int | None:
    if not name:
        return None
    experiment = experiment_store.find_by_name(connection, workspace, name)
    if experiment is None:
        raise NotFound(
            f"experiment `{name}` does not exist in workspace `{workspace}`",
            "list jobs and their experiments with `yard job list`",
        )
    return experiment.id


def _type(services: Services, text: str) -> str:
    types = (COMMAND, *services.job_types, RUN)
    if text and text.lower() not in types:
        raise InvalidInput(f"`type` is `{text[:80]}`", f"use {', '.join(types)}", at=("type",))
    return text.lower()


def _moment(name: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        return clock.from_text(text)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"`{name}` is not a time: `{text[:80]}`", "write it as 2026-01-31T12:00:00Z"
        ) from error


def _order(request: ListRequest) -> JobOrder | None:
    if not request.sort:
        if request.descending:
            raise InvalidInput("`descending` needs `sort`", "the newest jobs come first without it")
        return None
    group, _, key = request.sort.partition(".")
    if group in GROUPS and key:
        _check_key(group, key)
        return JobOrder(group, key, request.descending)
    if request.sort in job_search.FIELDS:
        return JobOrder("", request.sort, request.descending)
    choices = [*job_search.FIELDS, *(f"{group}.NAME" for group in GROUPS)]
    raise InvalidInput(
        f"jobs can't be sorted by `{request.sort[:80]}`",
        did_you_mean(request.sort, job_search.FIELDS, f"use one of: {', '.join(choices)}"),
    )


def _columns(names: Sequence[str]) -> dict[str, list[str] | None]:
    """The keys by group; None for all of a group."""
    if len(names) > _MOST_COLUMNS:
        raise InvalidInput(
            f"{len(names)} columns are too many", f"ask for {_MOST_COLUMNS} or fewer"
        )
    columns: dict[str, list[str] | None] = {}
    for name in names:
        group, dot, key = name.partition(".")
        if group not in _COLUMN_GROUPS or (dot and not key):
            raise InvalidInput(
                f"a list of jobs has no column `{name[:80]}`",
                f"use {', '.join(f'`{group}.NAME`' for group in _COLUMN_GROUPS)}, or "
                f"{', '.join(f'`{group}`' for group in _COLUMN_GROUPS)} for all of them",
            )
        if not dot:
            columns[group] = None
            continue
        _check_key(group, key)
        keys = columns.setdefault(group, [])
        if keys is not None:
            keys.append(key)
    return columns


def _check_key(group: str, key: str) -> None:
    if group == "inputs" and not IO_NAME.match(key):
        raise InvalidInput(
            f"`{key[:80]}` is not the name of an input", "names have letters, digits and `_`"
        )
    if group == "tags" and '"' in key:
        raise InvalidInput(f"`{key[:80]}` is not a tag", "sort by a tag without quotes")


def _cells(
    connection: Connection, jobs: Sequence[Job], columns: Mapping[str, list[str] | None]
) -> dict[int, ListColumns]:
    """By job, the groups that are asked for with the values that the job has."""
    cells: dict[int, ListColumns] = {job.id: {} for job in jobs}
    ids = list(cells)
    if "metrics" in columns:
        for row in cells.values():
            row["metrics"] = {}
        for point in history_store.latest_of(connection, ids, columns["metrics"]):
            cells[point.job_id]["metrics"][point.key] = number_json(point.value)
    if "params" in columns:
        for row in cells.values():
            row["params"] = {}
        for job_id, key, value in history_store.params_of(connection, ids, columns["params"]):
            cells[job_id]["params"][key] = value
    if "inputs" in columns:
        for job in jobs:
            cells[job.id]["inputs"] = _inputs(job, columns["inputs"])
    return {job.id: job_masking.masked(job, cells[job.id]) for job in jobs}


def _inputs(job: Job, names: Sequence[str] | None) -> dict[str, Any]:
    """Literals as they were written, data by its path."""
    inputs = job.document.get("inputs") or {}
    values = {}
    for name in inputs if names is None else names:
        value = inputs.get(name)
        if isinstance(value, Mapping):
            value = value.get("value", value.get("path"))
        if value is not None:
            values[name] = value
    return values


def _token(position: PageEnd, order: JobOrder | None) -> int | str:
    """How a list goes on; a number where only the order of submission counts."""
    if order is None:
        return position.job_id
    body = json.dumps([*_signature(order), position.segment, position.value, position.job_id])
    return base64.urlsafe_b64encode(body.encode()).decode()


def _parse_token(token: str, order: JobOrder | None) -> PageEnd | None:
    if not token:
        return None
    position = _number_place(token) if order is None else _read_place(token, order)
    if position is None or not 0 <= position.job_id < 2**63:
        raise InvalidInput(
            "`before` is not where a list in this order ended",
            "take `next` of the page before, and change neither `sort` nor `descending`",
        )
    return position


def _number_place(token: str) -> PageEnd | None:
    is_number = token.isascii() and token.isdecimal() and len(token) <= 19
    return PageEnd(0, None, int(token)) if is_number else None


def _read_place(token: str, order: JobOrder) -> PageEnd | None:
    try:
        body = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, binascii.Error, RecursionError):
        return None
    if not isinstance(body, list) or len(body) != 6 or body[:3] != _signature(order):
        return None
    segment, value, job_id = body[3:]
    if type(segment) is not int or type(job_id) is not int:
        return None
    if not job_search.is_place(order, segment, value) or not _is_storable(value):
        return None
    return PageEnd(segment, value, job_id)


def _is_storable(value: float | str | None) -> bool:
    if isinstance(value, str):
        return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)
    if isinstance(value, int):
        return abs(value) < 2**63
    return value is None or not math.isnan(value)


def _signature(order: JobOrder) -> list[Any]:
    return [order.group, order.key, order.descending]
