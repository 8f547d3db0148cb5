"""The tables of jobs and their events.

Owns: SQL, and the way between rows and the types of this package.
Leaves: the tries of a job to attempt_store.py, what may happen when to jobs/actions.py.
Always: events of a job are numbered without gaps, because only a write transaction numbers them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    Row,
    Select,
    String,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    case,
    delete,
    false,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
    update,
)

from torchyard.base.db import Instant, execute_each, metadata
from torchyard.base.documents import secret_variables
from torchyard.jobs.records import job_events, removal_store, renames, tag_store
from torchyard.jobs.records.attempt_store import attempt_nodes, attempts, error_of
from torchyard.jobs.records.experiment_store import Id, experiments
from torchyard.jobs.records.job_events import Event, EventBody
from torchyard.jobs.records.row_changes import JobColumns
from torchyard.jobs.records.types import (
    COMMAND,
    ENDED,
    RUN,
    CommandJob,
    Job,
    NewJob,
    Status,
    parse_job,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Key = TypeVar("_Key", int, str)

# The tag by which MLflow's clients name a run.
_NAME_TAG = "mlflow.runName"
_NAME_LENGTH = 255

# Databases bound the number of parameters in one statement.
_IDS_A_QUERY = 500

jobs = Table(
    "jobs",
    metadata,
    Column("id", Id, primary_key=True),
    Column("workspace", String(64), nullable=False),
    Column("name", String(256), nullable=False),
    Column("type", String(16), nullable=False),
    Column("experiment_id", ForeignKey("experiments.id"), nullable=False, index=True),
    Column("status", String(20), nullable=False),
    Column("owner", String(128), nullable=False),
    Column("display_name", String(256), nullable=False),
    Column(
        "spec",
        secret_variables.sealed("job `{name}`"),
        nullable=False,
    ),
    Column("spec_hash", String(64), nullable=False),
    Column("environment", JSON),
    Column("environment_hash", String(64), nullable=False),
    Column("compute", String(64), nullable=False),
    Column("node_count", Integer, nullable=False),
    Column("processes_per_node", Integer, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("started_at", Instant),
    Column("ended_at", Instant),
    Column("tags", JSON, nullable=False),
    Column("properties", JSON, nullable=False),
    Column("parent", String(256), nullable=False),
    Column("exit_code", Integer),
    Column("error", JSON),
    Column("attempt", Integer, nullable=False),
    Column("deleted", Boolean, nullable=False),
    Column("archived", Boolean, nullable=False),
    Column("description", Text, nullable=False),
    Column("retry_at", Instant),
    Column("avoided_slots", JSON),
    Column("turn", Integer, key="priority_rank", nullable=False, server_default="1"),
    Column("limit_s", Float),
    Column("gpus", Integer, nullable=False, server_default="0"),
    Column("started_steady", String(64), nullable=False, server_default=""),
    Column("duration_s", Float),
    UniqueConstraint("workspace", "name"),
    Index("ix_jobs_status_id", "status", "id"),
    Index("ix_jobs_workspace_id", "workspace", "id"),
    # The queue is read without the rows, too.
    Index("ix_jobs_queue", "status", "workspace", "compute", "priority_rank", "id", "node_count"),
    Index("ix_jobs_preparing", "status", "environment_hash", "id"),
    # For filters that few jobs fit; most have no parent.
    Index("ix_jobs_owner_id", "owner", "id"),
    Index("ix_jobs_created_at_id", "created_at", "id"),
    Index(
        "ix_jobs_parent_id",
        *("parent", "id"),
        sqlite_where=text("parent <> ''"),
        postgresql_where=text("parent <> ''"),
    ),
    # What a search looks at first: it need not read the rows, which hold the specs.
    Index(
        "ix_jobs_run_search",
        *("experiment_id", "deleted", "started_at", "created_at", "name", "status", "ended_at"),
    ),
)
HAS_RANKS, IS_RUN = jobs.c.type == COMMAND, jobs.c.type == RUN
"""As of `Job`, for queries."""
RUN_NAME = case(
    (jobs.c.display_name == literal_column("''"), jobs.c.name), else_=jobs.c.display_name
)
"""What a run is called."""
# The newest runs of an experiment, in the order of searches, and all by name.
# As the migration writes it: PostgreSQL needs the outer brackets.
_RUN_NAME_TEXT = text("(CASE WHEN display_name = '' THEN name ELSE display_name END)")
Index("ix_jobs_by_name", jobs.c.experiment_id, jobs.c.deleted, _RUN_NAME_TEXT)
Index(
    "ix_jobs_newest",
    jobs.c.experiment_id,
    jobs.c.deleted,
    func.coalesce(jobs.c.started_at, jobs.c.created_at).desc(),
    jobs.c.name,
)

events = Table(
    "events",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("at", Instant, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("body", JSON, nullable=False),
)

# Jobs


def add_job(connection: Connection, job: NewJob) -> Job:
    values = removal_store.numbered(connection, jobs, _values_of(job))
    result = connection.execute(insert(jobs).values(values))
    assert result.inserted_primary_key is not None
    job_id = result.inserted_primary_key[0]
    tag_store.add(connection, {job_id: job.tags})
    return job_by_id(connection, job_id)


def _values_of(job: NewJob) -> dict[str, Any]:
    """By column; the number is the database's to give."""
    values = {
        **vars(job),
        "status": job.status.value,
        "spec": job.document,
        "environment": None if job.environment is None else job.environment.to_json(),
        "environment_hash": "" if job.environment is None else job.environment.hash,
        "attempt": 0,
        "deleted": False,
        "archived": False,
    }
    del values["document"]
    return values


