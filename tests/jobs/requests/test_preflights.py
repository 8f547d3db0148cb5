"""Preflight facts and findings of nodes, at the server."""

from __future__ import annotations

import pytest

from jobs.support import Worker, attempt_of, submit
from torchyard.base.errors import InvalidSpec, LimitExceeded
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.attempts import report_fields, worker_reports
from torchyard.jobs.requests import preflights
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services

_FINDING = {"code": "mtu_differs", "severity": "warning", "message": "m", "hint": "h"}


def test_nodes_learn_of_each_other_once_all_have_joined(
    services: Services, scheduler: Scheduler
) -> None:
    job = submit(services, resources={"instance_count": 2}, distribution={"type": "pytorch"})
    assert preflights.of(services.db, job) == []
    scheduler.run_round()
    attempt = attempt_of(services, job)
    worker_reports.join(
        services, attempt.id, 1, "10.0.0.2", None, {"node": 1, "host": "b", "nonce": "n"}
    )
    assert not worker_reports.rendezvous(services, attempt.id).ready
    worker_reports.join(
        services, attempt.id, 0, "10.0.0.1", 6105, {"node": 0, "host": "a", "door": 5}
    )
    rendezvous = worker_reports.rendezvous(services, attempt.id)
    assert rendezvous.ready and [facts["host"] for facts in rendezvous.facts] == ["a", "b"]

    Worker(services, attempt, 1).tell(
        "preflight", findings=[_FINDING], ways=[], apart_s=0.5, took_ms=3
    )
    first, second = preflights.of(services.db, job)
    assert first["facts"] == {"node": 0, "host": "a"} and first["findings"] is None
    assert second["facts"] == {"node": 1, "host": "b"}
    assert (second["findings"], second["apart_s"], second["took_ms"]) == ([_FINDING], 0.5, 3)


def test_a_node_may_send_no_facts(services: Services, scheduler: Scheduler) -> None:
    job = submit(services)
    scheduler.run_round()
    worker_reports.join(services, attempt_of(services, job).id, 0, "10.0.0.1", 6105)
    assert worker_reports.rendezvous(services, attempt_of(services, job).id).facts == [{}]
    assert preflights.of(services.db, job)[0]["facts"] == {}


def test_the_size_of_facts_is_limited() -> None:
    report_fields.check_facts({"interfaces": ["x" * 60_000]})
    with pytest.raises(LimitExceeded, match="facts of a node"):
        report_fields.check_facts({"interfaces": ["x" * 70_000]})


@pytest.mark.parametrize(("written", "planned"), [("Nccl", "nccl"), ("gloo", "gloo"), ("", "")])
def test_a_job_can_name_its_communication_backend(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, written: str, planned: str
) -> None:
    distribution = {"type": "pytorch", "communication_backend": written}
    submit(services, distribution=distribution, properties={"torchyard.preflight": "warn"})
    scheduler.run_round()
    (plan,) = executor.launches
    assert (plan.communication_backend, plan.preflight) == (planned, "warn")


def test_unknown_preflight_settings_are_refused(services: Services) -> None:
    with pytest.raises(InvalidSpec, match="`mpi` is not a `communication_backend`"):
        submit(services, distribution={"type": "pytorch", "communication_backend": "mpi"})
    with pytest.raises(InvalidSpec, match=r"`torchyard\.preflight` is `of`") as caught:
        submit(services, properties={"torchyard.preflight": "of"})
    assert "off" in caught.value.hint
