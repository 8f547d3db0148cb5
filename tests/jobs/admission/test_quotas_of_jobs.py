"""Quotas against real rows: never, not now, yes; what counts as stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs import support
from jobs.support import JOB, WORKSPACE
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import LimitExceeded
from torchyard.compute import actions as computes
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.admission import quota_checks, waiting_reasons
from torchyard.jobs.files import artifacts
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.requests import submission
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.workspaces import quotas
from torchyard.workspaces.types import ALL, EACH, Identity, TokenKind

ANNA = Identity("anna", TokenKind.PERSON)
BEN = Identity("ben", TokenKind.PERSON)


@pytest.fixture
def services(tmp_path: Path, db: Database, clock: FakeClock) -> Iterator[Services]:
    made = support.make_services(tmp_path, db, clock)
    support.add_owners(db, clock, ANNA.user, BEN.user)
    big = {"name": "big", "size": "Standard_NC6s_v3", "max_instances": 8}
    with db.write() as connection:
        from torchyard.compute import store
        from torchyard.compute.types import Compute

        store.put(
            connection,
            Compute(
                "big", WORKSPACE, clock.now(), size=str(big["size"]), max_instances=8,
                cores=6, memory_bytes=112 << 30, gpus=1,
            ),
        )  # fmt: skip
    assert computes.get(db, WORKSPACE, "big").max_instances == 8
    yield made


def limit(services: Services, user: str, **limits: int | None) -> None:
    quotas.change(services.db, services.clock, WORKSPACE, user, limits, "olga")


def submit(
    services: Services, who: Identity, nodes: int = 1, compute: str = "local", **more: object
) -> Job:
    document = {**JOB, "compute": compute, "resources": {"instance_count": nodes}, **more}
    return submission.create(services, WORKSPACE, document, who)[0]


def why_not(services: Services, job: Job) -> str:
    with services.db.read() as connection:
        return quota_checks.waiting_reason(connection, job)


def refusal(
    services: Services, who: Identity, nodes: int = 1, compute: str = "local", **more: object
) -> str:
    with pytest.raises(LimitExceeded) as raised:
        submit(services, who, nodes, compute, **more)
    assert raised.value.code == "quota_exceeded"
    return f"{raised.value.message}; {raised.value.hint}"


def of_size(services: Services, nodes: int) -> str:
    """As `refusal`, of nodes with 6 cores and a GPU each, which this machine need not have."""
    with services.db.read() as connection, pytest.raises(LimitExceeded) as raised:
        needs = quota_checks.needs(connection, WORKSPACE, "anna", "big", nodes)
        quota_checks.refuse_never(connection, needs)
    return raised.value.message


def test_nothing_is_limited_from_the_start(services: Services) -> None:
    job = submit(services, ANNA, 4)
    assert why_not(services, job) == ""


def test_a_job_over_a_limit_is_refused_at_once(services: Services) -> None:
    limit(services, EACH, nodes=2, gpus=1, cores=12, run_time_s=3600)
    reason = refusal(services, ANNA, 3)
    assert "needs 3 nodes; quota `nodes` of `anna`" in reason and "request nodes=3" in reason
    assert "needs 2 GPUs; quota `gpus` of `anna`" in of_size(services, 2)
    limit(services, EACH, gpus=None, cores=11)
    assert "needs 12 cores; quota `cores`" in of_size(services, 2)
    long = refusal(services, ANNA, limits={"timeout": 7200})
    assert "requests 7200 s of run time" in long and "request run_time_s=7200" in long
    limit(services, ALL, jobs=0)
    assert "quota `jobs` of everyone together" in refusal(services, ANNA)


def test_a_users_own_limit_replaces_the_common_one(services: Services) -> None:
    limit(services, EACH, nodes=1)
    limit(services, "anna", nodes=3)
    submit(services, ANNA, 3)
    assert "quota `nodes` of `ben`" in refusal(services, BEN, 2)
    limit(services, ALL, nodes=2)
    assert "of everyone together in workspace `default` is 2" in refusal(services, ANNA, 3)


def test_a_job_that_fits_later_waits(services: Services) -> None:
    limit(services, EACH, nodes=2)
    scheduler = Scheduler(services, FakeExecutor(), "http://127.0.0.1:1")
    first, second, other = submit(services, ANNA, 2), submit(services, ANNA), submit(services, BEN)
    for _ in range(3):
        scheduler.run_round()
    # A job that a quota holds back delays nobody else.
    states = [support.again(services, job).status for job in (first, second, other)]
    assert states == [Status.STARTING, Status.QUEUED, Status.STARTING]
    reason = why_not(services, second)
    assert reason == (
        "needs 1 node; `anna` uses 2 of the 2 that quota `nodes` of workspace `default` allows"
    )
    assert why_not(services, other) == ""
    assert reason in waiting_reasons.describe(services, support.again(services, second))
    for node in range(2):
        support.Worker(services, support.attempt_of(services, first), node).whole_life()
    scheduler.run_round()
    assert support.again(services, second).status is Status.STARTING


def test_a_limit_lowered_later_hints_how_to_ask_for_more(services: Services) -> None:
    job = submit(services, ANNA, 4)
    limit(services, ALL, nodes=3)
    assert "ask for more with `yard quota request nodes=4`" in why_not(services, job)


def test_run_time_is_limited_where_a_job_does_not_limit_it(services: Services) -> None:
    limit(services, EACH, run_time_s=60)
    executor = FakeExecutor()
    scheduler = Scheduler(services, executor, "http://127.0.0.1:1")
    silent, short = submit(services, ANNA), submit(services, ANNA, limits={"timeout": 30})
    for _ in range(3):
        scheduler.run_round()
    times = {plan.job: plan.timeout_s for plan in executor.launches}
    assert times == {silent.name: 60, short.name: 30}
    from torchyard.jobs import actions

    notices = notices_of(actions.events(services.db, silent))
    assert any("the job is stopped after 60 s" in notice for notice in notices)


def test_files_and_snapshots_count_as_stored(services: Services) -> None:
    limit(services, EACH, storage_bytes=100)
    job = submit(services, ANNA)
    with artifacts.writing(services.datastores, job, "outputs/model.bin") as writing:
        writing.write(b"x" * 70)
    services.logs.append(WORKSPACE, job.name, 1, "user_logs/std_log.txt", 0, b"y" * 40)
    # One that has not ended does not count yet.
    assert quota_checks.use_of(services, WORKSPACE, "anna")["storage_bytes"] == 0
    from torchyard.jobs import actions

    actions.cancel(services, WORKSPACE, job.name)
    assert quota_checks.use_of(services, WORKSPACE, "anna")["storage_bytes"] == 161
    assert quota_checks.use_of(services, WORKSPACE, "ben")["storage_bytes"] == 0
    reason = refusal(services, ANNA)
    assert "161 bytes of jobs are stored already; quota `storage_bytes` of `anna`" in reason
    assert "yard job delete" in reason
    submit(services, BEN)


def test_a_snapshot_counts_once_per_user(services: Services) -> None:
    limit(services, EACH, storage_bytes=1000)
    content = b"print()" * 10
    sha256 = services.blobs.of("default").put_bytes(content)
    file = {"path": "a.py", "sha256": sha256, "size": len(content)}
    snapshot = services.blobs.of("default").put_snapshot({"files": [file]}).id
    from torchyard.jobs import actions

    for who in (ANNA, ANNA, BEN):
        job = submit(services, who, code=f"snapshot:{snapshot}")
        actions.cancel(services, WORKSPACE, job.name)
    for user in ("anna", "ben", ""):
        assert quota_checks.use_of(services, WORKSPACE, user)["storage_bytes"] == 70
