"""A step that ran before with the same inputs does not run again."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import support
from pipelines.running.pipeline_lab import PipelineLab, identity, source, step, taking
from torchyard.base.errors import Conflict
from torchyard.data import assets
from torchyard.jobs.cleanup import deletion, removal
from torchyard.jobs.cleanup.deletion import Choice
from torchyard.jobs.records.types import Status
from torchyard.jobs.requests import job_queries
from torchyard.jobs.requests.run_search import Condition, Question, View
from torchyard.pipelines import actions
from torchyard.pipelines.records import step_store

TWO = {"a": source("a"), "b": taking("b", "a")}


def again(lab: PipelineLab, jobs: dict[str, Any], name: str = "q", **keys: Any) -> list[str]:
    """Run another pipeline; which of its steps ran."""
    lab.name = name
    lab.create(jobs, **keys)
    lab.run()
    assert lab.pipeline.status is Status.COMPLETED
    return [step for step, row in lab.steps.items() if not row.reused_from]


@pytest.fixture
def ran(lab: PipelineLab) -> PipelineLab:
    lab.create(TWO)
    lab.run()
    return lab


def test_the_same_steps_are_reused_and_start_nothing(ran: PipelineLab) -> None:
    assert again(ran, TWO, display_name="another", tags={"a": "b"}) == []
    assert {row.reused_from for row in ran.steps.values()} == {"p"}
    assert {row.child_name for row in ran.steps.values()} == {"p_a", "p_b"}
    assert "step a is reused: job p_a made the same" in ran.log


@pytest.mark.parametrize(
    ("changes", "runs"),
    [
        ({"a": source("other")}, ["a"]),  # it makes the same file, which is all that `b` reads
        ({"b": taking("other", "a")}, ["b"]),
        ({"b": taking("b", "a", environment_variables={"SEED": "1"})}, ["b"]),
        ({"b": taking("b", "a", is_deterministic=False)}, ["b"]),
        ({"b": taking("b", "a", distribution={"type": "pytorch"})}, ["b"]),
        ({"b": taking("b", "a", display_name="shown", tags={"x": "y"})}, []),
        ({"b": taking("b", "a", limits={"timeout": 900})}, []),
        ({"b": taking("b", "a", queue_settings={"priority": "low"})}, []),
    ],
    ids=str,
)
def test_what_changed_runs(ran: PipelineLab, changes: dict[str, Any], runs: list[str]) -> None:
    assert again(ran, {**TWO, **changes}) == runs


def test_a_pipeline_can_be_forced(ran: PipelineLab) -> None:
    assert again(ran, TWO, settings={"force_rerun": True}) == ["a", "b"]


def test_what_a_step_left_empty_is_handed_on_and_reused(lab: PipelineLab) -> None:
    lab.create(TWO)
    lab.run(empty=["a"])
    assert lab.outcomes == {"a": "completed", "b": "completed"}
    assert again(lab, TWO) == []


def test_what_was_deleted_or_failed_is_not_reused(ran: PipelineLab) -> None:
    deletion.delete(ran.services, support.WORKSPACE, Choice(names=("p",)), support.ME.user)
    assert again(ran, TWO) == ["a", "b"]


def test_what_another_job_may_have_written_over_is_not_reused(lab: PipelineLab) -> None:
    shared = "azureml://datastores/workspaceblobstore/paths/shared/"
    jobs = {"a": step("make ${{outputs.data}}", outputs={"data": {"path": shared}})}
    lab.create(jobs)
    lab.run()
    assert again(lab, jobs) == ["a"]


def test_what_a_pipeline_reuses_is_not_deleted(ran: PipelineLab) -> None:
    assert again(ran, TWO) == []
    with pytest.raises(Conflict, match="pipeline `q` needs its files") as refused:
        deletion.delete(ran.services, support.WORKSPACE, Choice(names=("p",)), support.ME.user)
    assert "`yard job delete q`" in refused.value.hint
    for name in ("q", "p"):
        deletion.delete(ran.services, support.WORKSPACE, Choice(names=(name,)), support.ME.user)


def test_what_another_person_made_is_not_reused(lab: PipelineLab) -> None:
    """They may have got into their job while it ran, and what they left may be a program."""
    support.add_owners(lab.services.db, lab.services.clock, "eve")
    lab.create(TWO, identity("eve"))
    lab.run()
    assert again(lab, TWO) == ["a", "b"]
    assert (
        "no earlier pipeline of `me`" in actions.explain(lab.services, lab.pipeline)[0].reasons[0]
    )


def test_a_renewed_secret_changes_nothing_and_is_nowhere(lab: PipelineLab) -> None:
    def steps(token: str, seed: str) -> dict[str, Any]:
        return {"a": source("a", environment_variables={"API_TOKEN": token, "SEED": seed})}

    lab.create(steps("first-secret", "1"))
    lab.run()
    with lab.services.db.read() as connection:
        recipe = step_store.recipe_of(connection, lab.pipeline.id, 0)
    assert recipe["variables"] == {"SEED": "1"}
    assert again(lab, steps("second-secret", "1")) == []
    assert again(lab, steps("second-secret", "2"), "r") == ["a"]


def test_equal_steps_that_are_forced_do_not_wait_for_each_other(lab: PipelineLab) -> None:
    lab.create({"a": source("a"), "same": source("a")}, settings={"force_rerun": True})
    lab.round()
    assert lab.running() == ["a", "same"]


def test_equal_steps_of_one_pipeline_run_once(lab: PipelineLab) -> None:
    lab.create({"a": source("a"), "same": source("a"), "b": taking("b", "a", "same")})
    lab.round()
    assert lab.running() == ["a"] and lab.outcomes["same"] == ""
    lab.run()
    assert lab.steps["same"].child_name == "p_a" and lab.steps["same"].reused_from == "p"


def test_reused_jobs_are_among_the_pipelines_children(ran: PipelineLab) -> None:
    again(ran, {**TWO, "b": taking("other", "a")})
    found = job_queries.list_in(ran.services, support.WORKSPACE, parent="q")
    assert {job.name for job in found} == {"p_a", "q_b"}
    view = View([Condition("tag", "mlflow.parentRunId", "=", "q")], (), False)
    implied = {"mlflow.parentRunId": "parent"}
    for few in (0, 100):  # by the order of runs, and by the candidates
        with ran.services.db.read() as connection:
            ids = Question(connection, [ran.pipeline.experiment_id], view, implied, few=few).ids()
        assert set(ids) == {job.id for job in found}
    deletion.delete(ran.services, support.WORKSPACE, Choice(["q"]), "me")
    removal.work(ran.services)
    of_first = job_queries.list_in(ran.services, support.WORKSPACE, parent="p")
    assert {job.name for job in of_first} == {"p_a", "p_b"}


def test_what_a_reused_step_makes_becomes_its_asset(ran: PipelineLab) -> None:
    named = {**source("a"), "outputs": {"data": {"name": "kept"}}}
    for name in ("q", "r"):
        assert again(ran, {**TWO, "a": named}, name) == []
    (asset,) = assets.list_versions(ran.services.db, support.WORKSPACE)
    assert (asset.name, asset.version, asset.job) == ("kept", "1", "p_a")


def test_an_asset_that_a_reused_step_can_not_become_is_said(ran: PipelineLab) -> None:
    named = {**source("a"), "outputs": {"data": {"name": "kept", "version": "1"}}}
    uri = "azureml://datastores/workspaceblobstore/paths/other/"
    request = assets.DataRequest("kept", uri, version="1")
    assets.register(ran.services.db, ran.services.clock, support.WORKSPACE, request, uri, "me")
    assert again(ran, {**TWO, "a": named}) == []
    assert "step a: output `data` could not be registered" in ran.log
