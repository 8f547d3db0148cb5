"""SDK v1's older query for metrics, which only its notebook widget still sends.

Owns: the route, its filter, its form: one object for each point and each row.
Leaves: the requests of `get_metrics` to metrics.py, numbers to jobs/history/history.py, rows to
jobs/history/metric_rows.py.
Always: a point keeps its id when others arrive late: the widget repeatedly requests the last
minutes, and recognizes points by their ids.

Source: the requests of azureml-core 1.61 and azureml-widgets 1.62.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import islice
from typing import Any

from fastapi.responses import JSONResponse

from torchyard.azureml.arm.resources import continuation_id, timestamp
from torchyard.azureml.common.calls import AzureCall
from torchyard.azureml.common.routing import RouteTable
from torchyard.base.errors import InvalidInput
from torchyard.base.fields import bounded
from torchyard.jobs import actions
from torchyard.jobs.history import metric_rows
from torchyard.jobs.history.history import History
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import RecordServices, ServicesOf
from torchyard.shared import record_rules
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_SCALAR = "azureml.v1.scalar"
_ARTIFACT = "aml://artifactId/"
_PAGE = 5000
_MAX_RUNS = 1000
_LONGEST_FILTER = 64 << 10
_WORD = re.compile(r"\S+")
_KEYS = frozenset({"runid", "metrictype", "name", "createdutc"})


@dataclass
class _Filter:
    """What a client requests; an empty list or None means all."""

    runs: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    after: datetime | None = None

    def includes_kind(self, kind: str) -> bool:
        return not self.kinds or kind in self.kinds


routes = RouteTable()


@routes.post("/history/experiments/{experiment}/metrics:query")
@needs(Permission.READ)
def query(call: AzureCall, services: ServicesOf, experiment: str) -> JSONResponse:
    filter = _read(str(call.document.get("filter") or ""))
    jobs = [actions.get(services, call.workspace.name, run) for run in filter.runs]
    token = str(call.document.get("continuationToken") or "")
    limit = _limit(call.document.get("top"))
    value, next_token = _page(services, jobs, filter, token, limit)
    return JSONResponse({"value": value, "continuationToken": next_token, "nextLink": None})


def _read(text: str) -> _Filter:
    """
    Raises:
        InvalidInput: it can't be read, or names no run.
    """
    filter = _Filter()
    bounded(text, _LONGEST_FILTER, "the filter", at=["filter"])
    for key, operator, value in _conditions(text.strip().removeprefix("(").removesuffix(")")):
        if (key == "createdutc") != (operator == "gt"):
            raise _invalid(text)
        match key:
            case "runid":
                filter.runs.append(value)
            case "metrictype":
                filter.kinds.append(value)
            case "name":
                filter.keys.append(value)
            case "createdutc":
                filter.after = _moment(value)
            case _:
                raise _invalid(text)
    if not 0 < len(filter.runs) <= _MAX_RUNS:
        raise _invalid(text)
    return filter


def _conditions(text: str) -> Iterator[tuple[str, str, str]]:
    """(key and operator in lower case, value) of each condition; empty texts for none.

    The client writes `RunId eq a or RunId eq b and MetricType eq …` and means (a or b) and …;
    a value may hold spaces, and ends where the next condition begins.
    """
    words = list(_WORD.finditer(text))
    lower = [word[0].lower() for word in words]
    starts = [
        at
        for at in range(len(words) - 2)
        if lower[at] in _KEYS
        and lower[at + 1] in ("eq", "gt")
        and (at == 0 or lower[at - 1] in ("and", "or"))
    ]
    if not starts or starts[0] != 0:
        yield "", "", ""
    for at, following in zip(starts, [*starts[1:], len(words) + 1], strict=True):
        last = following - 2
        value = text[words[at + 2].start() : words[last].end()] if last >= at + 2 else ""
        yield (lower[at], lower[at + 1], value) if value else ("", "", "")


def _moment(text: str) -> datetime:
    """Python 3.10 does not read `Z`."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise _invalid(text) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _invalid(text: str) -> InvalidInput:
    return InvalidInput(
        f"the filter `{text[:200]}` can't be read",
        f"name 1 to {_MAX_RUNS} runs as `RunId eq <id>`; `MetricType eq`, `name eq` and "
        "`CreatedUtc gt` may follow",
        at=["filter"],
    )


