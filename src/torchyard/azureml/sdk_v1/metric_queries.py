"""SDK v1's older question about metrics, which only its notebook widget still asks.

Owns: the route, its filter, its form: one object for each point and each row.
Leaves: what `get_metrics` asks to metrics.py, numbers to jobs/history/history.py, rows to
jobs/history/metric_rows.py.
Always: a point keeps its id when others arrive late, for the widget asks again for the last
minutes and knows by ids what it has already.

Source: the requests of azureml-core 1.61 and azureml-widgets 1.62.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.azureml.arm.resources import mark_of, timestamp
from torchyard.azureml.common.calls import Call, Caller
from torchyard.azureml.common.errors import AzureRoute
from torchyard.base.errors import InvalidInput
from torchyard.jobs import actions
from torchyard.jobs.history import metric_rows
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import Services
from torchyard.shared import record_rules

_SCALAR = "azureml.v1.scalar"
_ARTIFACT = "aml://artifactId/"
_PAGE = 5000
_MOST_RUNS = 1000
# The client writes `RunId eq a or RunId eq b and MetricType eq …` and means (a or b) and …
_JOINT = re.compile(r"\s+(?:and|or)\s+(?=(?:RunId|MetricType|Name|CreatedUtc)\s+(?:eq|gt)\s)", re.I)
_CONDITION = re.compile(r"(RunId|MetricType|Name|CreatedUtc)\s+(eq|gt)\s+(.+)", re.I | re.DOTALL)


@dataclass
class _Filter:
    """What is asked for; an empty list or None asks for all."""

    runs: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    after: datetime | None = None

    def wants_kind(self, kind: str) -> bool:
        return not self.kinds or kind in self.kinds


def routes(services: Services, caller: Caller) -> APIRouter:
    """`metrics:query` of the history service."""
    found = APIRouter(route_class=AzureRoute)
    the_call = Annotated[Call, Depends(caller)]

    @found.post("/history/experiments/{experiment}/metrics:query")
    def query(call: the_call, experiment: str) -> JSONResponse:
        asked = _read(str(call.document.get("filter") or ""))
        jobs = [actions.get(services, call.workspace.name, run) for run in asked.runs]
        token = str(call.document.get("continuationToken") or "")
        value, rest = _page(services, jobs, asked, token, _size(call.document.get("top")))
        return JSONResponse({"value": value, "continuationToken": rest, "nextLink": None})

    return found


def _read(text: str) -> _Filter:
    """
    Raises:
        InvalidInput: it is not understood, or names no run.
    """
    found = _Filter()
    for one in _JOINT.split(text.strip().removeprefix("(").removesuffix(")")):
        condition = _CONDITION.fullmatch(one.strip())
        key, operator, value = condition.groups() if condition else ("", "", "")
        if (key.lower() == "createdutc") != (operator.lower() == "gt"):
            key = ""
        match key.lower():
            case "runid":
                found.runs.append(value)
            case "metrictype":
                found.kinds.append(value)
            case "name":
                found.keys.append(value)
            case "createdutc":
                found.after = _moment(value)
            case _:
                raise _not_understood(text)
    if not 0 < len(found.runs) <= _MOST_RUNS:
        raise _not_understood(text)
    return found


def _moment(text: str) -> datetime:
    """Python 3.10 reads no `Z`."""
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise _not_understood(text) from error
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def _not_understood(text: str) -> InvalidInput:
    return InvalidInput(
        f"the filter `{text[:200]}` is not understood",
        f"name 1 to {_MOST_RUNS} runs as `RunId eq <id>`; `MetricType eq`, `name eq` and "
        "`CreatedUtc gt` may follow",
        at=["filter"],
    )


def _size(top: Any) -> int:
    if top is None:
        return _PAGE
    if type(top) is not int or top < 1:
        raise InvalidInput(f"`top` is `{str(top)[:20]}`", "a number from 1 on", at=["top"])
    return min(top, _PAGE)


def _page(
    services: Services, jobs: list[Job], asked: _Filter, token: str, size: int
) -> tuple[list[dict[str, Any]], str | None]:
    """(up to `size` of what is asked for, where to go on).

    Args:
        token: `<place of a run's key>.<how many of it were told>`, empty for the beginning.
    """
    sources = [(job, key) for job in jobs for key in _keys(services, job, asked)]
    place, told = (mark_of(one) or 0 for one in (*token.split("."), "")[:2])
    found: list[dict[str, Any]] = []
    while place < len(sources):
        job, key = sources[place]
        left = size - len(found)
        more = list(islice(_told(services, job, key, asked), told, told + left + 1))
        found += more[:left]
        if len(more) > left:
            return found, f"{place}.{told + left}"
        place, told = place + 1, 0
    return found, None


def _keys(services: Services, job: Job, asked: _Filter) -> list[str]:
    with services.db.read() as connection:
        rows = {row.key for row in metric_rows.of_job(connection, job.id)}
    return sorted(
        key
        for key in {*rows, *services.history.keys(job.id)}
        if not asked.keys or key in asked.keys
    )


def _told(services: Services, job: Job, key: str, asked: _Filter) -> Iterator[dict[str, Any]]:
    if asked.wants_kind(_SCALAR):
        yield from _numbers(services, job, key, asked.after)
    with services.db.read() as connection:
        rows = metric_rows.of_job(connection, job.id, key)
    for row in rows:
        if asked.wants_kind(row.kind) and (asked.after is None or row.at > asked.after):
            yield _json(job, key, row.row_id, row.kind, row.at, row.columns, row.values)


def _numbers(
    services: Services, job: Job, key: str, after: datetime | None
) -> Iterator[dict[str, Any]]:
    seen: Counter[str] = Counter()
    # The client sends several batches at once.
    for one in sorted(services.history.series(job.id, key), key=lambda point: point.timestamp):
        at = datetime.fromtimestamp(one.timestamp / 1000, timezone.utc)
        point = f"{key}/{one.timestamp}/{one.value!r}"
        seen[point] += 1
        if after is None or at > after:
            id = f"{point}/{seen[point]}"
            cells = {key: record_rules.number_json(one.value)}
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
    held = {name: value for name, value in cells.items() if name in columns}
    place = next((one for one in held.values() if str(one).startswith(_ARTIFACT)), None)
    properties = [
        # Types in the client's own spelling are compared with those in small letters.
        {"propertyId": name, "name": name, "type": columns[name].lower()}
        for name in held
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
        "dataLocation": place,
        "cells": [held],
        "schema": {"numProperties": len(properties), "properties": properties},
    }
