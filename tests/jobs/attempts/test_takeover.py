"""Two servers on one database: which one owns an attempt, and that none starts twice."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from jobs import support
from jobs.support import Worker, again, attempt_of, submit
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.executors.executor import Handle, State, Status
from torchyard.executors.fake import FakeExecutor
from torchyard.executors.local import LocalExecutor
from torchyard.jobs.attempts import endings, takeover
from torchyard.jobs.attempts.heartbeats import GIVEN_UP_AFTER_S
from torchyard.jobs.records import attempt_store
from torchyard.jobs.records.logs import Logs
from torchyard.jobs.records.types import ENDED, Attempt, Job
from torchyard.jobs.records.wakeups import Signals
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.servers.files import ServerFiles
from torchyard.servers.lease import TERM_S, Lease
from torchyard.servers.types import LeaseLost

HERE, THERE = "here boot-1 1", "there boot-9 9"


@dataclass
class OneServer:
    """A server whose rounds the test runs."""

    services: Services
    lease: Lease
    scheduler: Scheduler


@dataclass
class Home:
    """What the servers share; all processes of one machine run on one executor."""

    first: Services
    clock: FakeClock
    executor: FakeExecutor

    def server(self, url: str, here: str = HERE) -> OneServer:
        wakeup = threading.Event()
        lease = Lease(
            self.first.db,
            ServerFiles(self.first.home),
            url,
            wakeup.set,
            here,
            now=lambda connection: self.clock.now(),
            is_alive=lambda pid, start_time: True,
            monotonic=lambda: self.clock.now().timestamp(),
        )
        lease.take()
        services = replace(self.first, wakeup=wakeup, signals=Signals(), membership=lease)
        return OneServer(services, lease, Scheduler(services, self.executor, url))

    def passes(self, seconds: float, *servers: OneServer, every_s: int = 1) -> None:
        """Advance the clock, with renewals and rounds of running servers."""
        for _ in range(0, int(seconds), every_s):
            self.clock.advance(every_s)
            for server in servers:
                server.lease.renew()
                server.scheduler.run_round()


@pytest.fixture
def home(tmp_path: Path, db: Database, clock: FakeClock) -> Home:
    return Home(support.make_services(tmp_path, db, clock), clock, FakeExecutor())


def claimed(home: Home, server: OneServer) -> tuple[Job, Attempt]:
    """A job that holds its nodes, and whose server has not launched it yet."""
    job = submit(server.services)
    server.scheduler.preparer.prepare()
    attempt = server.scheduler.claimer.claim_one(again(home.first, job).id).attempt
    assert attempt is not None
    return job, attempt


def owner(home: Home, job: Job) -> str | None:
    return attempt_of(home.first, job).server


def test_the_server_that_claims_a_job_owns_it(home: Home) -> None:
    first, second = home.server("one"), home.server("other")
    first_job = submit(first.services)
    first.scheduler.run_round()
    second_job = submit(first.services)
    second.scheduler.run_round()
    assert (owner(home, first_job), owner(home, second_job)) == (first.lease.id, second.lease.id)
    home.passes(10, first, second)
    assert (owner(home, first_job), owner(home, second_job)) == (first.lease.id, second.lease.id)
    assert len(home.executor.launches) == 2
    # Either server accepts reports; the owner cleans up.
    for job in (first_job, second_job):
        Worker(second.services, attempt_of(home.first, job)).whole_life()
        home.executor.finish(attempt_of(home.first, job).id)
    second.scheduler.run_round()
    assert not attempt_of(home.first, first_job).clean and attempt_of(home.first, second_job).clean
    first.scheduler.run_round()
    assert attempt_of(home.first, first_job).clean


def test_attempts_of_a_dead_server_are_taken_over(home: Home) -> None:
    dead, second = home.server("dead"), home.server("other")
    home.passes(10, dead, second)
    running, lost, ended = (submit(dead.services) for _ in range(3))
    dead.scheduler.run_round()
    Worker(dead.services, attempt_of(home.first, ended)).whole_life()
    home.executor.finish(attempt_of(home.first, ended).id)
    home.passes(TERM_S, second)
    assert owner(home, running) == dead.lease.id, "its term is not over yet"
    home.executor.lose(attempt_of(home.first, lost).id)
    home.passes(2, second)
    assert owner(home, running) == owner(home, lost) == second.lease.id
    assert not again(home.first, running).status.ended
    failed = again(home.first, lost)
    assert failed.error is not None and failed.error.code == "worker_lost"
    assert attempt_of(home.first, ended).clean
    assert len(home.executor.launches) == 3, "nothing ran twice"


def test_a_claimed_but_unlaunched_attempt_starts_once(home: Home) -> None:
    still, second = home.server("still"), home.server("other")
    home.passes(10, still, second)
    job, attempt = claimed(home, still)
    home.passes(TERM_S + 1, second)
    assert owner(home, job) == second.lease.id and len(home.executor.launches) == 1
    # It resumes where it was suspended: before the launch.
    launcher = still.scheduler.watcher._launcher
    with pytest.raises(LeaseLost):
        launcher.launch(attempt)
    home.passes(5, still, second)
    Worker(second.services, attempt).whole_life()
    home.executor.finish(attempt.id)
    home.passes(5, still, second)
    with pytest.raises(LeaseLost):
        launcher.launch(attempt)
    assert len(home.executor.launches) == 1
    assert again(home.first, job).status.value == "Completed"


def test_a_server_suspended_before_the_launch_starts_nothing(home: Home) -> None:
    still, second = home.server("still"), home.server("other")
    home.passes(10, still, second)
    _, attempt = claimed(home, still)
    launcher = still.scheduler.watcher._launcher
    launcher._plan(attempt)  # its transaction is over, nothing has started
    home.clock.advance(TERM_S)
    with pytest.raises(LeaseLost):
        still.services.membership.confirm()
    assert not home.executor.launches


def test_a_server_without_a_lease_claims_nothing(home: Home) -> None:
    still, second = home.server("still"), home.server("other")
    home.passes(10, still, second)
    home.passes(TERM_S + 1, second)
    job = submit(still.services)
    still.scheduler.run_round()
    assert again(home.first, job).status.value == "Queued" and not still.scheduler.trouble
    still.lease.renew()
    still.scheduler.run_round()
    assert owner(home, job) == still.lease.id


def test_when_two_servers_take_over_at_once_one_succeeds(home: Home) -> None:
    dead, first, second = (home.server(url) for url in ("dead", "one", "other"))
    job = submit(dead.services)
    dead.scheduler.run_round()
    home.passes(10, first, second)
    attempt = attempt_of(home.first, job)
    assert attempt.server in (first.lease.id, second.lease.id)
    stale = replace(attempt, server=dead.lease.id)
    with home.first.db.write() as connection:
        assert not attempt_store.hand_over(connection, stale, second.lease.id)


def test_attempts_of_a_former_single_server_are_taken_over(home: Home) -> None:
    alone = Scheduler(home.first, home.executor, "alone")
    job = submit(home.first)
    alone.run_round()
    assert owner(home, job) is None
    server = home.server("one of several")
    server.scheduler.run_round()
    assert owner(home, job) == server.lease.id
    # And back: a single server owns everything.
    assert takeover.owned(home.first.membership, [attempt_of(home.first, job)])


def test_the_server_that_sees_the_processes_owns_the_attempt(home: Home) -> None:
    nearby, far = home.server("near"), home.server("far", THERE)
    job = submit(far.services)
    far.scheduler.run_round()
    attempt = attempt_of(home.first, job)
    seen_there = Handle("local", {"machine": THERE}).to_json()
    with home.first.db.write() as connection:
        attempt_store.change_attempt(connection, attempt.id, handle=seen_there)
    assert takeover.take_over(nearby.services) == 0
    # Taken over by a server that does not see them, and back by one that does.
    with home.first.db.write() as connection:
        assert attempt_store.hand_over(connection, attempt_of(home.first, job), "gone")
    assert takeover.take_over(nearby.services) == 0, "`far` lives and sees them"
    assert takeover.take_over(far.services) == 1
    far.lease.stop()
    assert takeover.take_over(nearby.services) == 1
    back = home.server("back", THERE)
    assert takeover.take_over(back.services) == 1 and owner(home, job) == back.lease.id
    assert takeover.take_over(nearby.services) == 0


class Elsewhere(FakeExecutor):
    """An attempt whose nodes are on an unseen machine."""

    def status(self, handle: Handle) -> Status:
        running: State = "running"
        return Status((running,) * int(handle.body["nodes"]), seen=False)


def test_unseen_processes_are_judged_by_heartbeats_alone(home: Home) -> None:
    home.executor = Elsewhere()
    server = home.server("one")
    job = submit(server.services)
    home.passes(5, server)
    attempt = attempt_of(home.first, job)
    Worker(server.services, attempt).tell("ranks_started", ranks=[])
    home.passes(40, server, every_s=10)
    assert again(home.first, job).status.value == "NotResponding"
    home.passes(GIVEN_UP_AFTER_S, server, every_s=20)
    failed = again(home.first, job)
    assert failed.error is not None and failed.error.code == "not_responding"
    assert not attempt_of(home.first, job).clean
    home.passes(GIVEN_UP_AFTER_S, server, every_s=20)
    assert attempt_of(home.first, job).clean


def test_the_local_engine_does_not_guess_about_other_machines(tmp_path: Path) -> None:
    engine = LocalExecutor(tmp_path, {}, machine=HERE)
    scratch = tmp_path / "scratch"
    (scratch / "node-0").mkdir(parents=True)
    (scratch / "node-1").mkdir()
    (scratch / "node-1" / "exit.json").write_text("{}")
    nodes: list[dict[str, Any]] = [{"pid": 1, "start_time": 1}] * 2
    body = {"scratch": str(scratch), "nodes": nodes, "machine": THERE}
    there = engine.status(Handle("local", body))
    assert (there.nodes, there.seen, there.over) == (("running", "exited"), False, False)
    here = engine.status(Handle("local", {**body, "machine": "here boot-0 1"}))
    assert (here.nodes, here.seen) == (("lost", "exited"), True), "before the machine's last start"
    engine.stop(Handle("local", body), 0.0)  # process 1 is another one here


def test_a_report_at_each_of_two_servers_ends_the_attempt_once(home: Home) -> None:
    first, second = home.server("one"), home.server("other")
    job = submit(first.services, resources={"instance_count": 2})
    first.scheduler.run_round()
    attempt = attempt_of(home.first, job)
    for server, node in ((first, 0), (second, 1)):
        Worker(server.services, attempt, node).whole_life()
    endings.finish(first.services, attempt.id)
    endings.finish(second.services, attempt.id)
    assert again(home.first, job).status in ENDED


def test_a_chunk_that_comes_late_at_another_server_leaves_the_same_bytes(tmp_path: Path) -> None:
    first, second = Logs(tmp_path, shared=True), Logs(tmp_path, shared=True)
    assert first.append("w", "j", 1, "a", 0, b"hello ") == 6
    assert second.append("w", "j", 1, "a", 6, b"world") == 11
    assert first.append("w", "j", 1, "a", 0, b"hello wor") == 11
    assert (tmp_path / "w/j/1/a").read_bytes() == b"hello world"


def test_a_quota_counts_what_other_servers_wrote(tmp_path: Path) -> None:
    first, second = Logs(tmp_path, shared=True), Logs(tmp_path, shared=True)
    assert first.append_within("w", "j", 1, "a", 0, b"12345", 8, b"cut\n") == 5
    assert second.append_within("w", "j", 1, "b", 0, b"12", 8, b"cut\n") == 2
    assert first.append_within("w", "j", 1, "a", 5, b"6789", 8, b"cut\n") == -1
    assert (tmp_path / "w/j/1/a").read_bytes() == b"123456\ncut\n"