def _jobs() -> Select[Any]:
    return select(jobs, experiments.c.name.label("experiment_name")).join(
        experiments, jobs.c.experiment_id == experiments.c.id
    )


# Asked for at every metric that is logged: built once.
_NAMED = _jobs().where(jobs.c.workspace == bindparam("place"), jobs.c.name == bindparam("called"))


def job_named(connection: Connection, workspace: str, name: str) -> Job | None:
    row = connection.execute(_NAMED, {"place": workspace, "called": name}).one_or_none()
    return None if row is None else _job(row)


_ALL_NAMED = _jobs().where(
    jobs.c.workspace == bindparam("place"), jobs.c.name.in_(bindparam("names", expanding=True))
)


def jobs_named(connection: Connection, workspace: str, names: Sequence[str]) -> dict[str, Job]:
    """Those that exist, by their name."""
    rows = [
        row
        for some in _portions(names)
        for row in connection.execute(_ALL_NAMED, {"place": workspace, "names": some})
    ]
    return {row.name: _job(row) for row in rows}


_BY_ID = _jobs().where(jobs.c.id == bindparam("number"))


def job_if_any(connection: Connection, job_id: int) -> Job | None:
    row = connection.execute(_BY_ID, {"number": job_id}).one_or_none()
    return None if row is None else _job(row)


_BY_IDS = _jobs().where(jobs.c.id.in_(bindparam("numbers", expanding=True)))


def jobs_by_id(connection: Connection, job_ids: Sequence[int]) -> dict[int, Job]:
    rows = [
        row for some in _portions(job_ids) for row in connection.execute(_BY_IDS, {"numbers": some})
    ]
    return {row.id: _job(row) for row in rows}


def job_by_id(connection: Connection, job_id: int) -> Job:
    return _job(connection.execute(_BY_ID, {"number": job_id}).one())


def command_job_by_id(connection: Connection, job_id: int) -> CommandJob:
    """The row and its document, parsed."""
    return parse_job(job_by_id(connection, job_id))


def tag_of(column: Column[Any], key: str, dialect: str) -> ColumnElement[Any]:
    """The text that a column of tags holds under `key`; null when there is none.

    SQLite compares keys as the JSON is written, so `key` is written alike.
    """
    written = json.dumps(key)[1:-1] if dialect == "sqlite" else key
    tag: ColumnElement[Any] = column[written].as_string()
    return tag


def ended_jobs(
    connection: Connection,
    workspace: str,
    experiment_ids: Collection[int] | None = None,
    before: datetime | None = None,
) -> list[Job]:
    """Newest first, deleted and archived ones too; `before` is compared with their end."""
    query = _jobs().where(
        jobs.c.workspace == workspace, jobs.c.status.in_([status.value for status in ENDED])
    )
    if experiment_ids is not None:
        query = query.where(jobs.c.experiment_id.in_(experiment_ids))
    if before is not None:
        query = query.where(func.coalesce(jobs.c.ended_at, jobs.c.created_at) < before)
    return [_job(row) for row in connection.execute(query.order_by(jobs.c.id.desc()))]


def children_in(connection: Connection, workspace: str) -> list[Job]:
    """Every job and run that has a parent, deleted ones too."""
    query = _jobs().where(jobs.c.workspace == workspace, jobs.c.parent != "")
    return [_job(row) for row in connection.execute(query)]


