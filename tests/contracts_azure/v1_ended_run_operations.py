"""SDK v1: how the runs ended that v1_run_operations.py submitted."""

from __future__ import annotations

import shutil
from typing import Any

from operations import ERROR, World
from v1_world import EXPERIMENT, ended, operation, text_of, workspace

LOG = "user_logs/std_log.txt"


@operation("Jobs", "arguments as the script saw them")
def arguments(world: World) -> Any:
    run = ended(world, "script")
    first = text_of(world, run, LOG).splitlines()[0]
    arguments = f'["--num_epochs", "30", "--dir", "./outputs", "{run.id}", "a b\'c", "$NOPE"]'
    assert first == f"arguments {arguments}", first
    return first


@operation("Jobs", "`get_details`, `get_status`, `ws.get_run`")
def details(world: World) -> Any:
    run = ended(world, "script")
    same_run = workspace(world).get_run(run.id)
    assert (same_run.id, same_run.get_status()) == (run.id, "Completed"), same_run
    details = same_run.get_details()
    assert (details["runId"], details["status"], details["target"]) == (
        run.id,
        "Completed",
        "v1-cluster",
    )
    assert {"startTimeUtc", "endTimeUtc", "properties", "logFiles"} <= set(details), details
    return sorted(details)


@operation("Jobs", "`get_file_names`, `download_file`, `download_files`")
def files(world: World) -> Any:
    run = ended(world, "script")
    assert {LOG, "outputs/model.pt", "outputs/parts/a.txt"} <= set(run.get_file_names())
    file = world.folder / "one" / "model.pt"
    run.download_file(name="outputs/model.pt", output_file_path=str(file))
    assert file.read_text() == "weights"
    run.download_files(prefix="outputs", output_directory=str(world.folder / "many"))
    assert (world.folder / "many" / "outputs" / "parts" / "a.txt").read_text() == "weights"
    return run.get_file_names()


@operation("Jobs", "`download_file` of one that is not there", ERROR, "nothing.pt")
def absent_file(world: World) -> Any:
    return ended(world, "script").download_file("outputs/nothing.pt", str(world.folder / "no"))


@operation("Jobs", "`tag`, `set_tags`, `remove_tags`, `get_properties`, `display_name`")
def tags(world: World) -> Any:
    run = ended(world, "script")
    run.tag("kind", "contract")
    run.set_tags({"more": "yes"})
    assert run.get_tags() == {"kind": "contract", "more": "yes"}, run.get_tags()
    run.remove_tags(["more"])
    assert run.get_tags() == {"kind": "contract"}, run.get_tags()
    run.tag("marked")
    run.tag("in words", 'a "quoted" text')
    run.add_properties({"own property": "its text"})
    for matching in (
        {"tags": "marked"},
        {"tags": "in words"},
        {"tags": {"marked": None, "in words": 'a "quoted" text'}},
        {"properties": {"own property": "its text"}},
    ):
        matched = [other.id for other in run.experiment.get_runs(**matching)]
        assert matched == [run.id], (matching, matched)
    run.display_name = "the whole thing"
    assert workspace(world).get_run(run.id).display_name == "the whole thing"
    return run.get_properties()


@operation("Jobs", "`Experiment.get_runs`, `ws.experiments`: newest first")
def list_runs(world: World) -> Any:
    run_ids = [run.id for run in workspace(world).experiments[EXPERIMENT].get_runs()]
    expected = [world.seen[key].id for key in ("slow", "failing", "command", "script")]
    assert [run_id for run_id in run_ids if run_id in expected] == expected, run_ids
    return len(run_ids)


@operation("Jobs", "`get_snapshot_id`, `restore_snapshot`")
def snapshot(world: World) -> Any:
    import zipfile

    run = ended(world, "script")
    folder = run.restore_snapshot(path=str(world.folder / "restored"))
    with zipfile.ZipFile(folder) as archive:
        assert archive.namelist() == ["train.py"], archive.namelist()
    return run.get_snapshot_id()


@operation("Jobs", "`command`: its variables and its shell")
def command(world: World) -> Any:
    text = text_of(world, ended(world, "command"), LOG)
    assert text.splitlines()[-1] == "of my own", text
    return text


@operation("Jobs", "`PyTorchConfiguration`: the ranks of 4 processes on 2 nodes")
def ranks(world: World) -> Any:
    run = ended(world, "pytorch")
    names = [f"user_logs/std_log_process_{rank}.txt" for rank in range(4)]
    assert set(names) <= set(run.get_file_names()), run.get_file_names()
    lines = [text_of(world, run, name).splitlines()[-1] for name in names]
    begins = [line.rpartition(" OMPI")[0] for line in lines]
    assert begins == [
        f"RANK={rank} LOCAL_RANK={rank % 2} WORLD_SIZE=4 NODE_RANK={rank // 2}" for rank in range(4)
    ], lines
    return lines


