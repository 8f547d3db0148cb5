"""Run history that a worker could no longer deliver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jobs.support import Worker, again, attempt_of, submit
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.attempts import worker_history
from torchyard.jobs.files import scratch
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.types import Attempt, Job
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.shared.history_spool import HistorySpool


def point(job: Job, step: int) -> dict[str, Any]:
    return {
        "kind": "metric",
        "run": job.name,
        "key": "loss",
        "value": 0.5,
        "timestamp": 1_000 + step,
        "step": step,
    }


def spool(
    services: Services, attempt: Attempt, node: int, records: list[Any], delivered: int = 0
) -> Path:
    """What a relay has on its disk when its worker is killed."""
    folder = scratch.node_folder(services, attempt.id, node) / "spool" / "history"
    made = HistorySpool(folder)
    made.append([json.dumps(record).encode() for record in records])
    made.delivered(delivered)
    made.close()
    return folder


def notices(services: Services, job: Job) -> list[str]:
    return notices_of(actions.events(services.db, job))


def test_a_killed_workers_history_is_there_when_its_job_has_failed(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    job = submit(services, resources={"instance_count": 2})
    scheduler.run_round()
    attempt = attempt_of(services, job)
    for node in range(2):
        Worker(services, attempt, node).tell("ranks_started", ranks=[])
    # Of node 0 the server has 300 already, and took 200 more whose answer was lost.
    points = [point(job, step) for step in range(1_000)]
    worker_history.receive(services, attempt.id, 0, 0, points[:500], 0)
    spool(services, attempt, 0, points, delivered=300)
    bad = {"kind": "metric", "run": "nobody", "key": "k", "value": 1, "timestamp": 1, "step": 1}
    spool(services, attempt, 1, [point(job, 5_000), *[bad] * 9])
    executor.lose(attempt.id)

    scheduler.run_round()
    ended = again(services, job)
    assert ended.error is not None and ended.error.code == "worker_lost"
    stored = [point.step for point in services.history.series(job.id, "loss")]
    assert stored == [*range(1_000), 5_000]
    assert notices(services, job) == [
        "run history: run `nobody` does not exist",
        "run history: 9 records were refused in all",
    ]
    assert not scratch.folder(services, attempt.id).exists()


def test_history_of_an_ended_job_is_stored_before_its_folder_is_removed(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    job = submit(services)
    scheduler.run_round()
    attempt = attempt_of(services, job)
    Worker(services, attempt).fails(3)
    spool(services, attempt, 0, [point(job, step) for step in range(10)])
    executor.finish(attempt.id)

    scheduler.run_round()
    assert [point.step for point in services.history.series(job.id, "loss")] == list(range(10))
    assert not scratch.folder(services, attempt.id).exists()


def test_an_unreadable_spool_does_not_block_the_end_of_its_job(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    job = submit(services)
    scheduler.run_round()
    attempt = attempt_of(services, job)
    folder = spool(services, attempt, 0, [point(job, 1)])
    (folder / "history-torn.ndjson").write_text("")
    executor.lose(attempt.id)

    scheduler.run_round()
    scheduler.run_round()
    assert again(services, job).status.ended
    assert (folder / "history-000000000000.ndjson").exists()

    (folder / "history-torn.ndjson").unlink()
    Scheduler(services, executor, "http://127.0.0.1:1").run_round()
    assert [point.step for point in services.history.series(job.id, "loss")] == [1]
    assert not folder.exists()


def test_a_deleted_jobs_cursors_are_removed(services: Services, scheduler: Scheduler) -> None:
    job = submit(services)
    scheduler.run_round()
    attempt = attempt_of(services, job)
    worker_history.receive(services, attempt.id, 0, 0, [point(job, 1)], 0)
    services.history.delete(job.id)
    # The node's position is unknown: it is asked to start from the beginning.
    received = worker_history.receive(services, attempt.id, 0, 1, [point(job, 2)], 0)
    assert received["next"] == 0
    assert services.history.keys(job.id) == []


def test_a_run_named_by_a_tag_is_shown_by_that_name(
    services: Services, scheduler: Scheduler
) -> None:
    job = submit(services)
    scheduler.run_round()
    attempt = attempt_of(services, job)
    tag = {"kind": "tag", "run": job.name, "key": "mlflow.runName", "value": "warm-up ü"}
    other = {"kind": "tag", "run": job.name, "key": "t", "value": "v"}
    worker_history.receive(services, attempt.id, 0, 0, [tag, other], 0)
    current = again(services, job)
    assert (current.display_name, current.tags["t"]) == ("warm-up ü", "v")
