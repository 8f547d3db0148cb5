"""What is to be done for a deployment."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest

from torchyard.endpoints.records.types import (
    Deployment,
    Instance,
    InstanceState,
    ProvisioningState,
)
from torchyard.endpoints.running.decisions import (
    JobState,
    Key,
    Kind,
    Observation,
    Step,
    decide,
)

_NOW = datetime(2026, 11, 24, tzinfo=timezone.utc)
_READY, _STARTING = InstanceState.READY, InstanceState.STARTING
_RUNS = Observation(JobState.RUNNING)
_ENDED = Observation(JobState.ENDED, error="`score.py`: init() raised KeyError: 'x'")


def deployment(
    revision: int = 1, served: int = 0, state: ProvisioningState = ProvisioningState.CREATING
) -> Deployment:
    return Deployment(
        workspace="w", endpoint="e", name="blue", owner="me", document={}, created_at=_NOW,
        changed_at=_NOW, state=state, revision=revision, served_revision=served,
    )  # fmt: skip


def instance(key: Key = (1, 0), state: InstanceState = _STARTING) -> Instance:
    return Instance("w", "e", "blue", *key, f"job-{key}", state, "/socket", "", _NOW)


_SERVED = deployment(1, 1, ProvisioningState.SUCCEEDED)
_UPDATING = deployment(2, 1, ProvisioningState.UPDATING)
_FAILED = deployment(2, 1, ProvisioningState.FAILED)


def test_as_many_are_started_as_are_wanted() -> None:
    steps = decide(deployment(), [instance()], {(1, 0): _RUNS}, 3)
    assert steps == [Step(Kind.START, (1, 1)), Step(Kind.START, (1, 2))]


def test_a_row_whose_job_was_never_made_is_started() -> None:
    assert decide(deployment(), [instance()], {}, 1) == [Step(Kind.START, (1, 0))]


def test_one_that_answers_its_probe_is_ready_and_then_its_revision_is() -> None:
    seen = {(1, 0): Observation(JobState.RUNNING, is_ready=True)}
    assert decide(deployment(), [instance()], seen, 1) == [Step(Kind.READY, (1, 0))]
    ready = [instance(state=_READY)]
    assert decide(deployment(), ready, seen, 1) == [Step(Kind.PROMOTE)]
    assert decide(_SERVED, ready, seen, 1) == []


def test_an_update_starts_beside_what_answers_and_replaces_it_when_it_is_ready() -> None:
    old, new = instance((1, 0), _READY), instance((2, 0), _READY)
    assert decide(_UPDATING, [old], {(1, 0): _RUNS}, 1) == [Step(Kind.START, (2, 0))]
    seen = {(1, 0): _RUNS, (2, 0): _RUNS}
    assert decide(_UPDATING, [old, new], seen, 1) == [Step(Kind.PROMOTE)]
    done = deployment(2, 2, ProvisioningState.SUCCEEDED)
    assert decide(done, [old, new], seen, 1) == [Step(Kind.DRAIN, (1, 0))]


def test_a_failed_revision_is_not_tried_twice_and_the_old_one_stays() -> None:
    old, new = instance((1, 0), _READY), instance((2, 0))
    seen = {(1, 0): _RUNS, (2, 0): _ENDED}
    assert decide(_UPDATING, [old, new], seen, 1) == [Step(Kind.FAIL, (2, 0), _ENDED.error)]
    # Its row is kept for its logs.
    assert decide(_FAILED, [old, new], seen, 1) == []


def test_others_of_a_failed_revision_end() -> None:
    there = [instance((1, 0), _READY), instance((2, 0)), instance((2, 1))]
    seen = {(1, 0): _RUNS, (2, 0): _ENDED, (2, 1): _RUNS}
    assert decide(_FAILED, there, seen, 1) == [Step(Kind.END, (2, 1))]


def test_what_answered_once_is_replaced_whenever_it_ends() -> None:
    ready = [instance(state=_READY)]
    assert decide(_SERVED, ready, {(1, 0): _ENDED}, 1) == [Step(Kind.RESTART, (1, 0), _ENDED.error)]
    waits = Observation(JobState.ENDED, "e", may_restart=False)
    assert decide(_SERVED, ready, {(1, 0): waits}, 1) == [Step(Kind.FAILED, (1, 0), "e")]
    dead = Observation(JobState.RUNNING, "no answer", is_dead=True)
    assert decide(_SERVED, ready, {(1, 0): dead}, 1) == [Step(Kind.RESTART, (1, 0), "no answer")]


def test_what_is_unready_gets_no_requests_until_it_is_ready_again() -> None:
    failing = Observation(JobState.RUNNING, "a probe was answered with 500", is_unready=True)
    ready, unready = instance(state=_READY), instance(state=InstanceState.UNREADY)
    expected = [Step(Kind.UNREADY, (1, 0), failing.error)]
    assert decide(_SERVED, [ready], {(1, 0): failing}, 1) == expected
    assert decide(_SERVED, [unready], {(1, 0): failing}, 1) == []
    again = Observation(JobState.RUNNING, is_ready=True)
    assert decide(_SERVED, [unready], {(1, 0): again}, 1) == [Step(Kind.READY, (1, 0))]
    dead = Observation(JobState.RUNNING, "no answer", is_unready=True, is_dead=True)
    assert decide(_SERVED, [unready], {(1, 0): dead}, 1)[0].kind is Kind.RESTART
    assert decide(_SERVED, [unready], {(1, 0): failing}, 0) == [Step(Kind.DRAIN, (1, 0))]


def test_an_instance_that_waits_says_for_what_until_it_runs() -> None:
    waits = Observation(JobState.WAITING, "its job needs 1 node", is_unready=True)
    expected = [Step(Kind.WAIT, (1, 0), waits.error)]
    assert decide(deployment(), [instance()], {(1, 0): waits}, 1) == expected
    waiting = replace(instance(), message=waits.error)
    assert decide(deployment(), [waiting], {(1, 0): waits}, 1) == []
    assert decide(deployment(), [waiting], {(1, 0): _RUNS}, 1) == [Step(Kind.WAIT, (1, 0))]


def test_a_job_that_was_canceled_is_no_reason_to_fail() -> None:
    seen = {(1, 0): Observation(JobState.ENDED, "it was canceled", is_transient=True)}
    assert decide(deployment(), [instance()], seen, 1)[0].kind is Kind.RESTART


def test_the_old_revision_keeps_its_instances_while_another_number_is_tried() -> None:
    there = [instance((1, number), _READY) for number in range(3)]
    seen = {(1, number): _RUNS for number in range(3)}
    assert decide(_UPDATING, there, seen, 1) == [Step(Kind.START, (2, 0))]


def test_a_new_revision_shows_that_it_serves_even_when_none_is_wanted() -> None:
    assert decide(deployment(), [], {}, 0) == [Step(Kind.START, (1, 0))]
    ready = [instance(state=_READY)]
    assert decide(_SERVED, ready, {(1, 0): _RUNS}, 0) == [Step(Kind.DRAIN, (1, 0))]


@pytest.mark.parametrize("is_drained", [False, True])
def test_a_draining_instance_ends_when_no_request_is_at_work(is_drained: bool) -> None:
    there = [instance(state=InstanceState.DRAINING)]
    seen = {(1, 0): Observation(JobState.RUNNING, is_drained=is_drained)}
    expected = [Step(Kind.END, (1, 0))] if is_drained else []
    assert decide(_SERVED, there, seen, 0) == expected


def test_a_deleted_deployment_drains_and_goes() -> None:
    deleted = deployment(1, 1, ProvisioningState.DELETING)
    assert decide(deleted, [instance(state=_READY)], {(1, 0): _RUNS}, 1) == [
        Step(Kind.DRAIN, (1, 0))
    ]
    assert decide(deleted, [], {}, 1) == [Step(Kind.REMOVE)]
    assert decide(_SERVED, [], {}, 1, is_deleting=True) == [Step(Kind.REMOVE)]


@pytest.mark.parametrize("state", list(ProvisioningState))
def test_for_an_owner_who_may_run_nothing_everything_ends(state: ProvisioningState) -> None:
    there = [instance((1, 0), _READY), instance((2, 0)), instance((2, 1), InstanceState.DRAINING)]
    seen = {(1, 0): _RUNS, (2, 0): _ENDED}
    steps = decide(deployment(2, 1, state), there, seen, 3, may_run=False)
    kinds = {step.kind for step in steps}
    if state is ProvisioningState.DELETING:
        assert Kind.START not in kinds and Kind.RESTART not in kinds
    else:
        assert steps == [Step(Kind.END, key) for key in ((1, 0), (2, 0), (2, 1))]
    assert decide(deployment(2, 1, ProvisioningState.FAILED), [], {}, 3, may_run=False) == []
