"""A job's row: its document is parsed once, and only when it is needed."""

from __future__ import annotations

import pytest

from jobs import support
from torchyard.base.errors import InvalidSpec
from torchyard.jobs import actions
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import job_queries, runs, to_json
from torchyard.jobs.services import Services


def is_parsed(job: Job) -> bool:
    return "spec" in vars(job)


def outside_run(services: Services) -> Job:
    with services.db.write() as connection:
        place = actions.ensure_experiment(connection, services, support.WORKSPACE, "birds")
    return runs.create_run(
        services,
        runs.RunRequest(
            support.WORKSPACE,
            experiment_id=place.id,
            owner="me",
            display_name="",
            started_at=None,
            parent="",
            tags={},
        ),
    )


def test_a_row_is_parsed_when_its_spec_is_first_needed_and_only_once(services: Services) -> None:
    job = support.again(services, support.submit(services, environment_variables={"EPOCHS": 3}))
    assert not is_parsed(job)
    assert job.spec.environment_variables == {"EPOCHS": "3"}
    assert job.spec is job.spec
    assert job.document["environment_variables"] == {"EPOCHS": 3}


def test_a_new_job_has_the_spec_that_parsing_its_row_gives(services: Services) -> None:
    outputs = {"model": {"type": "mlflow_model", "name": "net"}}
    job = support.submit(services, name="trial", inputs={"lr": 0.1}, outputs=outputs)
    assert is_parsed(job)
    assert job.spec == support.again(services, job).spec


def test_a_list_parses_no_document(services: Services) -> None:
    support.submit(services)
    jobs = job_queries.list_in(services, support.WORKSPACE)
    assert [to_json.summary_json(job)["status"] for job in jobs] == ["NotStarted"]
    assert not any(is_parsed(job) for job in jobs)


def test_a_run_that_was_started_outside_any_job_is_read_and_has_no_spec(services: Services) -> None:
    run = outside_run(services)
    assert job_queries.list_in(services, support.WORKSPACE) == [run]
    assert to_json.job_json(services, run)["spec"] == {}
    with pytest.raises(InvalidSpec, match="has no `command`"):
        assert run.spec
