from __future__ import annotations

from typing import Any

import pytest

from jobs import support
from jobs.support import Worker, again, attempt_of, submit
from torchyard.base.clock import FakeClock
from torchyard.base.errors import InvalidSpec
from torchyard.compute import actions as computes
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.admission import waiting_reasons
from torchyard.jobs.attempts import worker_reports
from torchyard.jobs.records import attempt_store
from torchyard.jobs.records.types import Status
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.jobs.spec import log_patterns, retry
from torchyard.jobs.spec.retry import Failure


def _policy(**words: Any) -> retry.Policy:
    values = {"max_attempts": 3, **words}
    return retry.read({f"torchyard.retry.{key}": str(value) for key, value in values.items()})


def test_a_job_that_asks_for_nothing_is_tried_once() -> None:
    assert retry.decide(retry.read({}), 1, Failure("rank_failed", 1)) is None


@pytest.mark.parametrize(
    "words, failure, tried",
    [
        ({}, Failure("rank_failed", 1), True),
        ({}, Failure("worker_lost", 1), True),
        ({}, Failure("cuda_out_of_memory", 1), False),
        ({}, Failure("output_unreadable", 1), False),
        ({"on": "cuda_out_of_memory"}, Failure("cuda_out_of_memory", 1), True),
        ({}, Failure("timeout", 143), False),
        ({"on": "timeout"}, Failure("timeout", 143), False),
        ({"on": "exit 75"}, Failure("rank_failed", 75), True),
        ({"on": "exit 75"}, Failure("rank_failed", 76), False),
        ({"on": "exit 7, signal kill"}, Failure("rank_failed", 137), True),
        ({"on": "signal 9"}, Failure("rank_failed", 137), True),
        (
            {"on": "log /NCCL .*, timed out/"},
            Failure("x", 1, frozenset({"NCCL .*, timed out"})),
            True,
        ),
        ({"on": "log /NCCL .*, timed out/"}, Failure("x", 1), False),
        ({"on": '["log /a,b/", "exit 2"]'}, Failure("x", 2), True),
        ({"never": "exit 1"}, Failure("rank_failed", 1), False),
        ({"never": "exit 1"}, Failure("cuda_out_of_memory", 2), True),
        ({"elsewhere": "gpu_ecc_error"}, Failure("gpu_ecc_error", 1), True),
    ],
)
def test_what_is_tried_again(words: dict[str, str], failure: Failure, tried: bool) -> None:
    assert (retry.decide(_policy(**words), 1, failure) is not None) is tried


def test_patterns_are_looked_for_in_lines() -> None:
    text = "a\nNCCL op, timed out\n"
    expressions = ["^NCCL .*, timed out$", "^op", "a\\nN", "ä"]
    assert log_patterns.found(expressions, text) == {"^NCCL .*, timed out$", "a\\nN"}
    assert log_patterns.found(["ä"], "größer ä\udcff") == {"ä"}


def test_a_pattern_that_takes_for_ever_holds_up_nobody() -> None:
    assert not log_patterns.found(["^(a+)+$"], "a" * 60 + "b", 0.5)


def test_pauses_double_and_end_with_the_last_attempt() -> None:
    policy = _policy(max_attempts=5, backoff_s=3)
    decisions = [retry.decide(policy, attempt, Failure("x", 1)) for attempt in range(1, 6)]
    assert [None if decision is None else decision.pause_s for decision in decisions] == [
        3,
        6,
        12,
        24,
        None,
    ]


