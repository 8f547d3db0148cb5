"""The types of this package, and the one table of legal moves.

Owns: statuses, stages, jobs, attempts, events.
Leaves: the document a user writes to spec/job_spec.py.
Always: a job's status changes only along `MOVES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from torchyard.environments.types import EnvironmentSpec
from torchyard.jobs.spec import job_spec
from torchyard.jobs.spec.job_spec import JobSpec
from torchyard.shared.plan import LOCAL

COMMAND, RUN = "command", "run"
"""The types of jobs of this package; packages above it have others."""


class Status(str, Enum):
    """Azure ML's names."""

    NOT_STARTED = "NotStarted"
    PREPARING = "Preparing"
    QUEUED = "Queued"
    PROVISIONING = "Provisioning"
    STARTING = "Starting"
    RUNNING = "Running"
    NOT_RESPONDING = "NotResponding"
    FINALIZING = "Finalizing"
    CANCEL_REQUESTED = "CancelRequested"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"

    @property
    def ended(self) -> bool:
        return self in ENDED


ENDED = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELED})

_S = Status
_STOPPED = {_S.CANCEL_REQUESTED, _S.FAILED, _S.CANCELED}
MOVES: dict[Status, frozenset[Status]] = {
    _S.NOT_STARTED: frozenset({_S.PREPARING, _S.QUEUED} | _STOPPED),
    _S.PREPARING: frozenset({_S.QUEUED} | _STOPPED),
    _S.QUEUED: frozenset({_S.PROVISIONING, _S.STARTING} | _STOPPED),
    _S.PROVISIONING: frozenset({_S.STARTING, _S.QUEUED, _S.PREPARING} | _STOPPED),
    _S.STARTING: frozenset(
        {_S.RUNNING, _S.FINALIZING, _S.NOT_RESPONDING, _S.QUEUED, _S.PREPARING} | _STOPPED
    ),
    _S.RUNNING: frozenset({_S.FINALIZING, _S.NOT_RESPONDING, _S.QUEUED, _S.COMPLETED} | _STOPPED),
    _S.NOT_RESPONDING: frozenset({_S.RUNNING, _S.FINALIZING, _S.QUEUED} | _STOPPED),
    _S.FINALIZING: frozenset({_S.COMPLETED, _S.QUEUED} | _STOPPED),
    _S.CANCEL_REQUESTED: frozenset({_S.CANCELED, _S.FAILED, _S.COMPLETED}),
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELED: frozenset(),
}


PAUSED_UNTIL = datetime(9999, 1, 1, tzinfo=timezone.utc)
"""`Job.retry_at` of a job that waits until somebody lets it go on."""


class Stage(str, Enum):
    """The stages users know, in the order of the documents."""

    PREPARING = "Preparing"
    SCALING = "Scaling"
    RUNNING = "Running"
    POST_PROCESSING = "Post-Processing"


@dataclass(frozen=True)
class JobError:
    """Why a job failed. `details` are for programs: rank, node, traceback, last lines."""

    code: str
    message: str
    hint: str = ""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """What a user asked for. `name` is the run id; `document` is the job file, references pinned,
    of which `CommandJob` has the contents.

    `type` is `command`, or `run` for a run that was started outside any job. An archived one is
    left out of lists; a deleted one was deleted by a tracking client. Until `retry_at` a queued one
    pauses after a failed attempt, and then it is kept off `avoided_slots` of its cluster. Jobs are
    sorted by `priority_rank` (see admission/queue.py); `limit_s` is its `limits.timeout`, None
    without; each of its nodes takes so many `gpus`. `started_steady` is the steady clock's reading
    as it started (see base/clock.py), `duration_s` how long its command ran, all attempts together
    (see progress.py); None for jobs that have not ended, and runs outside any job.
    """

    id: int
    workspace: str
    name: str
    type: str
    experiment_id: int
    experiment_name: str
    status: Status
    owner: str
    display_name: str
    document: Mapping[str, Any]
    spec_hash: str
    compute: str
    node_count: int
    processes_per_node: int
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    tags: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    parent: str = ""
    exit_code: int | None = None
    error: JobError | None = None
    attempt: int = 0
    deleted: bool = False
    archived: bool = False
    description: str = ""
    retry_at: datetime | None = None
    avoided_slots: list[int] | None = None
    priority_rank: int = 1
    limit_s: float | None = None
    gpus: int = 0
    started_steady: str = ""
    duration_s: float | None = None

    @property
    def has_ranks(self) -> bool:
        """Whether nodes run it: of other types, the jobs below it have them."""
        return self.type == COMMAND

    @property
    def is_run(self) -> bool:
        """Whether it was started outside any job."""
        return self.type == RUN