_RUNNING_RUNS = _jobs().where(
    jobs.c.status == Status.RUNNING.value,
    IS_RUN,
    jobs.c.workspace == bindparam("place"),
    jobs.c.parent.in_(bindparam("above", expanding=True)),
)


def running_runs(connection: Connection, workspace: str, parents: Sequence[str]) -> list[Job]:
    """Runs that scripts made right below these, and that nobody has ended."""
    rows = connection.execute(_RUNNING_RUNS, {"place": workspace, "above": parents})
    return [_job(row) for row in rows]


def count_jobs(connection: Connection, workspace: str) -> dict[int, tuple[int, datetime]]:
    """How many jobs and runs each experiment has, and when the last of them was made."""
    rows = connection.execute(
        select(jobs.c.experiment_id, func.count(), func.max(jobs.c.created_at))
        .where(jobs.c.workspace == workspace, jobs.c.deleted == false())
        .group_by(jobs.c.experiment_id)
    )
    return {experiment: (number, last) for experiment, number, last in rows}


def job_names(connection: Connection, workspace: str, limit: int | None = 1000) -> list[str]:
    rows = connection.execute(
        select(jobs.c.name)
        .where(jobs.c.workspace == workspace)
        .order_by(jobs.c.id.desc())
        .limit(limit)
    )
    return [row.name for row in rows]


def archive_children(connection: Connection, workspace: str, parent: str, archived: bool) -> None:
    """Archive or restore every ended job right below another."""
    below = (jobs.c.workspace == workspace, jobs.c.parent == parent)
    ended = jobs.c.status.in_([status.value for status in ENDED])
    connection.execute(update(jobs).where(*below, ended).values(archived=archived))


def jobs_in(connection: Connection, statuses: Collection[Status], type: str = COMMAND) -> list[Job]:
    """Jobs of one type and all workspaces in these statuses, in the order of their submission."""
    rows = connection.execute(
        _jobs()
        .where(jobs.c.type == type, jobs.c.status.in_([status.value for status in statuses]))
        .order_by(jobs.c.id)
    )
    return [_job(row) for row in rows]


_OWNERS_OF_LIVE = (
    select(jobs.c.workspace, jobs.c.owner)
    .where(jobs.c.status.in_([status.value for status in Status if status not in ENDED]), ~IS_RUN)
    .distinct()
)


def owners_of_live(connection: Connection) -> list[tuple[str, str]]:
    """The workspaces and owners of jobs that have not ended; of runs without a job none."""
    rows = connection.execute(_OWNERS_OF_LIVE)
    return [(row.workspace, row.owner) for row in rows]


_NODES_WANTED = (
    select(jobs.c.workspace, jobs.c.compute, func.sum(jobs.c.node_count))
    .where(HAS_RANKS, jobs.c.status == Status.QUEUED.value)
    .where(or_(jobs.c.retry_at.is_(None), jobs.c.retry_at <= bindparam("now")))
    .group_by(jobs.c.workspace, jobs.c.compute)
)


def nodes_wanted(connection: Connection, now: datetime) -> dict[tuple[str, str], int]:
    """By workspace and cluster, how many nodes the queued jobs ask for; who pauses does not."""
    rows = connection.execute(_NODES_WANTED, {"now": now})
    return {(workspace, compute): int(count) for workspace, compute, count in rows}


def count_by_status(connection: Connection, statuses: Collection[Status]) -> dict[Status, int]:
    """How many jobs of all workspaces are in these statuses; without those that nobody is in."""
    rows = connection.execute(
        select(jobs.c.status, func.count())
        .where(jobs.c.status.in_([status.value for status in statuses]))
        .group_by(jobs.c.status)
    )
    return {Status(status): int(count) for status, count in rows}


def queue_size(connection: Connection) -> tuple[int, int, datetime | None]:
    """(jobs, nodes they ask for, when the oldest was submitted) of those that wait for nodes."""
    queued = jobs.c.status == Status.QUEUED.value
    count, nodes = connection.execute(
        select(func.count(), func.coalesce(func.sum(jobs.c.node_count), 0)).where(queued)
    ).one()
    # The index has them in the order of their submission.
    oldest = connection.execute(
        select(jobs.c.created_at).where(queued).order_by(jobs.c.id).limit(1)
    ).scalar()
    return int(count), int(nodes), oldest


def queued_at(connection: Connection, workspace: str, compute: str) -> list[Job]:
    """The jobs that wait for nodes of a cluster, in the order of the queue."""
    return _at(connection, workspace, compute, [Status.QUEUED])


