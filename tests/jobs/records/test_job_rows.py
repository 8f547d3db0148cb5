"""A job's row: lists read it as it is, what launches a job with its document parsed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import update

from jobs import support
from torchyard.base.errors import InvalidSpec
from torchyard.jobs import actions
from torchyard.jobs.records import store
from torchyard.jobs.records.types import Job, parse_job
from torchyard.jobs.requests import job_queries, runs, to_json
from torchyard.jobs.services import Services


def outside_run(services: Services) -> Job:
    with services.db.write() as connection:
        experiment_id = actions.ensure_experiment(
            connection, services.clock, support.WORKSPACE, "birds"
        )
    return runs.create_run(
        services,
        runs.RunRequest(
            support.WORKSPACE,
            experiment_id=experiment_id.id,
            owner="me",
            display_name="",
            started_at=None,
            parent="",
            tags={},
        ),
    )


def test_a_command_job_is_its_row_and_its_document_parsed(services: Services) -> None:
    job = support.submit(services, environment_variables={"EPOCHS": 3})
    with services.db.read() as connection:
        parsed = store.command_job_by_id(connection, job.id)
    assert parsed.spec.environment_variables == {"EPOCHS": "3"}
    assert parsed.document["environment_variables"] == {"EPOCHS": 3}
    assert replace(parsed, node_count=2).spec is parsed.spec
    assert parse_job(parsed) == parse_job(job) == parsed


def test_a_list_parses_no_document(services: Services) -> None:
    job = support.submit(services)
    with services.db.write() as connection:
        connection.execute(update(store.jobs).values(spec={"command": 3}))
    jobs = job_queries.list_in(services, support.WORKSPACE)
    assert [to_json.summary_json(job)["status"] for job in jobs] == ["NotStarted"]
    with services.db.read() as connection, pytest.raises(InvalidSpec, match="command"):
        store.command_job_by_id(connection, job.id)


def test_a_run_that_was_started_outside_any_job_is_read_and_has_no_spec(services: Services) -> None:
    run = outside_run(services)
    assert job_queries.list_in(services, support.WORKSPACE) == [run]
    assert to_json.job_json(services, run)["spec"] == {}
    with pytest.raises(InvalidSpec, match="has no `command`"):
        parse_job(run)