@operation("Jobs", "`PyTorchConfiguration` with a command: once a node")
def nodes(world: World) -> Any:
    run = ended(world, "per-node")
    logs = [path for path in run.get_file_names() if path.startswith("user_logs/std_log")]
    lines = [text_of(world, run, path).splitlines()[-1] for path in sorted(logs)]
    assert lines == ["node 0 at a port", "node 1 at a port"], (logs, lines)
    return logs


@operation("Jobs", "`MpiConfiguration`: its ranks")
def mpi(world: World) -> Any:
    if shutil.which("mpirun") is None:
        run = ended(world, "mpi", "Failed")
        error = run.get_details()["error"]["error"]
        assert error["innerError"]["code"] == "mpi_missing", error
        return "this machine has no MPI"
    run = ended(world, "mpi")
    logs = [path for path in run.get_file_names() if path.startswith("user_logs/std_log")]
    text = "".join(text_of(world, run, path) for path in logs)
    assert "OMPI_COMM_WORLD_RANK=0" in text and "OMPI_COMM_WORLD_RANK=1" in text, text
    return logs


@operation("Jobs", "a run that failed: `ActivityFailedException`", ERROR, "no such column: age")
def failed(world: World) -> Any:
    from azureml.exceptions import ActivityFailedException

    run = world.seen["failing"]
    try:
        return run.wait_for_completion(raise_on_error=True)
    except ActivityFailedException as error:
        assert run.get_status() == "Failed"
        assert "before" in text_of(world, run, LOG)
        raise RuntimeError(str(error)) from error


@operation("Jobs", "`max_run_duration_seconds`: the run ends")
def limited(world: World) -> Any:
    run = world.seen["limited"]
    run.wait_for_completion(raise_on_error=False)
    assert run.get_status() in ("Canceled", "Failed"), run.get_status()
    return run.get_details().get("error")


@operation("Jobs", "`cancel`: the run is canceled")
def canceled(world: World) -> Any:
    return ended(world, "canceled", "Canceled").get_status()


@operation("Models", "`run.register_model`, `Model.list` of a run, lineage, `download`")
def register_model(world: World) -> Any:
    from azureml.core import Model

    ws, run = workspace(world), ended(world, "script")
    made = run.register_model(model_name="v1-birds", model_path="outputs/model.pt")
    assert (made.name, made.version, made.run_id) == ("v1-birds", 1, run.id), made
    parts = run.register_model("v1-parts", "outputs/parts", tags={"a": "b"}, properties={"p": "q"})
    assert (parts.tags, parts.properties["p"]) == ({"a": "b"}, "q"), parts.properties
    parts.download(target_dir=str(world.folder / "parts"), exist_ok=True)
    assert (world.folder / "parts" / "parts" / "a.txt").read_text() == "weights"
    names = {model.name for model in Model.list(ws, run_id=run.id)}
    assert names == {"v1-birds", "v1-parts"}, names
    assert made.run.id == run.id
    return sorted(names)


@operation("Models", "`run.register_model` of what the run did not write", ERROR, "nothing.pt")
def absent_path(world: World) -> Any:
    return ended(world, "script").register_model("v1-nothing", "outputs/nothing.pt").id


@operation("Inside a job", "`Run.get_context`, every kind of `log`, `upload_*`, `register_model`")
def in_job(world: World) -> Any:
    run = ended(world, "in-job")
    text = text_of(world, run, LOG)
    assert "all is well" in text and f"model v1-in-job:1 in {EXPERIMENT} default" in text, text
    expected = {"other/other.txt", "folder/model.pt", "outputs/model.pt", "image.png"}
    paths = run.get_file_names()
    assert expected <= {*paths, *(path.rpartition("/")[2] for path in paths)}, paths
    assert run.get_tags() == {"from": "the job", "more": "yes"}, run.get_tags()
    return paths


@operation("Inside a job", "`get_metrics` of a run that logged by SDK v1")
def metrics(world: World) -> Any:
    logged = ended(world, "in-job").get_metrics()
    assert logged["loss"] == [1.0, 0.5, 1 / 3], logged
    assert (logged["accuracy"], logged["word"], logged["several"]) == (0.9, "hello", [1, 2, 3.5])
    assert logged["row"] == {"x": [1, 2], "y": [2.5, 3.5]}, logged["row"]
    assert logged["table"] == {"a": [1, 2], "b": [3, 4]}, logged["table"]
    assert repr([logged[key] for key in ("count", "whole", "flag")]) == "[3, 2.0, True]", logged
    assert {"matrix", "accuracies", "residuals", "predictions", "image"} <= set(logged), logged
    return logged
