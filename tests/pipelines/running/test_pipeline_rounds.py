"""Steps start when what they take is there; what one comes to decides about the others."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import support
from pipelines.running.pipeline_lab import PipelineLab, source, step, taking
from torchyard.base import files
from torchyard.base.errors import Conflict, InvalidSpec
from torchyard.jobs import actions as jobs
from torchyard.jobs.cleanup import deletion
from torchyard.jobs.cleanup.deletion import Choice
from torchyard.jobs.files import data_sources, outputs
from torchyard.jobs.records.types import Status
from torchyard.pipelines import actions
from torchyard.pipelines.running import rounds

DIAMOND = {
    "a": source("a"),
    "b": taking("b", "a"),
    "c": taking("c", "a"),
    "d": taking("d", "b", "c"),
}


def test_a_step_starts_once_what_it_takes_is_made(lab: PipelineLab) -> None:
    lab.create(DIAMOND, experiment_name="shapes")
    lab.round()
    assert not lab.pipeline.status.ended and lab.running() == ["a"]
    job = lab.job("a")
    assert (job.name, job.parent, job.experiment_name) == ("p_a", "p", "shapes")
    lab.complete("a")
    lab.round()
    assert lab.running() == ["b", "c"]
    lab.complete("c")
    lab.round()
    assert lab.running() == ["b"]
    lab.complete("b")
    lab.round()
    assert lab.running() == ["d"]
    paths = {name: each["path"] for name, each in lab.job("d").document["inputs"].items()}
    assert paths == {
        name: f"azureml://datastores/workspaceblobstore/paths/azureml/p_{name}/data/"
        for name in ("b", "c")
    }
    lab.complete("d")
    lab.round()
    assert lab.pipeline.status is Status.COMPLETED and lab.pipeline.exit_code is None
    assert set(lab.outcomes.values()) == {"completed"}
    assert "pipeline p begins: 4 steps" in lab.log and "ends as Completed: 4 completed" in lab.log


def test_outputs_of_a_pipeline_are_those_of_its_steps(lab: PipelineLab) -> None:
    made = source() | {"outputs": {"data": "${{parent.outputs.best}}"}}
    lab.create({"a": made}, outputs={"best": {"type": "uri_folder", "name": "best-data"}})
    lab.run()
    assert list(outputs.list_files(lab.services, lab.pipeline)) == [("best", "made.txt", 1)]
    found = outputs.file(lab.services, lab.pipeline, "best", "made.txt")
    with files.reading(found) as made_file:
        assert made_file.read() == b"a"
    uri = data_sources.find(lab.services, support.WORKSPACE, "azureml://jobs/p/outputs/best")
    assert uri.endswith("/azureml/p_a/data/")
    assert lab.job("a").document["outputs"]["data"]["name"] == "best-data"


def test_what_depends_on_a_failed_step_is_skipped_and_the_rest_goes_on(lab: PipelineLab) -> None:
    lab.create({"a": source(), "b": taking("b", "a"), "c": taking("c", "b"), "x": source("x")})
    lab.round()
    lab.fail("a")
    lab.round()
    assert lab.outcomes == {"a": "failed", "b": "skipped", "c": "skipped", "x": "live"}
    assert not lab.pipeline.status.ended
    lab.complete("x")
    lab.round()
    error = lab.pipeline.error
    assert lab.pipeline.status is Status.FAILED and error is not None
    assert error.code == "step_failed" and error.message.startswith("step `a` failed: ")
    assert error.hint == "see `yard job show -n p_a`"
    assert lab.steps["c"].reason == "step `b`, whose output it takes, did not run"


def test_without_continuing_a_failed_step_ends_the_others(lab: PipelineLab) -> None:
    settings = {"continue_on_step_failure": False}
    lab.create({"a": source(), "b": taking("b", "a"), "x": source("x")}, settings=settings)
    lab.round()
    lab.fail("a")
    lab.round()
    assert lab.job("x").status is Status.CANCEL_REQUESTED
    assert not lab.pipeline.status.ended
    lab.obey_cancel("x")
    lab.round()
    assert lab.pipeline.status is Status.FAILED
    assert lab.outcomes == {"a": "failed", "b": "canceled", "x": "canceled"}


def test_a_canceled_pipeline_ends_its_steps(lab: PipelineLab) -> None:
    lab.create(DIAMOND)
    lab.round()
    jobs.cancel(lab.services, support.WORKSPACE, "p")
    lab.round()
    assert lab.job("a").status is Status.CANCEL_REQUESTED
    lab.obey_cancel("a")
    lab.round()
    assert lab.pipeline.status is Status.CANCELED
    assert set(lab.outcomes.values()) == {"canceled"}


def test_a_pipeline_that_is_canceled_at_once_starts_nothing(lab: PipelineLab) -> None:
    lab.create(DIAMOND)
    jobs.cancel(lab.services, support.WORKSPACE, "p")
    lab.round()
    assert lab.pipeline.status is Status.CANCELED
    assert not any(row.child_name for row in lab.steps.values())


def test_a_step_that_a_person_canceled_cancels_the_pipeline(lab: PipelineLab) -> None:
    lab.create({"a": source(), "b": taking("b", "a")})
    lab.round()
    jobs.cancel(lab.services, support.WORKSPACE, "p_a")
    lab.obey_cancel("a")
    lab.round()
    assert lab.pipeline.status is Status.CANCELED and lab.outcomes["b"] == "skipped"
    assert lab.pipeline.error is not None and lab.pipeline.error.code == "step_canceled"


def test_a_killed_server_goes_on_and_starts_each_step_once(lab: PipelineLab) -> None:
    lab.create(DIAMOND)
    for _ in range(20):
        lab.kill()
        lab.round()
        lab.kill()
        lab.round()
        if lab.pipeline.status.ended:
            break
        for name in lab.running():
            lab.complete(name)
    assert lab.pipeline.status is Status.COMPLETED
    assert lab.log.count("step a starts as job p_a") == 1


def test_a_round_that_fails_after_a_step_was_stored_does_not_start_it_again(
    lab: PipelineLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.create({"a": source(), "x": source("x")})
    monkeypatch.setattr(rounds, "_finish", lambda services, state: 1 / 0)
    lab.round()
    monkeypatch.undo()
    assert lab.outcomes == {"a": "live", "x": "live"}
    lab.run()
    assert lab.pipeline.status is Status.COMPLETED


def test_a_step_takes_the_file_that_another_made(lab: PipelineLab) -> None:
    file = {"type": "uri_file"}
    made = step("make ${{outputs.data}}", outputs={"data": file})
    taken = step("x", inputs={"a": {**file, "path": "${{parent.jobs.a.outputs.data}}"}})
    lab.create({"a": made, "b": taken})
    lab.run()
    assert lab.job("b").document["inputs"]["a"]["path"].endswith("/azureml/p_a/data/data")
    lab.name = "q"
    lab.create({"a": {**made, "command": "none ${{outputs.data}}"}, "b": taken})
    lab.run(empty=["a"])
    assert lab.outcomes == {"a": "completed", "b": "failed"}
    assert "job `q_a` wrote no file to its output `data`" in lab.steps["b"].reason


def test_what_another_step_writes_is_looked_for_when_the_step_starts(lab: PipelineLab) -> None:
    shared = "azureml://datastores/workspaceblobstore/paths/shared"
    made = source("a") | {"outputs": {"data": {"path": f"{shared}/"}}}
    after = {"a": "${{parent.jobs.a.outputs.data}}"}

    def reader(path: str) -> dict[str, Any]:
        return step("x", inputs={**after, "f": {"type": "uri_file", "path": path}})

    jobs = {"a": made, "b": reader(f"{shared}/made.txt"), "c": reader(f"{shared}/none.txt")}
    lab.create(jobs)
    lab.run()
    assert lab.outcomes == {"a": "completed", "b": "completed", "c": "failed"}
    assert "there is nothing at `shared/none.txt`" in lab.steps["c"].reason
    lab.name = "q"
    own = {**reader(f"{shared}er/x"), "outputs": {"o": {"path": f"{shared}er"}}}
    with pytest.raises(InvalidSpec) as refused:
        lab.create({**jobs, "own": own})
    assert refused.value.at == ("jobs", "own", "inputs", "f", "path")


def test_a_step_that_can_not_be_started_says_why(lab: PipelineLab) -> None:
    lab.create({"a": source(), "b": taking("b", "a"), "c": taking("c", "b")})
    taken = {"command": "true", "environment": "python", "name": "p_b"}
    support.submit(lab.services, **taken)
    lab.round()
    lab.complete("a")
    lab.round()
    lab.round()
    assert lab.outcomes == {"a": "completed", "b": "failed", "c": "skipped"}
    assert "job `p_b` exists in workspace" in lab.steps["b"].reason
    assert lab.pipeline.status is Status.FAILED


def test_the_same_pipeline_again_is_the_same_job(lab: PipelineLab) -> None:
    first = lab.create({"a": source()})
    assert lab.create({"a": source()}).id == first.id
    with pytest.raises(Conflict):
        lab.create({"a": step("other")})


def test_a_step_whose_job_was_deleted_ends_the_pipeline(lab: PipelineLab) -> None:
    lab.create({"a": source(), "b": taking("b", "a")})
    lab.round()
    lab.fail("a")
    deletion.delete(lab.services, support.WORKSPACE, Choice(names=("p_a",)), support.ME.user)
    lab.round()
    assert lab.pipeline.status.ended
    assert "a" in [each.row.name for each in actions.steps(lab.services, lab.pipeline)]
