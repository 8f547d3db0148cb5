"""One job that can't be handled holds up no other, and comes to an end itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs import rooms
from jobs.rooms import Worker, again, attempt_of, submit
from torchyard.base.clock import FakeClock
from torchyard.compute import actions as computes
from torchyard.executors.fake import FakeExecutor
from torchyard.executors.machine import Machine
from torchyard.jobs import actions
from torchyard.jobs.attempts import worker_reports
from torchyard.jobs.files import scratch
from torchyard.jobs.http.scheduler import Scheduler
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.services import Room
from torchyard.shared.plan import LaunchPlan


def _with_table(room: Room, content: bytes) -> Job:
    sha256 = room.blobs.put_bytes(content)
    files = [{"path": "MLTable", "sha256": sha256, "size": len(content)}]
    path = f"snapshot:{room.blobs.put_snapshot({'files': files}).id}"
    return submit(room, inputs={"t": {"type": "mltable", "mode": "eval_mount", "path": path}})


def test_an_input_that_can_t_be_read(room: Room, scheduler: Scheduler) -> None:
    bad = _with_table(room, b"[" * 1_000)
    good = submit(room)
    for _ in range(3):  # a round takes what its time allows
        scheduler.look()
    scheduler.preparer.close()
    assert again(room, good).status is Status.STARTING
    failed = again(room, bad)
    assert failed.status is Status.FAILED
    assert failed.error is not None and "MLTable" in failed.error.message


def test_a_cluster_that_became_another_one(
    room: Room, tmp_path: Path, executor: FakeExecutor
) -> None:
    environ = {"TORCHYARD_DEVICES": "4", "TORCHYARD_DEVICE_LOCKS": str(tmp_path / "locks")}
    room = replace(room, devices=Machine(environ))
    scheduler = Scheduler(room, executor, "http://127.0.0.1:1")
    document: dict[str, Any] = {"name": "grows", "max_instances": 1}
    computes.create(room.db, room.clock, rooms.WORKSPACE, document)
    bad = submit(room, compute="grows", properties={"torchyard.gpus": "2"})
    sized = {**document, "size": "Standard_NC6s_v3"}
    computes.create(room.db, room.clock, rooms.WORKSPACE, sized)
    good = submit(room)
    scheduler.look()
    assert scheduler.trouble == ""
    assert again(room, good).status is Status.STARTING
    failed = again(room, bad)
    assert failed.status is Status.FAILED
    assert failed.error is not None and "`torchyard.gpus` is 2" in failed.error.message


def test_a_job_is_canceled_while_its_launch_fails(room: Room, clock: FakeClock) -> None:
    class Failing(FakeExecutor):
        def launch(self, plan: LaunchPlan) -> Any:
            actions.cancel(room, rooms.WORKSPACE, plan.job)
            raise ValueError("no such node")

    scheduler = Scheduler(room, Failing(), "http://127.0.0.1:1")
    job = submit(room, properties={"torchyard.retry.max_attempts": "3"})
    scheduler.look()
    clock.advance(60)
    scheduler.look()
    assert scheduler.trouble == ""
    assert again(room, job).status is Status.CANCELED
    assert attempt_of(room, job).number == 1


def test_history_that_can_t_be_read_holds_up_no_second_attempt(
    room: Room, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    job = submit(room, properties={"torchyard.retry.max_attempts": "2"})
    scheduler.look()
    first = attempt_of(room, job)
    spool = scratch.node_folder(room, first.id, 0) / "spool" / "history"
    spool.mkdir(parents=True)
    (spool / "history-x.ndjson").write_text("{")
    Worker(room, first).fails(3)
    executor.finish(first.id)
    scheduler.look()
    clock.advance(60)
    scheduler.look()
    assert attempt_of(room, job).number == 2
    assert again(room, job).status is Status.STARTING
    assert spool.exists()


def test_what_an_ended_attempt_still_tells_changes_nothing(
    room: Room, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    job = submit(room, properties={"torchyard.retry.max_attempts": "2"})
    scheduler.look()
    first = attempt_of(room, job)
    late = Worker(room, first)
    worker_reports.lose(room, first.id, 0)
    executor.finish(first.id)
    clock.advance(60)
    scheduler.look()
    scheduler.look()
    assert attempt_of(room, job).number == 2
    before = actions.events(room, job)
    late.tell("ranks_started", ranks=[])
    late.tell("node_finalizing")
    assert again(room, job).status is Status.STARTING
    assert actions.events(room, job) == before
