"""What nodes report: repeated, cut up, refused, and by how many statements."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sqlalchemy import event, select

from jobs.support import again, attempt_of, submit
from torchyard.base.clock import FakeClock, to_text
from torchyard.base.errors import InvalidInput, NotAuthenticated
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.attempts import node_reports, report_fields
from torchyard.jobs.records import attempt_store, store
from torchyard.jobs.records.types import Attempt, Job, Status
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services

_FAILED = {"code": "rank_failed", "message": "rank 1 exited with code 3"}
_LIVES: list[list[tuple[str, dict[str, Any]]]] = [
    [("node_finalizing", {}), ("node_exited", {"exit_code": 0, "error": None})],
    [
        ("rank_exited", {"rank": 1, "exit_code": 3, "signal": None}),
        ("node_finalizing", {}),
        ("node_exited", {"exit_code": 3, "error": _FAILED}),
    ],
    [("node_stopping", {"reason": "signal"}), ("node_exited", {"exit_code": 1, "error": None})],
    [("preflight", {"gpus": 1}), ("notice", {"message": "slow"}), ("node_serving", {})],
    [("hang", {}), ("node_finalizing", {})],
]


def report(
    services: Services,
    attempt: Attempt,
    node: int,
    first: int,
    *kinds: tuple[str, dict[str, Any]],
    after_gap: tuple[str, dict[str, Any]] | None = None,
) -> int:
    """Returns the number of the event expected next."""
    at = to_text(services.clock.now())
    numbered = [(first + number, *kind) for number, kind in enumerate(kinds)]
    if after_gap is not None:
        numbered.append((first + len(kinds) + 1, *after_gap))
    events = [{"seq": seq, "at": at, "kind": kind, "body": body} for seq, kind, body in numbered]
    read = report_fields.read_events(node, events)
    return node_reports.receive(services, attempt.id, node, read).following


def started(services: Services, count: int, nodes: int) -> list[tuple[Job, Attempt]]:
    scheduler = Scheduler(services, FakeExecutor(), "http://127.0.0.1:1")
    jobs = [submit(services, resources={"instance_count": nodes}) for _ in range(count)]
    for _ in range(count):
        scheduler.run_round()
    scheduler.preparer.close()
    return [(job, attempt_of(services, job)) for job in jobs]


def outcome(services: Services, job: Job, attempt: Attempt) -> object:
    """All that the database says of it, but for names and times."""
    with services.db.read() as connection:
        current = attempt_store.attempt_by_id(connection, attempt.id)
        assert current is not None
        nodes = connection.execute(
            select(attempt_store.attempt_nodes)
            .where(attempt_store.attempt_nodes.c.attempt_id == attempt.id)
            .order_by(attempt_store.attempt_nodes.c.node)
        )
        events = [
            (event.seq, event.kind, {**event.body.to_json(), "steady": "", "took_s": 0})
            for event in store.events_after(connection, job.id, 0)
        ]
        now = again(services, job)
        return (
            (now.status, now.exit_code, now.error, current.order, current.order_reason),
            (current.ended_at, current.exit_code, current.error),
            [{**row._mapping, "attempt_id": ""} for row in nodes],
            events,
        )


@pytest.mark.parametrize("seed", range(6))
def test_repeats_and_any_cut_come_to_the_same(
    services: Services, clock: FakeClock, seed: int
) -> None:
    chance = random.Random(seed)
    (first, cut_up), (second, complete) = started(services, 2, nodes=2)
    lives = {node: [("ranks_started", {}), *chance.choice(_LIVES)] for node in range(2)}
    for node in range(2):
        report(services, cut_up, node, 0, *lives[node][:1])
        report(services, complete, node, 0, *lives[node][:1])
    for node in chance.sample(range(2), 2):
        cut = chance.randint(1, len(lives[node]))
        for at, kinds in ((1, lives[node][1:cut]), (cut, lives[node][cut:])):
            # Some are sent twice, as after an answer that was lost.
            for _ in range(chance.choice([1, 1, 2])):
                report(services, cut_up, node, at, *kinds)
        report(services, complete, node, 1, *lives[node][1:])
    assert outcome(services, first, cut_up) == outcome(services, second, complete)


def test_a_refused_report_changes_nothing(services: Services) -> None:
    ((job, attempt),) = started(services, 1, nodes=2)
    before = outcome(services, job, attempt)
    with pytest.raises(InvalidInput, match="event 0 of node 0 is missing"):
        report(services, attempt, 0, 5, ("ranks_started", {}))
    with pytest.raises(InvalidInput, match="event 1 of node 0 is missing"):
        report(services, attempt, 0, 0, ("ranks_started", {}), after_gap=("hang", {}))
    with pytest.raises(InvalidInput, match="no node 7"):
        report(services, attempt, 7, 0, ("ranks_started", {}))
    with pytest.raises(NotAuthenticated):
        node_reports.receive(services, "no-such-attempt", 0, [])
    assert outcome(services, job, attempt) == before
    assert report(services, attempt, 1, 0, ("ranks_started", {})) == 1
    assert again(services, job).status is Status.RUNNING


def test_a_report_without_news_is_few_statements(services: Services) -> None:
    ((_, attempt),) = started(services, 1, nodes=4)
    for node in range(4):
        report(services, attempt, node, 0, ("ranks_started", {}))
    executed: list[str] = []

    @event.listens_for(services.db.engine, "before_cursor_execute")
    def _executed(*arguments: Any) -> None:
        # A connection that the pool opens sets itself up.
        if not arguments[2].startswith(("PRAGMA", "SET ")):
            executed.append(arguments[2].split()[0])

    report(services, attempt, 2, 1)
    event.remove(services.db.engine, "before_cursor_execute", _executed)
    assert [word for word in executed if word in ("INSERT", "UPDATE", "DELETE")] == ["UPDATE"]
    assert len(executed) <= 5
