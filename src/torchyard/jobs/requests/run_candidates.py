"""Which few runs can meet a condition of a search.

Owns: what an index can tell of each kind of condition.
Leaves: counting and choosing to records/job_candidates.py, the exact test to run_search.py.
Always: a condition that no index serves has no source; it is tested all the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Select, func, select, type_coerce

from torchyard.jobs.history.history_store import PARAM_START, metrics, params
from torchyard.jobs.records.dataset_inputs import run_datasets
from torchyard.jobs.records.experiment_store import experiments
from torchyard.jobs.records.job_candidates import Source, begins_with, of_parent, one_of
from torchyard.jobs.records.store import RUN_NAME, jobs
from torchyard.jobs.records.tag_store import VALUE_LENGTH, job_tags, key_of
from torchyard.jobs.requests.search_types import Condition

_ANY_LETTERS = re.compile("[%_]")
_COMPARISONS = frozenset({"=", "<", "<=", ">", ">="})
# Values that are compared with `IN` are looked up one by one.
_MOST_VALUES = 100
# Names and times are looked up in each experiment.
_MOST_EXPERIMENTS = 5
_MILLISECOND_US = 1000
_MOST_US = 2**62


class Places(NamedTuple):
    """Where a search looks; `deleted` None takes both.

    `named` are the jobs whose name may contain some texts, None if that is not known.
    """

    experiment_ids: Sequence[int]
    deleted: bool | None
    named: Callable[[Sequence[str]], Source | None]


def sources(
    conditions: Sequence[Condition],
    scope: Places,
    implied_tags: Mapping[str, str],
) -> list[Source]:
    """Of each condition that an index serves, exact ones first."""
    ordered = sorted(conditions, key=lambda condition: condition.operator not in ("=", "IN"))
    every = (_source(condition, scope, implied_tags) for condition in ordered)
    return [source for source in every if source is not None]


def _source(condition: Condition, scope: Places, implied_tags: Mapping[str, str]) -> Source | None:
    if condition.operator == "IS NULL":
        return None
    match condition.kind:
        case "metric":
            return [_by_metric(condition)]
        case "param":
            return [_by_value(select(params.c.job_id), params.c.key, PARAM_START, condition)]
        case "tag":
            return _by_tag(condition, scope, implied_tags)
        case "dataset":
            return _by_dataset(condition)
    return _by_attribute(condition, scope)


def _by_metric(condition: Condition) -> Select[Any]:
    query = select(metrics.c.job_id).where(metrics.c.key == condition.key)
    if condition.operator in _COMPARISONS:
        compared = metrics.c.latest_value.op(condition.operator, is_comparison=True)
        query = query.where(compared(condition.value))
    return query


def _by_value(
    query: Select[Any], key: ColumnElement[Any], start: ColumnElement[Any], condition: Condition
) -> Select[Any]:
    """By as much of the value as the index holds; by the key alone if that tells nothing."""
    query = query.where(key == condition.key)
    index_condition = _index_condition(start, condition, VALUE_LENGTH)
    return query if index_condition is None else query.where(index_condition)


def _index_condition(
    column: ColumnElement[Any], condition: Condition, length: int = 0
) -> ColumnElement[bool] | None:
    """What an index can tell of a text; None if it can't."""
    values = _texts(condition)
    # SQLite takes such a character for the end of a text.
    if not values or len(values) > _MOST_VALUES or any("\0" in text for text in values):
        return None
    cut = sorted({text[:length] if length else text for text in values})
    if condition.operator != "LIKE":
        return one_of(column, cut)
    start = cut[0].partition("%")[0].partition("_")[0]
    return begins_with(column, start) if start else None


def _texts(condition: Condition) -> Sequence[str]:
    if condition.operator in ("=", "LIKE"):
        return (condition.value,)
    return condition.value if condition.operator == "IN" else ()


def _by_tag(condition: Condition, scope: Places, implied_tags: Mapping[str, str]) -> Source | None:
    of_key = Condition(condition.kind, key_of(condition.key), condition.operator, condition.value)
    tagged = _by_value(select(job_tags.c.job_id), job_tags.c.key, job_tags.c.value, of_key)
    implied = implied_tags.get(condition.key)
    if implied is None:
        return [tagged]
    if implied.startswith("'"):
        return None
    others = _by_attribute(
        Condition("attribute", implied, condition.operator, condition.value), scope
    )
    return None if others is None else [tagged, *others]


def _by_dataset(condition: Condition) -> Source | None:
    index_condition = (
        _index_condition(run_datasets.c.name, condition) if condition.key == "name" else None
    )
    return (
        None if index_condition is None else [select(run_datasets.c.job_id).where(index_condition)]
    )


def _by_attribute(condition: Condition, scope: Places) -> Source | None:
    if condition.key == "start_time":
        return _by_start(condition, scope)
    columns = {
        "run_id": jobs.c.name,
        "run_name": RUN_NAME,
        "user_id": jobs.c.owner,
        "status": jobs.c.status,
        "parent": jobs.c.parent,
    }
    column = columns.get(condition.key)
    index_condition = None if column is None else _index_condition(column, condition)
    if index_condition is None:
        is_part = condition.key == "run_name" and condition.operator in ("LIKE", "ILIKE")
        return scope.named(_ANY_LETTERS.split(condition.value)) if is_part else None
    if condition.key == "parent":
        return of_parent(_texts(condition)) if condition.operator != "LIKE" else None
    query = select(jobs.c.id).where(index_condition)
    if condition.key == "run_id":
        workspaces = select(experiments.c.workspace).where(
            experiments.c.id.in_(scope.experiment_ids)
        )
        return [query.where(jobs.c.workspace.in_(workspaces))]
    if condition.key == "run_name":
        return _in_each_place(query, scope)
    return [query]


def _by_start(condition: Condition, scope: Places) -> Source | None:
    """Within a few milliseconds; a run that has not started counts from its submission."""
    if condition.operator not in _COMPARISONS or condition.value != condition.value:
        return None
    bound = int(max(-_MOST_US, min(_MOST_US, condition.value * _MILLISECOND_US)))
    # As the index says it; see `_start` of run_search.py.
    start = func.coalesce(
        type_coerce(jobs.c.started_at, BigInteger), type_coerce(jobs.c.created_at, BigInteger)
    )
    # So ordered, SQLite takes the index that has it.
    query = select(jobs.c.id).order_by(start.desc())
    if "<" not in condition.operator:
        query = query.where(start >= bound - 2 * _MILLISECOND_US)
    if ">" not in condition.operator:
        query = query.where(start <= bound + 2 * _MILLISECOND_US)
    return _in_each_place(query, scope)


def _in_each_place(query: Select[Any], scope: Places) -> Source | None:
    if not 0 < len(scope.experiment_ids) <= _MOST_EXPERIMENTS:
        return None
    # Both columns come first in the index.
    kinds = (False, True) if scope.deleted is None else (scope.deleted,)
    return [
        query.where(jobs.c.experiment_id == number, jobs.c.deleted == deleted)
        for number in scope.experiment_ids
        for deleted in kinds
    ]