def _limit(top: Any) -> int:
    if top is None:
        return _PAGE
    if type(top) is not int or top < 1:
        raise InvalidInput(
            f"`top` is `{str(top)[:20]}`", "it must be a positive integer", at=["top"]
        )
    return min(top, _PAGE)


def _page(
    services: RecordServices, jobs: list[Job], filter: _Filter, token: str, limit: int
) -> tuple[list[dict[str, Any]], str | None]:
    """(up to `limit` points and rows, the token of the next page).

    Args:
        token: `<position of a run's key>.<how many of it were returned>`, empty at the beginning.
    """
    sources = [(job, key) for job in jobs for key in _keys(services, job, filter)]
    position, start = (continuation_id(part) or 0 for part in (*token.split("."), "")[:2])
    page: list[dict[str, Any]] = []
    while position < len(sources):
        job, key = sources[position]
        end = start + limit - len(page)
        items = list(islice(_points_and_rows(services, job, key, filter), start, end + 1))
        if len(items) > end - start:
            return page + items[:-1], f"{position}.{end}"
        page += items
        position, start = position + 1, 0
    return page, None


def _keys(services: RecordServices, job: Job, filter: _Filter) -> list[str]:
    with services.db.read() as connection:
        rows = {row.key for row in metric_rows.of_job(connection, job.id)}
    return sorted(
        key
        for key in {*rows, *services.history.keys(job.id, sampled=bool(filter.keys))}
        if not filter.keys or key in filter.keys
    )


def _points_and_rows(
    services: RecordServices, job: Job, key: str, filter: _Filter
) -> Iterator[dict[str, Any]]:
    if filter.includes_kind(_SCALAR):
        yield from _numbers(services.history, job, key, filter.after)
    with services.db.read() as connection:
        rows = metric_rows.of_job(connection, job.id, key)
    for row in rows:
        if filter.includes_kind(row.kind) and (filter.after is None or row.at > filter.after):
            yield _json(job, key, row.row_id, row.kind, row.at, row.columns, row.values)


def _numbers(
    history: History, job: Job, key: str, after: datetime | None
) -> Iterator[dict[str, Any]]:
    counts: Counter[str] = Counter()
    # The client sends several batches at once.
    for point in sorted(history.series(job.id, key), key=lambda point: point.timestamp):
        at = datetime.fromtimestamp(point.timestamp / 1000, timezone.utc)
        name = f"{key}/{point.timestamp}/{point.value!r}"
        counts[name] += 1
        if after is None or at > after:
            id = f"{name}/{counts[name]}"
            cells = {key: record_rules.number_json(point.value)}
            yield _json(job, key, id, _SCALAR, at, {key: "double"}, cells)


def _json(
    job: Job,
    key: str,
    id: str,
    kind: str,
    at: datetime,
    columns: Mapping[str, str],
    cells: Mapping[str, Any],
) -> dict[str, Any]:
    values = {name: value for name, value in cells.items() if name in columns}
    location = next((text for text in values.values() if str(text).startswith(_ARTIFACT)), None)
    properties = [
        # The client compares types with their names in lower case.
        {"propertyId": name, "name": name, "type": columns[name].lower()}
        for name in values
    ]
    return {
        "runId": job.name,
        "metricId": id,
        "metricType": kind,
        "createdUtc": timestamp(at),
        "name": key,
        "description": "",
        "label": None,
        "numCells": 1,
        "dataLocation": location,
        "cells": [values],
        "schema": {"numProperties": len(properties), "properties": properties},
    }