@dataclass(frozen=True, kw_only=True)
class CommandJob(Job):
    """A job with its document parsed, which takes a few tenths of a millisecond.

    Lists, the queue and what a script logs do without: they read a `Job`.
    """

    spec: JobSpec


def parse_job(job: Job) -> CommandJob:
    """
    Raises:
        InvalidSpec: this is a run that was started outside any job, which has no job file, or a
            job of another type.
    """
    return CommandJob(**{**vars(job), "spec": job_spec.read(job.document)})


@dataclass(frozen=True)
class NewJob:
    """A job or run that is to be written down; its fields become those of `Job`.

    A run that was started outside any job has no environment, compute or nodes.
    """

    workspace: str
    name: str
    type: str
    experiment_id: int
    status: Status
    owner: str
    display_name: str
    document: Mapping[str, Any]
    created_at: datetime
    spec_hash: str = ""
    environment: EnvironmentSpec | None = None
    compute: str = ""
    node_count: int = 0
    processes_per_node: int = 0
    started_at: datetime | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    parent: str = ""
    description: str = ""
    priority_rank: int = 1
    limit_s: float | None = None
    gpus: int = 0


@dataclass(frozen=True)
class Attempt:
    """One try. `handle` is None until the executor has given its receipt; `clean` once its
    scratch folder is gone. `order` is `stop`, or `kill` to skip the ranks' grace period.
    `exit_code` and `error` tell how it ended. `server` looks after it, when several share the home.
    `engine` runs its nodes; `waiting_for` is what that engine waits for, in our words, while some
    of them have no machine yet.
    """

    id: str
    job_id: int
    workspace: str
    job_name: str
    number: int
    node_count: int
    created_at: datetime
    handle: dict[str, Any] | None = None
    order: str = ""
    order_reason: str = ""
    ended_at: datetime | None = None
    clean: bool = False
    exit_code: int | None = None
    error: JobError | None = None
    server: str | None = None
    engine: str = LOCAL
    waiting_for: str = ""

    @property
    def is_local(self) -> bool:
        """Whether its nodes are processes of the machine that their server is on."""
        return self.engine == LOCAL


class NodeState(str, Enum):
    """How far one node of an attempt is, in the order in which it gets there."""

    LAUNCHED = "launched"
    RUNNING = "running"
    SERVING = "serving"  # nothing but parameter servers runs there
    FINALIZING = "finalizing"
    EXITED = "exited"


@dataclass(frozen=True)
class AttemptNode:
    """What one node has told of itself; `preflight` is what it knew and found out before its ranks
    started, `interactive` has its `services`, until when it is `held`, its `early_exit`, and where
    its ranks `stand`. `ran_s` is how long the command ran there, as the node measured it; None
    before its start.
    """

    attempt_id: str
    node: int
    next_seq: int
    seen_at: datetime
    state: NodeState
    address: str = ""
    port: int | None = None
    exit_code: int | None = None
    error: JobError | None = None
    failed_at: datetime | None = None
    preflight: dict[str, Any] | None = None
    interactive: dict[str, Any] | None = None
    ran_s: float | None = None


@dataclass(frozen=True)
class StageSpan:
    """One stage of a job's timeline."""

    name: Stage
    start: datetime
    end: datetime | None
    waited_for: str
    steady: str = ""
    took_s: float | None = None
    builds_ahead: int = 0


@dataclass(frozen=True)
class Experiment:
    """A named group of jobs.

    `artifact_location` is where a client wants its runs' artifacts, empty for our own place.
    """

    id: int
    workspace: str
    name: str
    created_at: datetime
    tags: dict[str, str] = field(default_factory=dict)
    deleted: bool = False
    artifact_location: str = ""
    updated_at: datetime | None = None
