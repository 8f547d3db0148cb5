"""Jobs that are marked as failed end so, with the error that was reported."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import support
from torchyard.base.errors import Conflict
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.attempts import failure_marks, worker_reports
from torchyard.jobs.records.types import Job, JobError, Status
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services

BAD_DATA = JobError("UserError", "bad data")


def _start(services: Services) -> tuple[Job, support.Worker]:
    job = support.submit(services)
    Scheduler(services, FakeExecutor(), "http://server").run_round()
    worker = support.Worker(services, support.attempt_of(services, job))
    worker.tell("ranks_started", ranks=[])
    return job, worker


def _end(worker: support.Worker, code: int, error: dict[str, Any] | None) -> None:
    worker.tell("rank_exited", rank=0, local_rank=0, exit_code=code, signal=None)
    worker.tell("node_finalizing")
    worker.tell("node_exited", exit_code=code, error=error)


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (0, None, "bad data"),
        (1, {"code": "exited", "message": "rank 0 on node 0 exited with code 1"}, "bad data"),
        (
            1,
            {"code": "exception", "message": "KeyError: 'x'", "details": {"exception": "KeyError"}},
            "KeyError: 'x'",
        ),
    ],
    ids=["success", "exit code", "exception"],
)
def test_a_script_that_reports_an_error_fails_when_it_ends(
    services: Services, code: int, error: dict[str, Any] | None, message: str
) -> None:
    job, worker = _start(services)
    failure_marks.mark(services, job.workspace, job.name, BAD_DATA, stop=False)
    assert worker_reports.stop_request(services, worker.attempt.id).control == ""
    _end(worker, code, error)
    ended = support.again(services, job)
    assert (ended.status, ended.exit_code) == (Status.FAILED, code)
    assert ended.error is not None and ended.error.message == message


def test_a_client_that_fails_a_job_stops_it(services: Services) -> None:
    job, worker = _start(services)
    failure_marks.mark(services, job.workspace, job.name, BAD_DATA, stop=False)
    failure_marks.mark(services, job.workspace, job.name, None, stop=True)
    request = worker_reports.stop_request(services, worker.attempt.id)
    assert request == worker_reports.StopRequest("stop", failure_marks.MARKED_FAILED)
    _end(worker, 143, {"code": "stopped", "message": "node 0 was stopped"})
    ended = support.again(services, job)
    assert ended.status is Status.FAILED
    assert ended.error is not None and ended.error.message == "bad data"


def test_a_job_that_waits_fails_at_once(services: Services) -> None:
    job = support.submit(services)
    failure_marks.mark(services, job.workspace, job.name, None, stop=True)
    ended = support.again(services, job)
    assert ended.status is Status.FAILED
    assert ended.error is not None and "run.fail()" in ended.error.message


def test_a_completed_job_stays_completed(services: Services) -> None:
    job, worker = _start(services)
    _end(worker, 0, None)
    with pytest.raises(Conflict, match="has completed"):
        failure_marks.mark(services, job.workspace, job.name, BAD_DATA, stop=True)
    assert support.again(services, job).status is Status.COMPLETED
