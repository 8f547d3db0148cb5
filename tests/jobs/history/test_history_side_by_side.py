"""Many writers of one thing at once: each gets what it would get alone, on both databases."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs import support
from jobs.support import ME, WORKSPACE, submit
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput, TorchyardError
from torchyard.compute import actions as computes
from torchyard.data import assets
from torchyard.jobs import actions
from torchyard.jobs.history.history import Received
from torchyard.jobs.history.history_records import Metric, Param, Tag
from torchyard.jobs.records import attempt_store, experiment_store, progress, store
from torchyard.jobs.requests import runs, submission
from torchyard.jobs.scheduling import clusters
from torchyard.jobs.services import Services
from torchyard.workspaces import actions as workspaces

WRITERS = 8


@pytest.fixture
def services(tmp_path: Path, db: Database, clock: FakeClock) -> Services:
    return support.make_services(tmp_path / "home", db, clock)


def at_once(call: Callable[[int], Any], writers: int = WRITERS) -> list[Any]:
    """What each call answers or raises, all of them begun together."""
    answers: list[Any] = [None] * writers
    together = threading.Barrier(writers)

    def one(number: int) -> None:
        together.wait()
        try:
            answers[number] = call(number)
        except TorchyardError as error:
            answers[number] = error

    threads = [threading.Thread(target=one, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in answers, "a call failed with what users must not see"
    return answers


def test_a_new_metric_key(services: Services) -> None:
    job = submit(services)

    def log(number: int) -> str:
        for step in range(30):
            shared = [Metric(f"k{step % 3}", step, step, 1.0)]
            private = [Metric(f"k{step % 3}", 1000 * number + step, step, float(number))]
            services.history.append(job.id, shared + private)
        return "ok"

    assert at_once(log) == ["ok"] * WRITERS
    for key in ("k0", "k1", "k2"):
        points = services.history.series(job.id, key)
        # Writer 0's own points of value 0 stand beside the shared ones of value 1.
        assert len(points) == len(set(points)) == 10 * (WRITERS + 1)


def test_writers_of_two_jobs_in_either_order(services: Services) -> None:
    """A worker's records name several runs; no two writers wait for each other in a ring."""
    a, b = submit(services, name="aaaa"), submit(services, name="bbbb")
    ids = {"aaaa": a.id, "bbbb": b.id}

    def send(number: int) -> Received:
        names = ["aaaa", "bbbb"] if number % 2 else ["bbbb", "aaaa"]
        answer = Received(0)
        for seq in range(20):
            records = [
                {"run": name, "kind": "metric", "key": "m", "value": number, "timestamp": seq}
                for name in names
            ]
            answer = services.history.receive(ids.get, f"attempt{number}", 0, 2 * seq, records)
        return answer

    assert at_once(send) == [Received(40)] * WRITERS
    for job in (a, b):
        assert len(services.history.series(job.id, "m")) == 20 * WRITERS


def test_one_workers_records_sent_twice_at_once(services: Services) -> None:
    job = submit(services, name="twice")
    records = [
        {"run": "twice", "kind": "metric", "key": "m", "value": n, "timestamp": n, "step": n}
        for n in range(50)
    ]
    answers = at_once(lambda _: services.history.receive({"twice": job.id}.get, "a", 0, 0, records))
    assert [answer.next for answer in answers] == [50] * WRITERS
    assert [point.step for point in services.history.series(job.id, "m")] == list(range(50))


def test_a_new_parameter(services: Services) -> None:
    job = submit(services)

    def append(name: str, value: str) -> str:
        services.history.append(job.id, [Param(name, value)])
        return "ok"

    same = at_once(lambda _: append("lr", "0.1"))
    assert same == ["ok"] * WRITERS
    others = at_once(lambda n: append("seed", str(n)))
    assert others.count("ok") == 1
    assert {type(answer) for answer in others if answer != "ok"} == {InvalidInput}
    assert services.history.params(job.id) == {"lr": "0.1", "seed": str(others.index("ok"))}


def test_tags_merge(services: Services) -> None:
    job = submit(services)

    def tag(number: int) -> str:
        for step in range(10):
            if number % 2:
                services.history.append(job.id, [Tag(f"{number}.{step}", "x")])
            else:
                actions.update(services, WORKSPACE, job.name, {"tags": {f"{number}.{step}": "x"}})
        return "ok"

    assert at_once(tag) == ["ok"] * WRITERS
    expected = {f"{number}.{step}" for number in range(WRITERS) for step in range(10)}
    assert set(support.again(services, job).tags) == expected


