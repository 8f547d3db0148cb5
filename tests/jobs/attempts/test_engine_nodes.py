"""Attempts on engines of other machines: waiting for nodes, losing them, unreachable engines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs import support
from jobs.lab import URLS, Lab
from jobs.support import Worker
from torchyard.base.clock import FakeClock
from torchyard.base.errors import InvalidSpec
from torchyard.executors.executor import EngineRefused, EngineUnreachable
from torchyard.jobs import actions
from torchyard.jobs.attempts import endings, engine_nodes, worker_reports
from torchyard.jobs.records.types import Job, Stage, Status
from torchyard.jobs.scheduling import clusters
from torchyard.jobs.services import Services


@pytest.fixture
def lab(services: Services) -> Lab:
    return Lab(services)


def test_a_job_waits_for_machines_until_its_first_worker_reports(
    lab: Lab, clock: FakeClock
) -> None:
    lab.engine.reason = "waits for Slurm: the partition is full"
    job = lab.submit(resources={"instance_count": 2})
    assert job.status is Status.PROVISIONING
    for _ in range(200):  # longer than any silence that is forgiven
        clock.advance(10)
        lab.rounds()
    assert lab.again(job).status is Status.PROVISIONING
    assert lab.reason(job) == "waits for Slurm: the partition is full"
    assert lab.stages(job)[-1] is Stage.SCALING
    (node, _) = clusters.nodes(lab.services.db, support.WORKSPACE, "lab")
    assert (node.state, node.job) == ("preparing", job.name)

    lab.engine.give_machines(lab.attempt_id(job))
    lab.rounds()
    assert lab.reason(job) == ""
    workers = [lab.worker(job, node) for node in range(2)]
    workers[0].tell("node_started", hostname="h", pid=1, addresses=[])
    assert lab.again(job).status is Status.STARTING
    assert lab.stages(job)[-1] is Stage.RUNNING
    lab.rounds()
    for worker in workers:
        worker.tell("ranks_started", ranks=[])
    assert lab.again(job).status is Status.RUNNING
    for worker in workers:
        worker.tell("node_finalizing")
        worker.tell("node_exited", exit_code=0, error=None)
    attempt_id = lab.attempt_id(job)
    lab.engine.finish(attempt_id)
    lab.rounds()
    assert lab.again(job).status is Status.COMPLETED
    assert lab.engine.released == [attempt_id]


def test_a_node_that_has_not_reported_has_a_minute_to_begin(lab: Lab, clock: FakeClock) -> None:
    engine = lab.engine
    job = lab.submit(resources={"instance_count": 2})
    engine.give_machines(lab.attempt_id(job))
    lab.rounds()
    lab.worker(job, 0).tell("node_started", hostname="h", pid=1, addresses=[])
    clock.advance(10)
    lab.rounds()
    assert engine.probes[-1] == ([0, 1], {0})
    for _ in range(5):
        clock.advance(10)
        lab.rounds()
    assert engine.probes[-1] == ([0, 1], {0, 1})


@pytest.mark.parametrize("has_reported", [False, True])
def test_a_node_that_is_lost_before_it_reported_may_not_reach_the_server(
    lab: Lab, clock: FakeClock, has_reported: bool
) -> None:
    engine = lab.engine
    job = lab.submit()
    lab.services.launches.keep(engine.launches[-1])
    engine.give_machines(lab.attempt_id(job))
    lab.rounds()
    if has_reported:
        lab.worker(job).tell("node_started", hostname="h", pid=1, addresses=[])
    engine.unanswered = {0: "gpu-3: it has ended"}
    clock.advance(10)
    lab.rounds(2)
    error = lab.again(job).error
    assert error is not None and error.code == "node_lost"
    assert error.message.startswith("node 0 (gpu-3): it has ended")
    assert (URLS[0] in error.message) is not has_reported
    assert (f"curl -k {URLS[0]}/livez" in error.hint) is not has_reported


def test_a_node_that_has_a_machine_and_stays_silent_is_noticed(lab: Lab, clock: FakeClock) -> None:
    job = lab.submit()
    for _ in range(100):
        clock.advance(10)
        lab.rounds()
    lab.engine.give_machines(lab.attempt_id(job))
    lab.rounds()
    for _ in range(50):
        clock.advance(10)
        lab.rounds()
    assert lab.again(job).status is Status.PROVISIONING
    for _ in range(20):
        clock.advance(10)
        lab.rounds()
    failed = lab.again(job)
    assert failed.status is Status.FAILED
    assert failed.error is not None and failed.error.code == "not_responding"


def test_the_plan_is_for_nodes_that_see_nothing_of_this_machine(lab: Lab) -> None:
    job = lab.submit()
    (plan,) = lab.engine.launches
    assert (plan.engine, plan.engine_settings) == ("slurm", {"partition": "gpu"})
    assert (plan.scratch, plan.blobs, plan.server_file) == ("", "", "")
    assert not plan.single_host
    assert tuple(plan.server_urls) == URLS and plan.server_url == URLS[0]
    assert plan.server_certificate.startswith("-----BEGIN")
    assert plan.environment_hash
    assert not (lab.services.node.scratch / lab.attempt_id(job)).exists()


def run_on_two(lab: Lab) -> tuple[Job, str, list[Worker]]:
    """A job that runs on two machines and may be tried twice, its attempt and its workers."""
    retry = {"torchyard.retry.max_attempts": "2", "torchyard.retry.backoff_s": "0"}
    job = lab.submit(properties=retry, resources={"instance_count": 2})
    first = lab.attempt_id(job)
    lab.engine.give_machines(first)
    workers = [lab.worker(job, node) for node in range(2)]
    for worker in workers:
        worker.tell("ranks_started", ranks=[])
    return job, first, workers


def test_a_lost_machine_is_named_and_the_job_tried_again(lab: Lab) -> None:
    job, first, workers = run_on_two(lab)
    lab.engine.lost_because = {1: "gpu-3: the machine does not respond any more"}
    lab.engine.lose(first, 1)
    lab.rounds()
    control = lab.attempts(job)[-1]
    assert control.order == "stop"
    stopped = {"code": "stopped", "message": "stopped", "hint": "", "details": {}}
    workers[0].tell("node_exited", exit_code=143, error=stopped)
    lab.engine.finish(first, 0)
    lab.rounds(2)
    (before, after) = lab.attempts(job)
    assert before.error is not None
    assert before.error.code == "node_lost"
    assert before.error.message == "node 1 (gpu-3): the machine does not respond any more"
    assert after.id in [plan.attempt_id for plan in lab.engine.launches]


def test_workers_that_report_before_their_engine_does_end_by_themselves(lab: Lab) -> None:
    job = lab.submit(resources={"instance_count": 2})
    workers = [lab.worker(job, node) for node in range(2)]
    for worker in workers:
        worker.tell("ranks_started", ranks=[])
    # The engine's last word, that both nodes wait for machines, is older.
    actions.cancel(lab.services, job.workspace, job.name)
    lab.rounds()
    assert lab.attempts(job)[-1].order == "stop"
    assert lab.engine.stops == []


def test_a_job_whose_engine_forgot_and_ended_it_is_tried_again(lab: Lab) -> None:
    job, first, workers = run_on_two(lab)
    # The controller's SIGTERM comes before anybody has asked it.
    stopped = {"code": "stopped", "message": "another node failed", "hint": "", "details": {}}
    lab.engine.lost_because = dict.fromkeys(range(2), "Slurm does not know its job any more")
    for node, worker in enumerate(workers):
        worker.tell("node_failed", error=stopped)
        worker.tell("node_exited", exit_code=143, error=stopped)
        lab.engine.lose(first, node)
    lab.rounds(2)
    (before, after) = lab.attempts(job)
    assert before.error is not None
    assert before.error.code == "node_lost"
    assert before.error.message == "node 0: Slurm does not know its job any more"
    assert after.id in [plan.attempt_id for plan in lab.engine.launches]


def test_workers_that_a_loss_has_stopped_do_not_hide_it(lab: Lab) -> None:
    job, first, workers = run_on_two(lab)
    # A head of Ray that was restarted knows nothing of them; their machines still run them.
    for node in range(2):
        lost = engine_nodes.loss(node, {node: "its head was restarted and lost its state"})
        worker_reports.lose(lab.services, first, node, lost)
    stopped = {"code": "stopped", "message": "another node failed", "hint": "", "details": {}}
    for worker in workers:
        worker.tell("node_exited", exit_code=143, error=stopped)
    endings.finish(lab.services, first, cause_known=True)
    (attempt,) = lab.attempts(job)
    assert attempt.error is not None
    assert attempt.error.code == "node_lost"
    assert lab.again(job).status is Status.QUEUED  # to be tried again


def test_an_engine_that_does_not_answer_fails_no_job(lab: Lab) -> None:
    lab.engine.unreachable = EngineUnreachable("slurmctld does not answer", "start it")
    job = lab.submit()
    lab.rounds(3)
    assert lab.again(job).status is Status.PROVISIONING
    assert lab.reason(job) == "slurmctld does not answer"
    lab.engine.unreachable = None
    lab.rounds(2)
    assert [plan.job for plan in lab.engine.launches] == [job.name]
    assert lab.reason(job) == ""
    lab.engine.unreachable = EngineUnreachable("slurmctld does not answer")
    lab.rounds(3)
    assert lab.again(job).status is Status.PROVISIONING


def test_a_job_whose_engine_never_answered_can_be_canceled(lab: Lab) -> None:
    lab.engine.unreachable = EngineUnreachable("slurmctld does not answer")
    job = lab.submit()
    actions.cancel(lab.services, job.workspace, job.name)
    lab.rounds(2)
    assert lab.again(job).status is Status.CANCELED


def test_a_refused_attempt_fails_its_job_with_the_engine_s_words(lab: Lab) -> None:
    lab.engine.launch_error = EngineRefused("partition `gpu` does not exist", "see `sinfo`")
    job = lab.submit()
    assert job.status is Status.FAILED and job.error is not None
    assert "partition `gpu` does not exist" in job.error.message
    assert job.error.hint == "see `sinfo`"


def test_a_job_that_waits_for_machines_can_be_canceled(lab: Lab) -> None:
    job = lab.submit()
    actions.cancel(lab.services, job.workspace, job.name)
    lab.rounds(3)
    assert lab.again(job).status is Status.CANCELED
    assert lab.engine.stops[0][0] == lab.attempt_id(job)
    assert lab.engine.released == [lab.attempt_id(job)]
    assert lab.services.launches.all() == []


def test_more_nodes_than_the_engine_can_ever_have_are_refused_at_once(lab: Lab) -> None:
    with pytest.raises(InvalidSpec, match="`lab` can have 3 at most, says slurm"):
        lab.submit(resources={"instance_count": 4})
    lab.engine.unreachable = EngineUnreachable("slurmctld does not answer")
    assert lab.submit(resources={"instance_count": 3}).status is Status.PROVISIONING


def test_the_devices_of_this_machine_do_not_matter(lab: Lab) -> None:
    nodes = tuple(replace(node, gpus=8) for node in lab.engine.cluster.nodes)
    lab.engine.cluster = replace(lab.engine.cluster, nodes=nodes)
    job = lab.submit(distribution={"type": "pytorch", "process_count_per_instance": 4})
    assert job.gpus == 4
    assert lab.engine.launches[0].gpus_per_node == 4
