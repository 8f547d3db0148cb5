"""Parameter servers are stopped when the workers of all nodes have ended."""

from __future__ import annotations

from jobs import support
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.attempts import worker_reports
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services


def _start(services: Services) -> tuple[Job, list[support.Worker]]:
    """Three nodes: workers on two of them, a parameter server on the third."""
    job = support.submit(
        services,
        distribution={"type": "tensorflow", "worker_count": 2, "parameter_server_count": 1},
        resources={"instance_count": 3},
    )
    Scheduler(services, FakeExecutor(), "http://server").run_round()
    attempt = support.attempt_of(services, job)
    workers = [support.Worker(services, attempt, node) for node in range(3)]
    for worker in workers:
        worker.tell("ranks_started", ranks=[])
    workers[2].tell("node_serving")
    return job, workers


def _ends_well(worker: support.Worker) -> None:
    worker.tell("rank_exited", rank=worker.node, local_rank=0, exit_code=0, signal=None)
    worker.tell("node_finalizing")


def test_parameter_servers_stop_with_the_last_worker_and_the_job_completes(
    services: Services,
) -> None:
    job, workers = _start(services)
    attempt_id = workers[0].attempt.id
    _ends_well(workers[0])
    assert worker_reports.stop_request(services, attempt_id).control == ""
    _ends_well(workers[1])
    assert worker_reports.stop_request(services, attempt_id) == worker_reports.StopRequest(
        "stop", "served"
    )
    workers[2].tell("rank_exited", rank=2, local_rank=0, exit_code=143, signal=15)
    workers[2].tell("node_finalizing")
    for worker in workers:
        worker.tell("node_exited", exit_code=0, error=None)
    ended = support.again(services, job)
    assert (ended.status, ended.exit_code, ended.error) == (Status.COMPLETED, 0, None)


def test_a_failing_worker_fails_a_job_with_parameter_servers(services: Services) -> None:
    job, workers = _start(services)
    _ends_well(workers[0])
    workers[1].tell("rank_exited", rank=1, local_rank=0, exit_code=4, signal=None)
    assert worker_reports.stop_request(services, workers[0].attempt.id).reason == "failed"
    workers[1].tell("node_finalizing")
    error = {"code": "rank_failed", "message": "rank 1 on node 1 exited with code 4"}
    workers[0].tell("node_exited", exit_code=0, error=None)
    workers[1].tell("node_exited", exit_code=4, error=error)
    stopped = {"code": "stopped", "message": "node 2 was stopped: another node failed"}
    workers[2].tell("node_exited", exit_code=143, error=stopped)
    ended = support.again(services, job)
    assert (ended.status, ended.exit_code) == (Status.FAILED, 4)
    assert ended.error is not None
    assert ended.error.code == "rank_failed"
