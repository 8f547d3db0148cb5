"""SDK v1: experiments, children, and runs of the client's own."""

from __future__ import annotations

from typing import Any

from operations import ERROR, World
from v1_world import EXPERIMENT, operation, workspace

OWN = "v1-experiment"


def _started(world: World) -> Any:
    """A run of the client's own, which the operation ends."""
    from azureml.core import Experiment

    return Experiment(workspace(world), OWN).start_logging(snapshot_directory=None)


@operation("Jobs", "`run.create_children`, `get_children`, `get_metrics(recursive=True)`")
def children(world: World) -> Any:
    with _started(world) as run:
        made = run.create_children(tag_key="part", tag_values=["one", "two"])
        for number, child in enumerate(made):
            child.log("loss", number)
            child.complete()
        listed = list(run.get_children())
        assert sorted(child.id for child in listed) == sorted(child.id for child in made), listed
        assert {child.get_status() for child in listed} == {"Completed"}
        parts = [child.id for child in run.get_children(tags={"part": "two"})]
        assert parts == [made[1].id], parts
        assert listed[0].parent.id == run.id
        metrics = run.get_metrics(recursive=True)
        assert metrics == {made[0].id: {"loss": 0}, made[1].id: {"loss": 1}}, metrics
    return len(listed)


@operation("Jobs", "`run.fail(error_details=…)`, `get_details` tells them")
def failed(world: World) -> Any:
    run = _started(world)
    run.fail(error_details="no such column: age", error_code="BadColumn")
    error = run.get_details()["error"]["error"]
    assert (error["code"], error["message"]) == ("BadColumn", "no such column: age"), error
    assert run.get_status() == "Failed"
    return error


@operation("Jobs", "`Run.get`, `Run(experiment, id)`, `get_portal_url`, `get_tags` of `get_runs`")
def get(world: World) -> Any:
    from azureml.core import Experiment, Run

    ws = workspace(world)
    with _started(world) as run:
        run.tag("mark", run.id)
    assert Run.get(ws, run.id).id == Run(Experiment(ws, OWN), run.id).id == run.id
    assert [match.id for match in Experiment(ws, OWN).get_runs(tags={"mark": run.id})] == [run.id]
    assert run.get_portal_url().startswith("https://127.0.0.1")
    return run.get_portal_url()


@operation("Jobs", "`Run.get` of one that is not there", ERROR, "no-such-run")
def get_absent(world: World) -> Any:
    from azureml.core import Run

    return Run.get(workspace(world), "no-such-run").id


@operation("Jobs", "`Experiment.list` by name and tags, `set_tags`, `remove_tags`")
def list_experiments(world: World) -> Any:
    from azureml.core import Experiment

    ws = workspace(world)
    experiment = Experiment(ws, OWN)
    experiment.set_tags({"team": "birds", "old": "yes"})
    experiment.remove_tags(["old"])
    experiment.refresh()
    assert experiment.tags == {"team": "birds"}, experiment.tags
    assert [match.name for match in Experiment.list(ws, tags={"team": "birds"})] == [OWN]
    assert [match.name for match in Experiment.list(ws, experiment_name=OWN)] == [OWN]
    assert Experiment.list(ws, experiment_name="no-such-experiment") == []
    return {EXPERIMENT, OWN} <= set(ws.experiments)


@operation("Jobs", "`Experiment.archive`, `reactivate`", how="its runs go, and come, with it")
def archive(world: World) -> Any:
    from azureml.core import Experiment

    ws = workspace(world)
    experiment = Experiment(ws, "v1-archived")
    experiment.archive()
    assert experiment.archived_time is not None
    assert experiment.name not in {listed.name for listed in Experiment.list(ws)}
    hidden = Experiment.list(ws, view_type="ArchivedOnly")
    assert [listed.name for listed in hidden] == [experiment.name], hidden
    experiment.reactivate()
    assert experiment.name in {listed.name for listed in Experiment.list(ws)}
    return experiment.name


@operation("Jobs", "`upload_file` of what the run has already", ERROR, "already")
def twice(world: World) -> Any:
    file = str(world.write("twice.txt", "once"))
    with _started(world) as run:
        run.upload_file("twice.txt", file)
        return run.upload_file("twice.txt", file).artifacts


@operation("Jobs", "`upload_file` out of the run's own folder", ERROR, "not a path inside")
def outside(world: World) -> Any:
    file = str(world.write("twice.txt", "once"))
    with _started(world) as run:
        return run.upload_file("../../outside.txt", file).artifacts


@operation("Jobs", "`Experiment` of a name that is none", ERROR, "alphanumeric")
def bad_name(world: World) -> Any:
    from azureml.core import Experiment

    return Experiment(workspace(world), "bad name!").id
