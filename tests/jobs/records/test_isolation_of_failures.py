"""One job that can't be handled holds up no other, and comes to an end itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs import support
from jobs.support import Worker, again, attempt_of, submit
from torchyard.base.clock import FakeClock
from torchyard.compute import actions as computes
from torchyard.executors.fake import FakeExecutor
from torchyard.executors.machine import Machine
from torchyard.jobs import actions
from torchyard.jobs.attempts import worker_reports
from torchyard.jobs.files import scratch
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.shared.plan import LaunchPlan


def _with_table(services: Services, content: bytes) -> Job:
    sha256 = services.blobs.of("default").put_bytes(content)
    files = [{"path": "MLTable", "sha256": sha256, "size": len(content)}]
    path = f"snapshot:{services.blobs.of('default').put_snapshot({'files': files}).id}"
    return submit(services, inputs={"t": {"type": "mltable", "mode": "eval_mount", "path": path}})


def test_an_input_that_can_t_be_read(services: Services, scheduler: Scheduler) -> None:
    bad = _with_table(services, b"[" * 1_000)
    good = submit(services)
    for _ in range(3):  # a round takes what its time allows
        scheduler.run_round()
    scheduler.preparer.close()
    assert again(services, good).status is Status.STARTING
    failed = again(services, bad)
    assert failed.status is Status.FAILED
    assert failed.error is not None and "MLTable" in failed.error.message


def test_a_cluster_that_became_another_one(
    services: Services, tmp_path: Path, executor: FakeExecutor
) -> None:
    environ = {"TORCHYARD_DEVICES": "4", "TORCHYARD_DEVICE_LOCKS": str(tmp_path / "locks")}
    services = replace(services, devices=Machine(environ))
    scheduler = Scheduler(services, executor, "http://127.0.0.1:1")
    document: dict[str, Any] = {"name": "grows", "max_instances": 1}
    computes.create(services.db, services.clock, support.WORKSPACE, document)
    bad = submit(services, compute="grows", properties={"torchyard.gpus": "2"})
    sized = {**document, "size": "Standard_NC6s_v3"}
    computes.create(services.db, services.clock, support.WORKSPACE, sized)
    good = submit(services)
    scheduler.run_round()
    assert scheduler.trouble == ""
    assert again(services, good).status is Status.STARTING
    failed = again(services, bad)
    assert failed.status is Status.FAILED
    assert failed.error is not None and "`torchyard.gpus` is 2" in failed.error.message


def test_a_job_is_canceled_while_its_launch_fails(services: Services, clock: FakeClock) -> None:
    class Failing(FakeExecutor):
        def launch(self, plan: LaunchPlan) -> Any:
            actions.cancel(services, support.WORKSPACE, plan.job)
            raise ValueError("no such node")

    scheduler = Scheduler(services, Failing(), "http://127.0.0.1:1")
    job = submit(services, properties={"torchyard.retry.max_attempts": "3"})
    scheduler.run_round()
    clock.advance(60)
    scheduler.run_round()
    assert scheduler.trouble == ""
    assert again(services, job).status is Status.CANCELED
    assert attempt_of(services, job).number == 1


def test_history_that_can_t_be_read_holds_up_no_second_attempt(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    job = submit(services, properties={"torchyard.retry.max_attempts": "2"})
    scheduler.run_round()
    first = attempt_of(services, job)
    spool = scratch.node_folder(services, first.id, 0) / "spool" / "history"
    spool.mkdir(parents=True)
    (spool / "history-x.ndjson").write_text("{")
    Worker(services, first).fails(3)
    executor.finish(first.id)
    scheduler.run_round()
    clock.advance(60)
    scheduler.run_round()
    assert attempt_of(services, job).number == 2
    assert again(services, job).status is Status.STARTING
    assert spool.exists()


def test_what_an_ended_attempt_still_tells_changes_nothing(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    job = submit(services, properties={"torchyard.retry.max_attempts": "2"})
    scheduler.run_round()
    first = attempt_of(services, job)
    late = Worker(services, first)
    worker_reports.lose(services, first.id, 0)
    executor.finish(first.id)
    clock.advance(60)
    scheduler.run_round()
    scheduler.run_round()
    assert attempt_of(services, job).number == 2
    before = actions.events(services.db, job)
    late.tell("ranks_started", ranks=[])
    late.tell("node_finalizing")
    assert again(services, job).status is Status.STARTING
    assert actions.events(services.db, job) == before