def test_an_experiment_of_one_name(services: Services) -> None:
    results = at_once(lambda _: runs.create_experiment(services, WORKSPACE, "one", {}).name)
    assert (
        results.count("one") == 1
        and sum(isinstance(result, Conflict) for result in results) == WRITERS - 1
    )
    jobs = at_once(
        lambda n: submit(services, experiment_name="two", name=f"job{n}").experiment_name
    )
    assert jobs == ["two"] * WRITERS
    with services.db.read() as connection:
        names = [experiment.name for experiment in experiment_store.list_in(connection, WORKSPACE)]
    assert sorted(names).count("one") == names.count("two") == 1


def test_a_job_of_one_name(services: Services) -> None:
    document = {**support.JOB, "name": "same_job"}
    answers = at_once(lambda _: submission.create(services, WORKSPACE, document, ME))
    assert len({job.id for job, _ in answers}) == 1
    assert sum(new for _, new in answers) == 1


def test_a_workspace_of_one_name(services: Services) -> None:
    body = {"name": "vision"}
    names = at_once(lambda _: workspaces.create(services.db, services.clock, body).name)
    assert names.count("vision") == 1
    assert sum(isinstance(name, Conflict) for name in names) == WRITERS - 1


def test_events_have_no_gap(services: Services) -> None:
    job = submit(services)
    before = len(actions.events(services.db, job))

    def tell(number: int) -> str:
        for step in range(10):
            with services.db.write() as connection:
                progress.notice(connection, job, f"{number} {step}", services.clock.now())
        return "ok"

    assert at_once(tell) == ["ok"] * WRITERS
    events = actions.events(services.db, job)
    assert [event.seq for event in events] == list(range(1, before + 10 * WRITERS + 1))


def test_node_slots_are_held_once(services: Services) -> None:
    def hold(number: int) -> str:
        with services.db.write() as connection:
            attempt, now = f"attempt{number}", services.clock.now()
            return (
                computes.Holding(connection).try_hold(WORKSPACE, "local", 1, attempt, now) or "ok"
            )

    assert at_once(hold).count("ok") == 4
    with services.db.write() as connection:
        for number in range(WRITERS):
            computes.release(connection, f"attempt{number}", services.clock.now())
        assert (
            computes.Holding(connection).try_hold(
                WORKSPACE, "local", 4, "all", services.clock.now()
            )
            == ""
        )


def test_versions_of_data(services: Services) -> None:
    def register(number: int) -> str:
        request = assets.DataRequest(
            name="mnist", path=f"https://example.com/{number}", type="uri_file"
        )
        return assets.register(
            services.db, services.clock, WORKSPACE, request, request.path, ME.user
        ).version

    assert sorted(at_once(register)) == [str(number) for number in range(1, WRITERS + 1)]


def test_two_schedulers_claim_a_job_once(services: Services) -> None:
    """The number of an attempt is given in the transaction that takes its nodes."""
    from torchyard.executors.fake import FakeExecutor
    from torchyard.jobs.scheduler import Scheduler

    jobs = [submit(services) for _ in range(3)]
    schedulers = [Scheduler(services, FakeExecutor(), "http://127.0.0.1:1") for _ in range(4)]

    def run(number: int) -> str:
        schedulers[number].run_round()
        return "ok"

    assert at_once(run, 4) == ["ok"] * 4
    assert [scheduler.trouble for scheduler in schedulers] == [""] * 4
    with services.db.read() as connection:
        for job in jobs:
            assert [
                attempt.number for attempt in attempt_store.attempts_of(connection, job.id)
            ] == [1]


def test_a_property_is_said_once(services: Services) -> None:
    job = submit(services)

    def say(number: int) -> str:
        changed_job = actions.add_properties(services, WORKSPACE, job.name, {"host": f"h{number}"})
        return changed_job.properties["host"]

    answers = at_once(say)
    (stored,) = [answer for answer in answers if isinstance(answer, str)]
    assert actions.get(services, WORKSPACE, job.name).properties["host"] == stored
    assert all(isinstance(answer, Conflict) for answer in answers if answer != stored)


@pytest.mark.parametrize("force", [False, True])
def test_a_cluster_goes_while_jobs_come(services: Services, force: bool) -> None:
    def act(number: int) -> Any:
        if number == 0:
            return ("gone", clusters.delete(services, WORKSPACE, name, "me", force=force))
        return submit(services, compute=name)

    for round in range(6):
        name = f"cluster-{round}"
        computes.create(services.db, services.clock, WORKSPACE, {"name": name})
        removed, *came = at_once(act, 3)
        refused = [answer for answer in came if isinstance(answer, TorchyardError)]
        assert all(
            "is being deleted" in str(error) or "not exist" in str(error) for error in refused
        )
        with services.db.read() as connection:
            live = store.live_at(connection, WORKSPACE, name)
        # None is left behind that would wait for a cluster that is no more.
        assert isinstance(removed, Conflict) if live else removed == ("gone", True)
