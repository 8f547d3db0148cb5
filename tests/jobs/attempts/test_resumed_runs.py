"""A job that goes on from a checkpoint says so, and has all of its metrics at its end."""

from __future__ import annotations

import json
from typing import Any

from jobs import support
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.attempts import worker_history
from torchyard.jobs.history import rewinds
from torchyard.jobs.records import progress
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services

RESUMED = {
    "kind": "tag",
    "key": rewinds.TAG,
    "value": json.dumps({"step": 2, "saved_at": 1002, "began_at": 5000}),
}


def point(step: int, at: int, value: float) -> dict[str, Any]:
    return {"kind": "metric", "key": "loss", "value": value, "timestamp": at, "step": step}


def test_a_resumed_job_says_so_and_brings_back_what_is_missing(services: Services) -> None:
    executor = FakeExecutor()
    scheduler = Scheduler(services, executor, "http://127.0.0.1:1")
    retry = {"torchyard.retry.max_attempts": "2", "torchyard.retry.backoff_s": "0"}
    job = support.submit(services, properties=retry)
    scheduler.run_round()
    worker = support.Worker(services, support.attempt_of(services, job))
    worker.tell("ranks_started", ranks=[])
    _deliver(worker, job, [point(step, 1001 + step, 1.0) for step in range(5)])
    worker.tell("node_failed", error={"code": "rank_failed", "message": "m", "hint": ""})
    worker.tell("node_exited", exit_code=1, error=None)
    executor.finish(worker.attempt.id)
    scheduler.run_round()
    scheduler.run_round()
    worker = support.Worker(services, support.attempt_of(services, job))
    worker.tell("ranks_started", ranks=[])
    _deliver(worker, job, [RESUMED, point(3, 6000, 2.0)])
    assert (
        "it goes on from step 2; 3 metric points that were logged after that checkpoint will "
        "be logged again, and were put aside" in notices_of(actions.events(services.db, job, 0))
    )
    assert [each.step for each in services.history.series(job.id, "loss")] == [0, 1, 3]
    worker.tell("node_exited", exit_code=0, error=None)
    scheduler.run_round()
    assert support.again(services, job).status is Status.COMPLETED
    ended = services.history.series(job.id, "loss")
    assert sorted((each.step, each.value) for each in ended) == [
        (0, 1.0), (1, 1.0), (2, 1.0), (3, 2.0), (4, 1.0)
    ]  # fmt: skip


def test_a_job_that_is_canceled_while_it_waits_for_another_try_lacks_nothing(
    services: Services,
) -> None:
    scheduler = Scheduler(services, FakeExecutor(), "http://127.0.0.1:1")
    job = support.submit(services)
    scheduler.run_round()
    worker = support.Worker(services, support.attempt_of(services, job))
    worker.tell("ranks_started", ranks=[])
    _deliver(worker, job, [point(step, 1001 + step, 1.0) for step in range(5)])
    _deliver(worker, job, [RESUMED], 5)
    with services.db.write() as connection:
        progress.end(connection, job, Status.CANCELED, services.clock.now())
    scheduler.run_round()
    assert len(services.history.series(job.id, "loss")) == 5


def _deliver(worker: support.Worker, job: Job, records: list[dict[str, Any]], seq: int = 0) -> None:
    records = [{**record, "run": job.name} for record in records]
    worker_history.receive(worker.services, worker.attempt.id, 0, seq, records)
