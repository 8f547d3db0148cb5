"""Which failure counts when the worker of one node was told to end, and that it is tried again."""

from __future__ import annotations

import pytest

from jobs import support
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.attempts import worker_reports
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services

_LOST = {
    "code": "worker_lost",
    "message": "the worker of node 1 was told to end: its supervisor was killed",
}
_STOPPED = {"code": "stopped", "message": "node 0 was stopped: another node failed"}


def _start(services: Services, **changes: object) -> tuple[Job, list[support.Worker]]:
    job = support.submit(services, resources={"instance_count": 2}, **changes)
    Scheduler(services, FakeExecutor(), "http://server").run_round()
    attempt = support.attempt_of(services, job)
    return job, [support.Worker(services, attempt, node) for node in range(2)]


def test_a_signal_to_one_worker_stops_the_other_nodes(services: Services) -> None:
    _, workers = _start(services)
    workers[1].tell("node_stopping", reason="signal")
    request = worker_reports.stop_request(services, workers[0].attempt.id)
    assert request == worker_reports.StopRequest("stop", "failed")


@pytest.mark.parametrize("code", ["worker_lost", "stopped", "input_unreadable"])
def test_a_node_that_ends_with_an_error_stops_the_others(services: Services, code: str) -> None:
    _, workers = _start(services)
    workers[1].tell("node_exited", exit_code=143, error={"code": code, "message": "it ended"})
    request = worker_reports.stop_request(services, workers[0].attempt.id)
    assert request == worker_reports.StopRequest("stop", "failed")


@pytest.mark.parametrize("code", ["ports_blocked", "preflight_timeout", "nodes_missing"])
def test_a_node_that_is_gone_is_the_cause_not_the_one_that_misses_it(
    services: Services, code: str
) -> None:
    job, workers = _start(services)
    # The node that looks for the other one is heard first.
    blamed = {"code": code, "message": "node 0 can't reach node 1"}
    workers[0].tell("node_exited", exit_code=1, error=blamed)
    workers[1].tell("node_exited", exit_code=143, error=_LOST)
    ended = support.again(services, job)
    assert ended.status is Status.FAILED
    assert ended.error is not None and ended.error.code == "worker_lost"


@pytest.mark.parametrize(("left_s", "is_named"), [(1, True), (9, False)])
def test_the_rank_of_another_node_that_left_first_is_named(
    services: Services, left_s: int, is_named: bool
) -> None:
    job, workers = _start(services)
    waited = {"code": "peer_lost", "message": "rank 0 on node 0 exited with code 1"}
    details = {"consequence": True, "at": "2026-01-01T10:00:02Z"}
    left = {"rank": 1, "node": 1, "exit_code": 0, "at": f"2026-01-01T10:00:0{left_s}Z"}
    workers[0].tell("node_exited", exit_code=1, error={**waited, "details": details})
    workers[1].tell("node_exited", exit_code=0, error=None, early_exit=left)
    error = support.again(services, job).error
    assert error is not None and error.code == "peer_lost"
    message = "rank 1 on node 1 exited with code 0 at 10:00:01 UTC, while other ranks still waited "
    assert error.message == (f"{message}for it: " if is_named else "") + waited["message"]
    assert ("fewer batches" in error.hint) is is_named


def test_nodes_that_blame_each_other_keep_the_first_error(services: Services) -> None:
    job, workers = _start(services)
    for worker in workers:
        error = {"code": "ports_blocked", "message": f"node {worker.node} can't reach the other"}
        worker.tell("node_exited", exit_code=1, error=error)
    ended = support.again(services, job)
    assert ended.error is not None and ended.error.message == "node 0 can't reach the other"


def test_a_job_whose_worker_was_told_to_end_is_tried_again(services: Services) -> None:
    job, workers = _start(services, properties={"torchyard.retry.max_attempts": "2"})
    workers[1].tell("node_stopping", reason="signal")
    workers[0].tell("node_exited", exit_code=143, error=_STOPPED)
    workers[1].tell("node_exited", exit_code=143, error=_LOST)
    assert support.again(services, job).status is Status.QUEUED