@pytest.mark.parametrize(
    "properties, suggestion",
    [
        ({"torchyard.retry.max_attempt": 3}, "torchyard.retry.max_attempts"),
        ({"torchyard.retry.max_attempts": "many"}, "number from 1"),
        ({"torchyard.retry.max_attempts": 2.5}, "whole number"),
        ({"torchyard.retry.on": "exit 1"}, "max_attempts"),
        ({"torchyard.retry.max_attempts": 2, "torchyard.retry.on": "Exit 1"}, "exit 75"),
        ({"torchyard.retry.max_attempts": 2, "torchyard.retry.on": "signal SIGFOO"}, "exit 75"),
        ({"torchyard.retry.max_attempts": 2, "torchyard.retry.on": "log /(/"}, "exit 75"),
        ({"torchyard.retry.max_attempts": 2, "torchyard.retry.backoff_s": -1}, "from 0"),
    ],
)
def test_a_slip_of_the_pen_is_refused(
    properties: dict[str, Any], suggestion: str, services: Services
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        submit(services, properties=properties)
    assert suggestion in refused.value.hint
    assert refused.value.at[0] == "properties"


ASKED = {"torchyard.retry.max_attempts": 2, "torchyard.retry.backoff_s": 30}


def test_a_failed_attempt_is_followed_by_another_after_the_pause(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    job = submit(services, properties=ASKED)
    scheduler.run_round()
    first = attempt_of(services, job)
    Worker(services, first).fails(9)
    executor.finish(first.id)
    queued = again(services, job)
    assert (queued.status, queued.error) == (Status.QUEUED, None)
    assert "waits before attempt 2" in waiting_reasons.describe(services, queued)
    assert (
        computes.use(services.db, computes.get(services.db, support.WORKSPACE, "local")).busy == 0
    )
    scheduler.run_round()
    assert again(services, job).status is Status.QUEUED, "it pauses"
    clock.advance(31)
    scheduler.run_round()
    second = attempt_of(services, job)
    assert (second.number, again(services, job).status) == (2, Status.STARTING)
    assert [plan.attempt for plan in executor.launches] == [1, 2]
    Worker(services, second).fails(8)
    ended = again(services, job)
    assert (ended.status, ended.exit_code) == (Status.FAILED, 8)
    with services.db.read() as connection:
        tries = attempt_store.attempts_of(connection, job.id)
    assert [attempt.exit_code for attempt in tries] == [9, 8]
    assert [attempt.error.message for attempt in tries if attempt.error] == [
        "rank 0 exited with code 9",
        "rank 0 exited with code 8",
    ]


def test_others_are_not_held_up_by_one_that_pauses(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    job = submit(services, properties=ASKED, resources={"instance_count": 4})
    scheduler.run_round()
    first = attempt_of(services, job)
    for node in range(4):
        Worker(services, first, node).fails(1, "rank_failed" if node == 0 else "stopped")
    executor.finish(first.id)
    other = submit(services)
    scheduler.run_round()
    assert again(services, other).status is Status.STARTING


def test_a_job_that_pauses_can_be_canceled(services: Services, scheduler: Scheduler) -> None:
    job = submit(services, properties=ASKED)
    scheduler.run_round()
    Worker(services, attempt_of(services, job)).fails(9)
    actions.cancel(services, job.workspace, job.name)
    assert again(services, job).status is Status.CANCELED


def test_a_canceled_attempt_is_not_tried_again(services: Services, scheduler: Scheduler) -> None:
    job = submit(services, properties=ASKED)
    scheduler.run_round()
    worker = Worker(services, attempt_of(services, job))
    worker.tell("ranks_started", ranks=[])
    actions.cancel(services, job.workspace, job.name)
    worker.tell("rank_exited", rank=0, local_rank=0, exit_code=143, signal=15)
    worker.tell("node_exited", exit_code=143, error={"code": "canceled", "message": "canceled"})
    assert again(services, job).status is Status.CANCELED


def test_elsewhere_takes_other_nodes_while_there_are_others(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    properties = {
        **ASKED,
        "torchyard.retry.max_attempts": 6,
        "torchyard.retry.elsewhere": "bad_gpu",
    }
    job = submit(services, properties={**properties, "torchyard.retry.backoff_s": 0})
    used = []
    for _ in range(5):
        clock.advance(1)
        scheduler.run_round()
        attempt = attempt_of(services, job)
        with services.db.read() as connection:
            used += computes.slots_of(connection, attempt.id)
        Worker(services, attempt).fails(1, "bad_gpu")
        executor.finish(attempt.id)
        scheduler.run_round()
    # All four are avoided after the fourth, and then any will do.
    assert used == [0, 1, 2, 3, 0]


def test_a_lost_worker_is_tried_again_too(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    job = submit(services, properties=ASKED)
    scheduler.run_round()
    first = attempt_of(services, job)
    executor.lose(first.id)
    scheduler.run_round()
    assert again(services, job).status is Status.QUEUED
    clock.advance(31)
    scheduler.run_round()
    assert attempt_of(services, job).number == 2
    # The first one's worker, should it come back, is not listened to.
    worker_reports.lose(services, first.id, 0)
    assert again(services, job).status is Status.STARTING


def test_what_was_printed_decides(services: Services, scheduler: Scheduler) -> None:
    job = submit(services, properties={**ASKED, "torchyard.retry.on": "log /ECC error/"})
    other = submit(services, properties={**ASKED, "torchyard.retry.on": "log /ECC error/"})
    scheduler.run_round()
    scheduler.run_round()
    services.logs.append(
        support.WORKSPACE, job.name, 1, "user_logs/std_log.txt", 0, b"an ECC error\n"
    )
    for tried_job in (job, other):
        Worker(services, attempt_of(services, tried_job)).fails(9)
    assert (again(services, job).status, again(services, other).status) == (
        Status.QUEUED,
        Status.FAILED,
    )
