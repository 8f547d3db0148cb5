"""Which jobs are rehearsed, and what is recorded about it."""

from __future__ import annotations

import pytest

from jobs import support
from jobs.support import WORKSPACE, submit
from torchyard.base.errors import InvalidSpec
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import submission, to_json
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.jobs.spec import rehearsal
from torchyard.workspaces import actions as workspaces

ASKED = {"torchyard.rehearse_on_cpu": True}


def notices(services: Services, job: Job) -> list[str]:
    return notices_of(actions.events(services.db, job))


def plan_of(services: Services) -> int:
    executor = FakeExecutor()
    Scheduler(services, executor, "http://127.0.0.1:1").run_round()
    return executor.launches[0].rehearsed_gpus


def test_a_job_is_not_rehearsed_unless_requested(services: Services) -> None:
    job = submit(services)
    assert not rehearsal.is_rehearsed(job.properties)
    assert (job.tags, notices(services, job)) == ({}, [])
    assert to_json.job_json(services, job)["rehearsal"] == ""
    assert plan_of(services) == 0


def test_a_rehearsed_job_has_a_property_a_tag_a_notice_and_a_field(services: Services) -> None:
    shape_of_it = {"type": "pytorch", "process_count_per_instance": 2}
    job = submit(services, properties=ASKED, tags={"mine": "1"}, distribution=shape_of_it)
    assert rehearsal.is_rehearsed(job.properties)
    assert job.properties["torchyard.rehearse_on_cpu"] == "true"
    assert job.tags == {"mine": "1", "torchyard.rehearsal": "cpu"}
    (notice,) = notices(services, job)
    assert notice.startswith("rehearsal on CPU, asked for by the job: cuda devices become the CPU")
    assert to_json.job_json(services, job)["rehearsal"] == "cpu"
    assert plan_of(services) == 2


def test_a_workspace_may_rehearse_all_jobs_and_a_job_may_decline(services: Services) -> None:
    workspaces.update(services.db, WORKSPACE, {"rehearse_on_cpu": True})
    requested, declined = (
        submit(services),
        submit(services, properties={"torchyard.rehearse_on_cpu": "false"}),
    )
    assert rehearsal.is_rehearsed(requested.properties)
    assert not rehearsal.is_rehearsed(declined.properties)
    assert f"asked for by workspace `{WORKSPACE}`" in notices(services, requested)[0]
    assert notices(services, declined) == []
    # What a job is does not change with its workspace.
    workspaces.update(services.db, WORKSPACE, {"rehearse_on_cpu": False})
    assert rehearsal.is_rehearsed(support.again(services, requested).properties)
    assert not rehearsal.is_rehearsed(submit(services).properties)


@pytest.mark.parametrize("written", ["yes", 1, "", "cpu"])
def test_another_value_is_refused_in_place(services: Services, written: object) -> None:
    document = {
        "command": "true",
        "environment": "python",
        "properties": {"torchyard.rehearse_on_cpu": written},
    }
    with pytest.raises(InvalidSpec) as refused:
        submission.check(services, WORKSPACE, document)
    assert refused.value.hint == "true or false"
    assert tuple(refused.value.at) == ("properties", "torchyard.rehearse_on_cpu")


def test_a_misspelled_property_gets_a_suggestion(services: Services) -> None:
    document = {
        "command": "true",
        "environment": "python",
        "properties": {"torchyard.rehearse_on_gpu": True},
    }
    with pytest.raises(InvalidSpec, match="is not a property") as refused:
        submission.check(services, WORKSPACE, document)
    assert "torchyard.rehearse_on_cpu" in refused.value.hint


@pytest.mark.parametrize("value", ["true", 1, None])
def test_the_workspaces_setting_is_true_or_false(services: Services, value: object) -> None:
    with pytest.raises(InvalidSpec) as refused:
        workspaces.update(services.db, WORKSPACE, {"rehearse_on_cpu": value})
    assert list(refused.value.at) == ["rehearse_on_cpu"]
    assert not workspaces.get(services.db, WORKSPACE).rehearse_on_cpu


def test_rehearsed_gpus_follow_the_size_or_the_process_count(services: Services) -> None:
    job = submit(services, properties=ASKED)
    assert [rehearsal.gpus(job.properties, 1, each) for each in (None, 0, 1, 4)] == [1, 1, 1, 4]
    assert rehearsal.gpus(submit(services).properties, 1, 4) == 0
