"""Reports of several nodes in one transaction come to what they come to one after the other."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sqlalchemy import event, select

from jobs.support import again, attempt_of, submit
from torchyard.base.clock import FakeClock, to_text
from torchyard.base.errors import InvalidInput, NotAuthenticated
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.attempts import joint_reports, report_fields
from torchyard.jobs.attempts.joint_reports import NodeReport, Receipt
from torchyard.jobs.http.scheduler import Scheduler
from torchyard.jobs.records import attempt_store, store
from torchyard.jobs.records.types import Attempt, Job, NodeState, Status
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
    services: Services, attempt: Attempt, node: int, first: int, *kinds: tuple[str, dict[str, Any]]
) -> NodeReport:
    at = to_text(services.clock.now())
    events = [
        {"seq": first + number, "at": at, "kind": kind, "body": body}
        for number, (kind, body) in enumerate(kinds)
    ]
    return NodeReport(services, attempt.id, node, report_fields.read_events(node, events))


def apply(services: Services, *reports: NodeReport) -> list[Any]:
    with services.db.write() as connection:
        return joint_reports.apply(connection, reports)


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
def test_together_as_one_after_the_other(services: Services, clock: FakeClock, seed: int) -> None:
    chance = random.Random(seed)
    (first, together), (second, singly) = started(services, 2, nodes=2)
    lives = {node: [("ranks_started", {}), *chance.choice(_LIVES)] for node in range(2)}
    begun = [(node, 0, lives[node][:1]) for node in range(2)]
    rest: list[tuple[int, int, list[tuple[str, dict[str, Any]]]]] = []
    for node in chance.sample(range(2), 2):
        cut = chance.randint(1, len(lives[node]))
        rest += [(node, 1, lives[node][1:cut]), (node, cut, lives[node][cut:])]
    # Some are sent twice, as after an answer that was lost.
    pieces = [piece for piece in [*begun, *rest] for _ in range(chance.choice([1, 1, 2]))]
    made = [report(services, together, node, at, *kinds) for node, at, kinds in pieces]
    results = apply(services, *made)
    for node_report, result in zip(made, results, strict=True):
        if result.is_over:
            joint_reports.apply_now(node_report)
    for node, at, kinds in pieces:
        joint_reports.apply_now(report(services, singly, node, at, *kinds))
    assert outcome(services, first, together) == outcome(services, second, singly)


def test_a_report_that_is_refused_keeps_none_of_the_others(services: Services) -> None:
    ((job, attempt),) = started(services, 1, nodes=2)
    missing, unknown, late, good = apply(
        services,
        report(services, attempt, 0, 5, ("ranks_started", {})),
        NodeReport(services, "no-such-attempt", 0, []),
        report(services, attempt, 7, 0, ("ranks_started", {})),
        report(services, attempt, 1, 0, ("ranks_started", {})),
    )
    assert isinstance(missing, InvalidInput) and "event 0 of node 0 is missing" in missing.message
    assert isinstance(unknown, NotAuthenticated) and isinstance(late, InvalidInput)
    assert isinstance(good, Receipt) and good.following == 1
    with services.db.read() as connection:
        states = [node.state for node in attempt_store.nodes_of(connection, attempt.id)]
    assert states == [NodeState.LAUNCHED, NodeState.RUNNING]
    assert again(services, job).status is Status.RUNNING


def test_the_statements_do_not_grow_with_the_reports(services: Services) -> None:
    """Counted from the first report of jobs that start to the end of all of them."""
    counts = []
    for count in (1, 4):
        pairs = started(services, count, nodes=1)
        executed: list[str] = []

        def _executed(*arguments: Any, executed: list[str] = executed) -> None:
            # A connection that the pool opens again sets itself up.
            if not arguments[2].startswith(("PRAGMA", "SET ")):
                executed.append(arguments[2])

        event.listen(services.db.engine, "before_cursor_execute", _executed)
        apply(services, *[report(services, a, 0, 0, ("ranks_started", {})) for _, a in pairs])
        apply(services, *[report(services, a, 0, 1, *_LIVES[0]) for _, a in pairs])
        event.remove(services.db.engine, "before_cursor_execute", _executed)
        assert all(again(services, job).status is Status.COMPLETED for job, _ in pairs)
        counts.append(len(executed))
    assert counts[0] == counts[1] <= 40