def live_at(connection: Connection, workspace: str, compute: str) -> list[Job]:
    """The jobs of a cluster that have not ended."""
    return _at(connection, workspace, compute, [status for status in Status if not status.ended])


def _at(
    connection: Connection, workspace: str, compute: str, statuses: Collection[Status]
) -> list[Job]:
    rows = connection.execute(
        _jobs()
        .where(HAS_RANKS, jobs.c.status.in_([status.value for status in statuses]))
        .where(jobs.c.workspace == workspace, jobs.c.compute == compute)
        .order_by(jobs.c.priority_rank, jobs.c.id)
    )
    return [_job(row) for row in rows]


class NodeUse(NamedTuple):
    """The nodes that one try of a job held; `end` is None while it does, `gpus` are of a node."""

    job_id: int
    owner: str
    node_count: int
    gpus: int
    start: datetime
    end: datetime | None


def held_between(
    connection: Connection, workspace: str, compute: str, since: datetime, until: datetime
) -> Iterator[NodeUse]:
    """Every try that held nodes of a cluster at some time of a period."""
    table = attempts.c
    query = (
        select(
            jobs.c.id,
            jobs.c.owner,
            table.node_count,
            jobs.c.gpus,
            table.created_at,
            table.ended_at,
        )
        .join(jobs, jobs.c.id == table.job_id)
        .where(
            jobs.c.workspace == workspace,
            jobs.c.compute == compute,
            or_(table.ended_at.is_(None), table.ended_at > since),
            table.created_at < until,
        )
    )
    for row in connection.execute(query):
        yield NodeUse(*row)


def queued_since(connection: Connection, job_id: int) -> datetime | None:
    """When a job last came into the queue."""
    queued_at: datetime | None = connection.execute(
        select(events.c.at)
        .where(events.c.job_id == job_id, events.c.kind == "stage")
        .order_by(events.c.seq.desc())
        .limit(1)
    ).scalar()
    return queued_at


def hide_ended(connection: Connection, job_ids: Sequence[int]) -> set[int]:
    """Mark those of the jobs that have ended as deleted; which they were."""
    hidden: set[int] = set()
    for start in range(0, len(job_ids), _IDS_A_QUERY):
        some = jobs.c.id.in_(job_ids[start : start + _IDS_A_QUERY])
        ended = jobs.c.status.in_([status.value for status in ENDED])
        hidden |= set(connection.execute(select(jobs.c.id).where(some, ended)).scalars())
        connection.execute(update(jobs).where(some, ended).values(deleted=True))
    return hidden


# A tombstone stays, and nothing finds the rows of tags by their job.
_KEPT_OR_KEYED = (removal_store.removed_jobs, tag_store.job_tags)


def drop_job(connection: Connection, job_id: int) -> None:
    """The job's row, and in every table of the server those that belong to it."""
    tries = select(attempts.c.id).where(attempts.c.job_id == job_id)
    connection.execute(delete(attempt_nodes).where(attempt_nodes.c.attempt_id.in_(tries)))
    tags = connection.execute(select(jobs.c.tags).where(jobs.c.id == job_id)).scalar()
    tag_store.replace(connection, job_id, tags or {}, {})
    for table in reversed(metadata.sorted_tables):
        if "job_id" in table.c and table not in _KEPT_OR_KEYED:
            connection.execute(delete(table).where(table.c.job_id == job_id))
    connection.execute(delete(jobs).where(jobs.c.id == job_id))


def environment_of(connection: Connection, job_id: int) -> dict[str, Any]:
    """The environment as it was pinned when the job was created."""
    query = select(jobs.c.environment).where(jobs.c.id == job_id)
    environment: dict[str, Any] = connection.execute(query).scalar_one()
    return environment


_ENVIRONMENT_HASH = select(jobs.c.environment_hash).where(jobs.c.id == bindparam("number"))


def environment_hash_of(connection: Connection, job_id: int) -> str:
    """Of the environment as it was pinned; empty for a run without one."""
    return str(connection.execute(_ENVIRONMENT_HASH, {"number": job_id}).scalar_one())


def environment_hashes_of(connection: Connection, job_ids: Sequence[int]) -> dict[int, str]:
    """By job, as `environment_hash_of`."""
    columns = select(jobs.c.id, jobs.c.environment_hash)
    return {
        job_id: environment_hash
        for some in _portions(job_ids)
        for job_id, environment_hash in connection.execute(columns.where(jobs.c.id.in_(some)))
    }


