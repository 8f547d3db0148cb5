"""What is to be done for a deployment, from what is wanted and what there is.

Owns: which revisions run, how many instances, when one is replaced, when an update has gone well
or badly.
Leaves: looking and doing to keeper.py, how many are wanted to scaling.py.
Always: the revision that answers goes on until the next one is ready; a revision that never became
ready is not tried twice; for an owner who may run nothing any more nothing runs; what is decided
follows from rows and observations alone, so that a keeper that was killed goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from torchyard.endpoints.records.types import (
    Deployment,
    Instance,
    InstanceState,
    ProvisioningState,
)

Key = tuple[int, int]
"""An instance's revision and number."""


class JobState(Enum):
    MISSING = "missing"
    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True)
class Observation:
    """What is seen of an instance.

    Attributes:
        error: why its job ended; else why it waits, or why its probes fail.
        is_ready: it answered its readiness probe.
        is_unready: it was ready, and takes no requests now: its readiness probe failed too often,
            or its job waits.
        is_dead: its liveness probe failed too often; before it was ready, its readiness probe.
        is_drained: no request is at work in it any more.
        may_restart: the delay before another start is over.
        is_transient: it ended for a reason that another start may not meet.
    """

    job: JobState = JobState.MISSING
    error: str = ""
    is_ready: bool = False
    is_unready: bool = False
    is_dead: bool = False
    is_drained: bool = False
    may_restart: bool = True
    is_transient: bool = False


class Kind(Enum):
    START = "start"
    """Add the instance, and its job."""
    RESTART = "restart"
    """End its job, if it has not ended, and start the next one."""
    READY = "ready"
    UNREADY = "unready"
    """Take it out of rotation until it is ready again."""
    WAIT = "wait"
    """It waits; the message says for what, empty once it runs."""
    DRAIN = "drain"
    END = "end"
    """End its job, and remove it."""
    FAILED = "failed"
    """It waits for its next start; the message says why."""
    PROMOTE = "promote"
    """The deployment's revision is to answer, from the router's next table on."""
    FAIL = "fail"
    """The deployment's revision can't be served."""
    REMOVE = "remove"
    """The deployment has no instances any more, and goes."""


@dataclass(frozen=True)
class Step:
    kind: Kind
    key: Key = (0, 0)
    message: str = ""


_NOTHING = Observation()


def decide(
    deployment: Deployment,
    instances: Iterable[Instance],
    seen: Mapping[Key, Observation],
    target_count: int,
    is_deleting: bool = False,
    may_run: bool = True,
) -> list[Step]:
    """
    Args:
        seen: by instance; one that is not in it was not looked at yet.
        target_count: how many instances of the revision that answers.
        is_deleting: the endpoint is.
        may_run: the deployment's owner may run something in the workspace; else nothing is
            started, and what runs ends.
    """
    there = {(each.revision, each.number): each for each in instances}
    is_deleting = is_deleting or deployment.state is ProvisioningState.DELETING
    counts = {} if is_deleting else _counts(deployment, there, target_count)
    steps: list[Step] = []
    if not may_run and not is_deleting:
        return [Step(Kind.END, key) for key in there]
    for key, instance in there.items():
        steps += _of_instance(deployment, instance, seen.get(key, _NOTHING), counts)
    for revision, count in counts.items():
        numbers = (number for number in range(count) if (revision, number) not in there)
        steps += [Step(Kind.START, (revision, number)) for number in numbers]
    failed = next((step for step in steps if step.kind is Kind.FAIL), None)
    if failed is not None:
        return [failed]  # the rest follows from it, in the next round
    if is_deleting and not there:
        return [Step(Kind.REMOVE)]
    if _is_whole(deployment, there, counts):
        steps.append(Step(Kind.PROMOTE))
    return steps


def target(deployment: Deployment) -> int:
    """The revision that is to answer; 0 for none."""
    if deployment.state is ProvisioningState.FAILED:
        return deployment.served_revision
    return deployment.revision


def _counts(
    deployment: Deployment, there: Mapping[Key, Instance], target_count: int
) -> dict[int, int]:
    """How many instances of which revisions."""
    revision, served = target(deployment), deployment.served_revision
    counts = {}
    if revision:
        # A new revision shows that it can serve, however few are wanted.
        counts[revision] = target_count if revision == served else max(1, target_count)
    if served and served != revision:
        # As many as there are: another number is part of what is being tried.
        numbers = [
            number
            for (each, number), instance in there.items()
            if each == served and instance.state is not InstanceState.DRAINING
        ]
        counts[served] = max(numbers, default=0) + 1
    return counts


def _of_instance(
    deployment: Deployment, instance: Instance, seen: Observation, counts: Mapping[int, int]
) -> list[Step]:
    key = (instance.revision, instance.number)
    if instance.state is InstanceState.DRAINING:
        done = seen.is_drained or seen.job in (JobState.ENDED, JobState.MISSING)
        return [Step(Kind.END, key)] if done else []
    if instance.number >= counts.get(instance.revision, 0):
        return _superfluous(deployment, instance, seen)
    is_over = seen.job is JobState.ENDED or seen.is_dead
    if is_over:
        was_served = instance.revision == deployment.served_revision
        if not was_served and not seen.is_transient:
            return [Step(Kind.FAIL, key, seen.error)]
        if seen.may_restart:
            return [Step(Kind.RESTART, key, seen.error)]
        return [] if instance.state is InstanceState.FAILED else [
            Step(Kind.FAILED, key, seen.error)
        ]  # fmt: skip
    if seen.job is JobState.MISSING:
        return [Step(Kind.START, key)]
    if instance.state in (InstanceState.STARTING, InstanceState.UNREADY) and seen.is_ready:
        return [Step(Kind.READY, key)]
    if instance.state is InstanceState.READY and seen.is_unready:
        return [Step(Kind.UNREADY, key, seen.error)]
    reason = seen.error if seen.job is JobState.WAITING else ""
    if instance.state is InstanceState.STARTING and instance.message != reason:
        return [Step(Kind.WAIT, key, reason)]
    return []


def _superfluous(deployment: Deployment, instance: Instance, seen: Observation) -> list[Step]:
    key = (instance.revision, instance.number)
    if instance.state in (InstanceState.READY, InstanceState.UNREADY):
        return [Step(Kind.DRAIN, key)]
    # What failed is kept, for its logs, until another revision is wanted.
    is_failed = deployment.state is ProvisioningState.FAILED and instance.number == 0
    is_latest = instance.revision == deployment.revision
    if is_failed and is_latest and seen.job is JobState.ENDED:
        return []
    return [Step(Kind.END, key)]


def _is_whole(
    deployment: Deployment, there: Mapping[Key, Instance], counts: Mapping[int, int]
) -> bool:
    revision = deployment.revision
    if deployment.state.is_final or revision not in counts:
        return False
    keys = [(revision, number) for number in range(counts[revision])]
    return all(key in there and there[key].state is InstanceState.READY for key in keys)
