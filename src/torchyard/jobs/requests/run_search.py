"""Finding runs and experiments: conditions, orders and pages as SQL.

Owns: the queries, on SQLite and PostgreSQL alike.
Leaves: the language in which conditions are asked to mlflow/search.py,
and the fewest runs that can meet a condition to run_candidates.py.
Always: the database selects, sorts and cuts; nothing of a run that is not on the page is loaded,
and of those on it no specs.

A run without the value that is asked for holds no condition but `IS NULL`; in an order it comes
last either way, a NaN just before it. Times are ms since 1970.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Select,
    String,
    Subquery,
    Table,
    and_,
    case,
    cast,
    exists,
    false,
    func,
    literal,
    or_,
    select,
    true,
    type_coerce,
    union_all,
)

from torchyard.jobs.history.history_store import metrics, params
from torchyard.jobs.records import adoptions, job_candidates, text_index
from torchyard.jobs.records.dataset_inputs import run_datasets
from torchyard.jobs.records.experiment_store import experiments
from torchyard.jobs.records.store import RUN_NAME, jobs, tag_of
from torchyard.jobs.records.types import Experiment, Job, JobError, Status
from torchyard.jobs.requests import run_candidates
from torchyard.jobs.requests.search_types import Condition as Condition
from torchyard.jobs.requests.search_types import Order as Order
from torchyard.jobs.requests.search_types import View as View

# The property of a run whose artifacts a client keeps elsewhere.
ARTIFACT_URI = "mlflow.artifact_uri"
_HEAVY = frozenset({"spec", "environment", "environment_hash"})
_JOBS_A_QUERY = 500
# SQLite joins 64 tables at most; a database that plans a join of so many is slow before that.
_MOST_JOINS = 16
# Up to so many experiments are searched one after the other.
_IN_TURN = 20
# How many of the best by a metric are looked at for a page: so many for each run on it, and more.
_CANDIDATES, _MORE_CANDIDATES = 4, 200
# So many of the newest are looked at before the runs that meet several conditions are counted.
_NEWEST = 5_000


class _Side(NamedTuple):
    """What a condition or an order looks at; `there` is false where a run has no such value."""

    value: ColumnElement[Any]
    there: ColumnElement[bool] | None = None
    is_number: bool = False
    is_always_there: bool = False


def find_runs(
    connection: Connection,
    experiment_ids: Collection[int],
    view: View,
    implied_tags: Mapping[str, str],
) -> list[Job]:
    """The page of runs and jobs, their specs left out, newest first where the orders are equal.

    Args:
        implied_tags: tags that every run has unless it says otherwise, and the attribute or, in
            single quotes, the text that they hold.
    """
    question = Question(connection, list(experiment_ids), view, implied_tags)
    for find in (question.ids_of_few, question.ids_by_metric, question.ids_of_joint):
        ids = find()
        if ids is not None:
            return _jobs_by_id(connection, ids)
    return _jobs_by_id(connection, question.ids())


@dataclass(frozen=True)
class Question:
    """One search, and the ways to answer it."""

    connection: Connection
    experiment_ids: Sequence[int]
    view: View
    implied_tags: Mapping[str, str]
    more_candidates: int = _MORE_CANDIDATES
    few: int = job_candidates.FEW
    newest: int = _NEWEST

    def ids(self) -> list[int]:
        """The page, whatever is asked for."""
        if self.view.orders or self.view.limit is None or len(self.experiment_ids) > _IN_TURN:
            query = _page(self._matching(self._search(), self.experiment_ids), self.view)
            return list(self.connection.execute(query).scalars())
        # The newest of each experiment, which an index has in order, hold the newest of all.
        ends = replace(self.view, offset=0, limit=self.view.offset + self.view.limit)
        columns = (_start().label("start"), jobs.c.name)
        newest = [
            _page(self._matching(self._search(), [number], columns), ends).subquery()
            for number in self.experiment_ids
        ]
        if not newest:
            return []
        every = union_all(*(select(each) for each in newest)).subquery()
        query = select(every.c.id).order_by(every.c.start.desc(), every.c.name)
        return list(self.connection.execute(_page(query, self.view)).scalars())

    def ids_of_few(self) -> list[int] | None:
        """The page of the few runs that can meet one of the conditions; None if many can."""
        candidates = job_candidates.few(self.connection, self._sources(), self.few)
        return None if candidates is None else self._ids_among(candidates)

    def ids_of_joint(self) -> list[int] | None:
        """The newest runs where many meet each of several conditions, and few all of them.

        None if many do. A part of the runs is looked at first, for mostly it fills the page.
        """
        limit, conditions = self.view.limit, self.view.conditions
        if limit is None or self.view.orders or len(conditions) < 2:
            return None
        if self.view.offset + limit > self.few:
            return None
        newest = self._ids_of_newest()
        if newest is None or len(newest) == limit:
            return newest
        candidates = job_candidates.few_in_all(self.connection, self._sources(), self.few)
        return None if candidates is None else self._ids_among(candidates)

    def _ids_of_newest(self) -> list[int] | None:
        """Those on the page that are among the newest of one experiment; None if these are all."""
        if len(self.experiment_ids) != 1 or self.view.deleted is None:
            return None
        start = _start()
        edge = self.connection.execute(
            select(start)
            .where(jobs.c.experiment_id == self.experiment_ids[0])
            .where(jobs.c.deleted == self.view.deleted)
            .order_by(start.desc())
            .offset(self.newest)
            .limit(1)
        ).scalar()
        if edge is None:
            return None
        query = self._matching(self._search(), self.experiment_ids).where(start > edge)
        return list(self.connection.execute(_page(query, self.view)).scalars())

    def _sources(self) -> list[job_candidates.Source]:
        by_name = partial(text_index.candidates, self.connection, limit=self.few)
        scope = run_candidates.Places(self.experiment_ids, self.view.deleted, by_name)
        return run_candidates.sources(self.view.conditions, scope, self.implied_tags)

    def _ids_among(self, candidates: Select[Any]) -> list[int]:
        # Not by an index of experiments, which has all of their runs.
        experiment = jobs.c.experiment_id + 0
        query = self._ordered(self._search(), experiment.in_(self.experiment_ids))
        query = query.where(jobs.c.id.in_(candidates))
        return list(self.connection.execute(_page(query, self.view)).scalars())

    def ids_by_metric(self) -> list[int] | None:
        """The page of an order by a metric from the best of all runs; None if they are too few.

        An index has the runs in the order of a metric, those of other experiments among them.
        """
        limit = self.view.limit
        if not self.view.orders or self.view.orders[0].kind != "metric" or limit is None:
            return None
        order = self.view.orders[0]
        bound = _CANDIDATES * (self.view.offset + limit) + self.more_candidates
        value = metrics.c.latest_value
        best = (
            select(metrics.c.job_id, value)
            .where(metrics.c.key == order.key, value.is_not(None))
            .order_by(value.desc() if order.descending else value.asc())
            .limit(bound)
            .subquery()
        )
        last = func.min if order.descending else func.max
        count, edge = self.connection.execute(
            select(func.count(), last(best.c.latest_value)).select_from(best)
        ).one()
        search = self._search(order.key, best)
        query = self._matching(search, self.experiment_ids, (best.c.latest_value,))
        rows = self.connection.execute(_page(query, self.view)).all()
        # Beyond the edge there may be more with its value.
        is_whole = len(rows) == limit and (count < bound or rows[-1].latest_value != edge)
        return [row.id for row in rows] if is_whole else None

    def _search(self, key: str = "", best: Subquery | None = None) -> _Runs:
        """
        Args:
            best: values of the metric `key` by job, of which only those are wanted.
        """
        search = _Runs(self.connection.dialect.name, self.implied_tags)
        if best is not None:
            search.start_from(key, best)
        for condition in self.view.conditions:
            search.narrow(condition)
        for order in self.view.orders:
            search.sort(order)
        return search

    def _matching(
        self,
        search: _Runs,
        experiment_ids: Sequence[int],
        columns: Sequence[ColumnElement[Any]] = (),
    ) -> Select[Any]:
        """What was asked for in order, not cut to the page."""
        experiment = jobs.c.experiment_id
        is_one = len(experiment_ids) == 1
        in_place = experiment == experiment_ids[0] if is_one else experiment.in_(experiment_ids)
        return self._ordered(search, in_place, columns)

    def _ordered(
        self,
        search: _Runs,
        in_place: ColumnElement[bool],
        columns: Sequence[ColumnElement[Any]] = (),
    ) -> Select[Any]:
        query = (
            select(jobs.c.id, *columns)
            .select_from(search.joined)
            .where(in_place)
            .where(*search.wheres)
            .order_by(*search.orders, _start().desc(), jobs.c.name)
        )
        if self.view.deleted is not None:
            query = query.where(jobs.c.deleted == self.view.deleted)
        return query


def find_experiments(connection: Connection, workspace: str, view: View) -> list[Experiment]:
    """The page of experiments, newest first where the orders are equal."""
    dialect = connection.dialect.name
    wheres: list[ColumnElement[bool]] = [experiments.c.workspace == workspace]
    orders: list[ColumnElement[Any]] = []
    for condition in view.conditions:
        wheres.append(_holds(_of_experiment(condition, dialect), condition, dialect))
    for order in view.orders:
        orders += _sorted_by(_of_experiment(order, dialect), order)
    query = select(experiments).where(*wheres)
    if view.deleted is not None:
        query = query.where(experiments.c.deleted == view.deleted)
    query = query.order_by(*orders, experiments.c.created_at.desc(), experiments.c.id.desc())
    return [Experiment(**row._mapping) for row in connection.execute(_page(query, view))]


class _Runs:
    """The query on its way: each metric or parameter that is asked for is joined once.

    Databases join only so many tables; those beyond are looked up for each run.
    """

    def __init__(self, dialect: str, implied_tags: Mapping[str, str]) -> None:
        self._dialect = dialect
        self._implied = implied_tags
        self._sides: dict[tuple[str, str], _Side] = {}
        self._joins = 0
        self.joined: FromClause = jobs
        self.wheres: list[ColumnElement[bool]] = []
        self.orders: list[ColumnElement[Any]] = []

    def start_from(self, key: str, best: Subquery) -> None:
        """Look only at the jobs in `best`, which has the latest values of a metric."""
        self.joined = best.join(jobs, jobs.c.id == best.c.job_id)
        self._sides["metric", key] = _Side(best.c.latest_value, true(), is_number=True)

    def narrow(self, condition: Condition) -> None:
        if condition.kind == "dataset":
            side = _Side(run_datasets.c[condition.key])
            self.wheres.append(
                exists()
                .where(run_datasets.c.job_id == jobs.c.id)
                .where(_holds(side, condition, self._dialect))
            )
            return
        side = self._side(condition.kind, condition.key)
        holds = _holds(side, condition, self._dialect)
        if condition.operator in ("=", "IN") and self._is_parent(condition):
            names = condition.value if condition.operator == "IN" else (condition.value,)
            holds = or_(holds, jobs.c.id.in_(adoptions.adopted_by(names)))
        if condition.kind in ("metric", "param"):
            # The runs come in the order of the page until it is full; a plain condition would have
            # the database begin with all metrics that fit.
            holds = func.coalesce(holds, false())
        self.wheres.append(holds)

    def _is_parent(self, condition: Condition) -> bool:
        key = self._implied.get(condition.key) if condition.kind == "tag" else condition.key
        return condition.kind in ("tag", "attribute") and key == "parent"

    def sort(self, order: Order) -> None:
        self.orders += _sorted_by(self._side(order.kind, order.key), order)

    def _side(self, kind: str, key: str) -> _Side:
        if (kind, key) not in self._sides:
            self._sides[kind, key] = self._new_side(kind, key)
        return self._sides[kind, key]

    def _new_side(self, kind: str, key: str) -> _Side:
        if kind in ("metric", "param") and self._joins == _MOST_JOINS:
            return self._looked_up(kind, key)
        if kind == "metric":
            table = self._join(metrics, key)
            return _Side(table.c.latest_value, table.c.key.is_not(None), is_number=True)
        if kind == "param":
            return _Side(self._join(params, key).c.value)
        if kind == "tag":
            tag = tag_of(jobs.c.tags, key, self._dialect)
            implied = self._implied.get(key)
            return _Side(
                tag if implied is None else func.coalesce(tag, self._implied_value(implied))
            )
        return self._attribute(key)

    def _looked_up(self, kind: str, key: str) -> _Side:
        """A metric or parameter by a query of its own for each run, instead of a join."""
        table = (metrics if kind == "metric" else params).alias()
        same = and_(table.c.job_id == jobs.c.id, table.c.key == key)
        if kind == "param":
            return _Side(select(table.c.value).where(same).correlate(jobs).scalar_subquery())
        value = select(table.c.latest_value).where(same).correlate(jobs).scalar_subquery()
        there = exists(select(literal(1)).where(same).correlate(jobs))
        return _Side(value, there, is_number=True)

    def _join(self, table: Table, key: str) -> Any:
        self._joins += 1
        joined = table.alias()
        same = and_(joined.c.job_id == jobs.c.id, joined.c.key == key)
        self.joined = self.joined.outerjoin(joined, same)
        return joined

    def _implied_value(self, implied: str) -> ColumnElement[Any]:
        if implied.startswith("'"):
            return literal(implied.strip("'"))
        return self._attribute(implied).value

    def _attribute(self, key: str) -> _Side:
        if key == "start_time":
            return _Side(_milliseconds(_start()), is_number=True)
        if key == "end_time":
            return _Side(_milliseconds(jobs.c.ended_at), is_number=True)
        if key == "run_name":
            return _Side(RUN_NAME, is_always_there=True)
        if key == "parent":
            return _Side(func.nullif(jobs.c.parent, ""))
        if key == "artifact_uri":
            number = cast(jobs.c.experiment_id, String)
            default_uri = "mlflow-artifacts:/" + number + "/" + jobs.c.name + "/artifacts"
            return _Side(func.coalesce(jobs.c.properties[ARTIFACT_URI].as_string(), default_uri))
        columns = {"run_id": jobs.c.name, "status": jobs.c.status, "user_id": jobs.c.owner}
        return _Side(columns[key], is_always_there=True)


def _of_experiment(criterion: Condition | Order, dialect: str) -> _Side:
    if criterion.kind == "tag":
        return _Side(tag_of(experiments.c.tags, criterion.key, dialect))
    if criterion.key == "name":
        return _Side(experiments.c.name)
    if criterion.key == "experiment_id":
        # Ordered as numbers, compared as the texts that clients know.
        number = experiments.c.id
        return _Side(number if isinstance(criterion, Order) else cast(number, String))
    created = type_coerce(experiments.c.created_at, BigInteger)
    if criterion.key == "creation_time":
        return _Side(_milliseconds(created), is_number=True)
    changed = func.coalesce(type_coerce(experiments.c.updated_at, BigInteger), created)
    return _Side(_milliseconds(changed), is_number=True)


def _holds(side: _Side, condition: Condition, dialect: str) -> ColumnElement[bool]:
    value, expected = side.value, condition.value
    match condition.operator:
        case "IS NULL":
            return value.is_(None)
        case "IS NOT NULL":
            return value.is_not(None)
        case "IN":
            return value.in_(expected) if expected else false()
        case "NOT IN":
            return value.not_in(expected) if expected else value.is_not(None)
        case "LIKE":
            return _like(value, expected, dialect)
        case "ILIKE":
            return value.ilike(_escaped(expected), escape="\\")
        case "!=":
            different = value != expected
            # A NaN is kept as null and differs from everything.
            return different if side.there is None else or_(different, _is_nan(side))
        case _:
            return value.op(condition.operator, is_comparison=True)(expected)


def _like(value: ColumnElement[Any], pattern: str, dialect: str) -> ColumnElement[bool]:
    if dialect != "sqlite":
        return value.like(_escaped(pattern), escape="\\")
    # SQLite's LIKE takes upper and lower case for the same; its GLOB does not.
    glob = "".join(f"[{letter}]" if letter in "*?[" else letter for letter in pattern)
    return value.op("GLOB", is_comparison=True)(glob.replace("%", "*").replace("_", "?"))


def _escaped(pattern: str) -> str:
    return pattern.replace("\\", "\\\\")


def _sorted_by(side: _Side, order: Order) -> list[ColumnElement[Any]]:
    in_order = side.value.desc() if order.descending else side.value.asc()
    if side.is_always_there:
        return [in_order]
    missing = side.value.is_(None)
    last: ColumnElement[Any] = case((missing, 1), else_=0)
    if side.there is not None:
        last = case((side.there.is_not(True), 2), (missing, 1), else_=0)
    return [last, in_order]


def _is_nan(side: _Side) -> ColumnElement[bool]:
    assert side.there is not None
    return and_(side.there, side.value.is_(None))


def _start() -> ColumnElement[Any]:
    return func.coalesce(
        type_coerce(jobs.c.started_at, BigInteger), type_coerce(jobs.c.created_at, BigInteger)
    )


def _milliseconds(instant: ColumnElement[Any]) -> ColumnElement[Any]:
    return type_coerce(instant, BigInteger) // 1000


def _page(query: Select[Any], view: View) -> Select[Any]:
    if view.offset:
        query = query.offset(view.offset)
    return query if view.limit is None else query.limit(view.limit)


def _jobs_by_id(connection: Connection, ids: Sequence[int]) -> list[Job]:
    """Jobs by id, in that order, as lists show them: without what each was asked to do."""
    columns = [column for column in jobs.c if column.name not in _HEAVY]
    query = select(*columns, experiments.c.name.label("experiment_name")).join(
        experiments, jobs.c.experiment_id == experiments.c.id
    )
    by_id: dict[int, Job] = {}
    for start in range(0, len(ids), _JOBS_A_QUERY):
        some = ids[start : start + _JOBS_A_QUERY]
        for row in connection.execute(query.where(jobs.c.id.in_(some))):
            values = dict(row._mapping)
            values["priority_rank"] = values.pop("turn")
            values["status"] = Status(values["status"])
            error = values["error"]
            values["error"] = None if error is None else JobError(**error)
            by_id[row.id] = Job(**values, document={})
    return [by_id[job_id] for job_id in ids if job_id in by_id]
