"""Which interrupted jobs go on from a checkpoint though no retry policy asks for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs.support import Worker, again, attempt_of, submit
from torchyard.base.clock import FakeClock
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.attempts import worker_reports
from torchyard.jobs.files import artifacts, checkpoints
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.types import Attempt, Job, Status
from torchyard.jobs.requests.to_json import job_json
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services

PART = b"weights"
# As long as the pause after an attempt that brought no newer checkpoint.
PAUSE_S = 10


def write(services: Services, job: Job, path: str, content: bytes) -> None:
    with artifacts.writing(services.datastores, job, path) as file:
        file.write(content)


def leaves(
    services: Services, job: Job, name: str, size_bytes: int = len(PART), part: bytes = PART
) -> None:
    """The server gets a checkpoint whose manifest says that its part has this size."""
    files = {"__0_0.distcp": {"size_bytes": size_bytes, "crc32": 0}}
    write(services, job, f"outputs/checkpoints/{name}/__0_0.distcp", part)
    manifest = json.dumps({"checkpoint": {"files": files}, "crc32": 0}).encode()
    write(services, job, f"outputs/checkpoints/{name}/manifest.json", manifest)


def runs(services: Services, scheduler: Scheduler, job: Job) -> Attempt:
    for _ in range(2):
        scheduler.run_round()
        assert scheduler.trouble == ""
    assert again(services, job).status is Status.STARTING
    attempt = attempt_of(services, job)
    Worker(services, attempt).tell("ranks_started", ranks=[])
    return attempt


def fails(services: Services, executor: FakeExecutor, attempt: Attempt, code: str) -> None:
    error = {"code": code, "message": "rank 0 failed"}
    Worker(services, attempt, seq=1).tell("node_exited", exit_code=1, error=error)
    executor.finish(attempt.id)


def loses(services: Services, executor: FakeExecutor, attempt: Attempt) -> None:
    worker_reports.lose(services, attempt.id, 0)
    executor.finish(attempt.id)


def notices(services: Services, job: Job) -> list[str]:
    return list(notices_of(actions.events(services.db, job, 0)))


def test_a_job_that_lost_its_worker_goes_on_from_its_checkpoint(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    job = submit(services)
    attempt = runs(services, scheduler, job)
    leaves(services, job, "step-00000100")
    loses(services, executor, attempt)
    waiting = again(services, job)
    assert (waiting.status, waiting.error) == (Status.QUEUED, None)
    assert any(
        notice.endswith("the job goes on from checkpoint `step-00000100`")
        for notice in notices(services, job)
    )
    second = runs(services, scheduler, job)
    assert second.number == 2
    (before, _) = job_json(services, again(services, job))["attempts"]
    assert before["error"] is not None and before["error"]["code"] == "worker_lost"
    Worker(services, second, seq=1).tell("node_exited", exit_code=0, error=None)
    assert again(services, job).status is Status.COMPLETED


@pytest.mark.parametrize(("code", "expected"), [
    ("time_limit", Status.QUEUED),
    ("killed", Status.QUEUED),
    ("gpu_lost", Status.QUEUED),
    ("exception", Status.FAILED),
    ("cuda_out_of_memory", Status.FAILED),
    ("out_of_memory", Status.FAILED),
    ("timeout", Status.FAILED),
    ("canceled_in_slurm", Status.FAILED),
])  # fmt: skip
def test_the_cause_decides(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, code: str, expected: Status
) -> None:
    job = submit(services)
    attempt = runs(services, scheduler, job)
    leaves(services, job, "step-1")
    fails(services, executor, attempt, code)
    assert again(services, job).status is expected


@pytest.mark.parametrize("policy", [{"max_attempts": 1}, {"max_attempts": 2, "on": "exit 75"}])
def test_a_policy_of_the_job_decides_instead(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, policy: dict[str, Any]
) -> None:
    job = submit(services, torchyard={"retry": policy})
    attempt = runs(services, scheduler, job)
    leaves(services, job, "step-1")
    loses(services, executor, attempt)
    assert again(services, job).status is Status.FAILED


def test_without_a_checkpoint_it_fails(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    job = submit(services)
    attempt = runs(services, scheduler, job)
    write(services, job, "outputs/checkpoints/step-1/__0_0.distcp", PART)
    loses(services, executor, attempt)
    failed = again(services, job)
    assert failed.status is Status.FAILED
    assert failed.error is not None and failed.error.code == "worker_lost"


def test_attempts_without_a_newer_checkpoint_end_the_job(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    job = submit(services)
    for step in range(4):
        attempt = runs(services, scheduler, job)
        leaves(services, job, f"step-{step + 9}")
        loses(services, executor, attempt)
    for _ in range(3):
        assert again(services, job).status is Status.QUEUED
        clock.advance(PAUSE_S)
        loses(services, executor, runs(services, scheduler, job))
    assert again(services, job).status is Status.FAILED
    assert attempt_of(services, job).number == 7
    assert "3 attempts in a row ended without a newer checkpoint" in notices(services, job)


def test_it_waits_where_the_last_attempt_brought_nothing(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    job = submit(services)
    leaves(services, job, "step-1")
    loses(services, executor, runs(services, scheduler, job))
    loses(services, executor, runs(services, scheduler, job))
    scheduler.run_round()
    assert again(services, job).status is Status.QUEUED
    clock.advance(PAUSE_S)
    assert runs(services, scheduler, job).number == 3


def test_an_elastic_job_without_progress_is_not_tried_more_often(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    job = submit(services, torchyard={"min_nodes": 1, "max_nodes": 1})
    leaves(services, job, "step-1")
    for _ in range(3):
        loses(services, executor, runs(services, scheduler, job))
    assert again(services, job).status is Status.FAILED


@pytest.mark.parametrize(("names", "expected"), [
    (["step-00000009", "step-00000010"], "step-00000010"),
    (["checkpoint-9", "checkpoint-10"], "checkpoint-10"),
    (["step-00000010", "step-00000010.1"], "step-00000010.1"),
    (["step-" + "9" * 200, "step-1"], "step-" + "9" * 200),
    (["last"], "last"),
])  # fmt: skip
def test_the_newest_is_found_by_its_name(
    services: Services, names: list[str], expected: str
) -> None:
    job = submit(services)
    for name in names:
        leaves(services, job, name)
    newest = checkpoints.newest(services, job)
    assert newest is not None and newest.name == expected


def test_a_checkpoint_of_which_a_part_is_missing_gives_way_to_the_one_before(
    services: Services,
) -> None:
    job = submit(services)
    leaves(services, job, "step-1")
    leaves(services, job, "step-2", size_bytes=len(PART) + 1)
    newest = checkpoints.newest(services, job)
    assert newest is not None and newest.name == "step-1"


@pytest.mark.parametrize(("manifest", "is_whole"), [
    (b'{"step": 3}', True),
    (b"[]", True),
    (b"[" * 100_000, False),
    (b"{", False),
    (b"", False),
    (b'{"checkpoint": {"files": 3}}', False),
    (b'{"checkpoint": {"files": {"a": 3}}}', False),
])  # fmt: skip
def test_a_manifest_of_a_script_counts_if_it_can_be_read(
    services: Services, manifest: bytes, is_whole: bool
) -> None:
    job = submit(services)
    write(services, job, "outputs/checkpoints/step-3/manifest.json", manifest)
    assert (checkpoints.newest(services, job) is not None) is is_whole


def test_what_nebula_wrote_counts(services: Services) -> None:
    job = submit(services)
    write(services, job, "outputs/Nebula/checkpointHistories.csv", b"tag,rank\n1,0\n")
    first = checkpoints.newest(services, job)
    write(services, job, "outputs/Nebula/checkpointHistories.csv", b"tag,rank\n1,0\n2,0\n")
    second = checkpoints.newest(services, job)
    assert first is not None and second is not None and second.order > first.order