_CHANGE = update(jobs).where(jobs.c.id == bindparam("number"))


def change_job(connection: Connection, job_id: int, **values: Unpack[JobColumns]) -> None:
    if "tags" in values:
        tag_store.replace(connection, job_id, _locked_tags(connection, job_id), values["tags"])
    if "display_name" in values or "description" in values:
        renames.note(connection, job_id)
    connection.execute(_CHANGE, {**values, "number": job_id})


def _locked_tags(connection: Connection, job_id: int) -> dict[str, str]:
    query = select(jobs.c.tags).where(jobs.c.id == job_id).with_for_update()
    tags: dict[str, str] = connection.execute(query).scalar_one()
    return tags


def change_jobs_of(connection: Connection, experiment: int, **values: Unpack[JobColumns]) -> None:
    """All runs and jobs of an experiment alike."""
    connection.execute(update(jobs).where(jobs.c.experiment_id == experiment).values(values))


def merge_tags(connection: Connection, job_id: int, tags: Mapping[str, str]) -> None:
    """Add to a job's tags; the same key gets the new value.

    MLflow's clients rename a run by a tag, so the display name follows that one.
    """
    before = _locked_tags(connection, job_id)
    values: JobColumns = {"tags": {**before, **tags}}
    if tags.get(_NAME_TAG):
        values["display_name"] = tags[_NAME_TAG][:_NAME_LENGTH]
        renames.note(connection, job_id)
    tag_store.replace(connection, job_id, before, values["tags"])
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(values))


def _job(row: Row[Any]) -> Job:
    values = dict(row._mapping)
    values.pop("environment")
    values.pop("environment_hash")
    values["document"] = values.pop("spec")
    values["priority_rank"] = values.pop("turn")
    values["status"] = Status(values["status"])
    values["error"] = error_of(values["error"])
    return Job(**values)


# Events


# The next number of the job, and the event with it, by one statement.
_ADD_EVENT = insert(events).from_select(
    ["job_id", "seq", "at", "kind", "body"],
    select(
        bindparam("the_job", type_=events.c.job_id.type),
        func.coalesce(func.max(events.c.seq), 0) + 1,
        bindparam("the_time", type_=events.c.at.type),
        bindparam("the_kind", type_=events.c.kind.type),
        bindparam("the_body", type_=events.c.body.type),
    ).where(events.c.job_id == bindparam("of_job")),
)
_EVENTS_AFTER = (
    select(events.c.seq, events.c.at, events.c.kind, events.c.body)
    .where(events.c.job_id == bindparam("of_job"), events.c.seq > bindparam("after"))
    .order_by(events.c.seq)
)


def add_event(connection: Connection, job_id: int, at: datetime, body: EventBody) -> None:
    add_events(connection, job_id, at, [body])


def add_events(
    connection: Connection, job_id: int, at: datetime, bodies: Sequence[EventBody]
) -> None:
    """Add events that happened together, in this order."""
    parameters = {"of_job": job_id, "the_job": job_id, "the_time": at}
    rows = [{**parameters, "the_kind": body.kind, "the_body": body.to_json()} for body in bodies]
    execute_each(connection, _ADD_EVENT, rows)


def events_after(connection: Connection, job_id: int, seq: int) -> list[Event]:
    rows = connection.execute(_EVENTS_AFTER, {"of_job": job_id, "after": seq})
    return [Event(row.seq, row.at, job_events.from_json(row.kind, row.body)) for row in rows]


_STAGES_OF = (
    select(events)
    .where(events.c.job_id == bindparam("of_job"), events.c.kind == "stage")
    .order_by(events.c.seq)
)


def last_events(connection: Connection, job_ids: Sequence[int]) -> dict[int, int]:
    """The number of each job's last event, as far as it has any."""
    columns = events.c.job_id, func.max(events.c.seq)
    return {
        job_id: seq
        for some in _portions(job_ids)
        for job_id, seq in connection.execute(
            select(*columns).where(events.c.job_id.in_(some)).group_by(events.c.job_id)
        )
    }


def stages_of(connection: Connection, job_id: int) -> list[Event]:
    """The beginnings and ends of a job's stages."""
    rows = connection.execute(_STAGES_OF, {"of_job": job_id})
    return [Event(row.seq, row.at, job_events.from_json(row.kind, row.body)) for row in rows]


def _portions(keys: Sequence[_Key]) -> Iterator[Sequence[_Key]]:
    for start in range(0, len(keys), _IDS_A_QUERY):
        yield keys[start : start + _IDS_A_QUERY]
