"""A job may be deleted between two requests of its workers, and while one of them waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs import support
from torchyard.base.errors import NotAuthenticated
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.attempts import endings, node_reports, worker_history, worker_reports
from torchyard.jobs.cleanup import deletion, removal
from torchyard.jobs.cleanup.deletion import Choice
from torchyard.jobs.files import scratch
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services

REQUESTS: dict[str, Callable[[Services, str], Any]] = {
    "get": worker_reports.get,
    "stop_request": worker_reports.stop_request,
    "rendezvous": worker_reports.rendezvous,
    "join": lambda services, attempt_id: worker_reports.join(services, attempt_id, 0, "a", 1),
    "report": lambda services, attempt_id: node_reports.receive(services, attempt_id, 0, []),
    "history": lambda services, attempt_id: worker_history.receive(
        services, attempt_id, 0, 0, [], None
    ),
}


@pytest.fixture
def deleted(services: Services) -> str:
    """The attempt of a job that was deleted right after its end."""
    job = support.submit(services)
    Scheduler(services, FakeExecutor(), "http://server").run_round()
    worker = support.Worker(services, support.attempt_of(services, job))
    worker.tell("ranks_started", ranks=[])
    worker.tell("rank_exited", rank=0, local_rank=0, exit_code=0, signal=None)
    worker.tell("node_finalizing")
    worker.tell("node_exited", exit_code=0, error=None)
    assert support.again(services, job).status.ended
    # As the scheduler does once the worker has left.
    scratch.clear(services, worker.attempt)
    scratch.record_clear(services.db, [worker.attempt])
    deletion.delete(services, job.workspace, Choice([job.name]), support.ME.user)
    assert removal.work(services) == [job.name]
    return worker.attempt.id


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_of_a_deleted_attempt_is_refused(
    services: Services, deleted: str, name: str
) -> None:
    with pytest.raises(NotAuthenticated):
        REQUESTS[name](services, deleted)


def test_what_ends_attempts_passes_over_a_deleted_one(services: Services, deleted: str) -> None:
    endings.finish(services, deleted)
    worker_reports.report_worker_death(services, deleted, 0)
    worker_reports.lose(services, deleted, 0)
