"""MLflow by the `azureml://` plug-in, outside of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from operations import World, operation

_MLMODEL = "flavors:\n  python_function:\n    loader_module: nothing\n"


def mlflow_in(world: World) -> Any:
    """The module, set to the address that the workspace tells."""
    import mlflow

    uri = world.ml.workspaces.get(world.ml.workspace_name).mlflow_tracking_uri
    if mlflow.get_tracking_uri() != uri:
        mlflow.set_tracking_uri(uri)
        mlflow.set_experiment(world.name("plugin"))
    return mlflow


@operation("MLflow, `azureml://`", "`set_experiment`, `search_experiments`")
def experiment(world: World) -> Any:
    mlflow = mlflow_in(world)
    names = [experiment.name for experiment in mlflow.search_experiments()]
    assert world.name("plugin") in names, names
    return names


@operation("MLflow, `azureml://`", "`start_run`, metrics, parameters, tags")
def run(world: World) -> Any:
    mlflow = mlflow_in(world)
    with mlflow.start_run(run_name="by hand") as run:
        mlflow.log_param("rate", 0.1)
        mlflow.log_params({"depth": 3, "kind": "tree"})
        mlflow.set_tag("team", "vision")
        for step in range(5):
            mlflow.log_metric("loss", 1.0 / (step + 1), step=step)
        mlflow.log_metrics({"accuracy": 0.5, "recall": 0.25}, step=1)
    world.seen["run"] = run.info.run_id
    stored = mlflow.get_run(run.info.run_id)
    assert stored.info.status == "FINISHED", stored.info.status
    assert stored.data.params == {"rate": "0.1", "depth": "3", "kind": "tree"}, stored.data.params
    assert stored.data.tags["team"] == "vision", stored.data.tags
    assert stored.data.metrics == {"loss": 0.2, "accuracy": 0.5, "recall": 0.25}
    assert stored.info.artifact_uri.startswith("azureml://"), stored.info.artifact_uri
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
    return {"run": run.info.run_id, "loss": [(point.step, point.value) for point in history]}


@operation("MLflow, `azureml://`", "`MlflowClient.log_batch`")
def log_batch(world: World) -> Any:
    from mlflow.entities import Metric, Param, RunTag

    mlflow = mlflow_in(world)
    run_id = world.seen["run"]
    points = [Metric("many", step / 10, 1700000000000 + step, step) for step in range(900)]
    client = mlflow.MlflowClient()
    client.log_batch(run_id, points, [Param("late", "1")], [RunTag("state", "done")])
    history = client.get_metric_history(run_id, "many")
    assert [point.step for point in history] == list(range(900))
    return len(history)


@operation("MLflow, `azureml://`", "asynchronous logging")
def log_async(world: World) -> Any:
    mlflow = mlflow_in(world)
    with mlflow.start_run(run_id=world.seen["run"]):
        mlflow.log_metric("slow", 1.5, synchronous=False).wait()
        mlflow.log_params({"waited": "yes"}, synchronous=False).wait()
    stored = mlflow.get_run(world.seen["run"]).data
    assert (stored.metrics["slow"], stored.params["waited"]) == (1.5, "yes"), stored
    return stored.metrics["slow"]


@operation("MLflow, `azureml://`", "`search_runs`")
def search(world: World) -> Any:
    mlflow = mlflow_in(world)
    runs = mlflow.MlflowClient().search_runs(
        [mlflow.get_experiment_by_name(world.name("plugin")).experiment_id],
        "params.kind = 'tree' and metrics.accuracy > 0.4",
    )
    assert world.seen["run"] in [run.info.run_id for run in runs], runs
    return len(runs)


@operation("MLflow, `azureml://`", "`MlflowClient.create_run`, `search_runs`, all pages")
def many(world: World) -> Any:
    mlflow = mlflow_in(world)
    client = mlflow.MlflowClient()
    experiment_id = client.create_experiment(world.name("many"))
    made = {client.create_run(experiment_id).info.run_id for _ in range(60)}
    seen, token = set(), None
    while token != "":
        page = client.search_runs([experiment_id], max_results=25, page_token=token)
        seen |= {run.info.run_id for run in page}
        token = page.token or ""
    assert seen == made, len(seen)
    for run_id in made:
        client.set_terminated(run_id)
    return len(seen)


@operation("MLflow, `azureml://`", "nested runs")
def nested(world: World) -> Any:
    mlflow = mlflow_in(world)
    with mlflow.start_run() as outer, mlflow.start_run(nested=True) as inner:
        mlflow.log_metric("inside", 1)
    stored = mlflow.get_run(inner.info.run_id)
    assert stored.data.tags["mlflow.parentRunId"] == outer.info.run_id, stored.data.tags
    return stored.info.run_id


@operation("MLflow, `azureml://`", "`log_artifact`, `log_artifacts`, `log_text`, `log_dict`")
def upload(world: World) -> Any:
    mlflow = mlflow_in(world)
    world.write("art/one.txt", "one")
    world.write("art/deep/two.txt", "two")
    world.write("art/empty.txt", "")
    (world.folder / "art" / "large.bin").write_bytes(bytes(range(256)) * 4096 * 5)
    with mlflow.start_run(run_id=world.seen["run"]):
        mlflow.log_artifact(str(world.folder / "art" / "one.txt"))
        mlflow.log_artifact(str(world.folder / "art" / "one.txt"), "below/it")
        mlflow.log_artifacts(str(world.folder / "art"), "folder")
        mlflow.log_text("said", "notes/said.txt")
        mlflow.log_dict({"a": 1}, "notes/a b ü.json")
    return world.seen["run"]


@operation("MLflow, `azureml://`", "`list_artifacts`")
def list_artifacts(world: World) -> Any:
    client = mlflow_in(world).MlflowClient()

    def walk(path: str | None) -> list[str]:
        files: list[str] = []
        for entry in client.list_artifacts(world.seen["run"], path):
            files += walk(entry.path) if entry.is_dir else [entry.path]
        return files

    paths = sorted(walk(None))
    assert paths == [
        "below/it/one.txt",
        "folder/deep/two.txt",
        "folder/empty.txt",
        "folder/large.bin",
        "folder/one.txt",
        "notes/a b ü.json",
        "notes/said.txt",
        "one.txt",
    ], paths
    return paths


@operation("MLflow, `azureml://`", "`download_artifacts`")
def download(world: World) -> Any:
    client = mlflow_in(world).MlflowClient()
    to = world.folder / "plugin-down"
    to.mkdir(exist_ok=True)
    folder = Path(client.download_artifacts(world.seen["run"], "folder", str(to)))
    for path in ("deep/two.txt", "one.txt", "large.bin", "empty.txt"):
        assert (folder / path).read_bytes() == (world.folder / "art" / path).read_bytes(), path
    odd = Path(client.download_artifacts(world.seen["run"], "notes/a b ü.json", str(to)))
    assert '"a": 1' in odd.read_text(), odd.read_text()
    everything = Path(client.download_artifacts(world.seen["run"], "", str(to / "all")))
    assert (everything / "below/it/one.txt").read_text() == "one"
    return str(folder.name)


@operation("MLflow, `azureml://`", "`create_model_version` of a run's files, `get_model_version`")
def register(world: World) -> Any:
    mlflow = mlflow_in(world)
    world.write("model/MLmodel", _MLMODEL)
    world.write("model/weights.bin", "weights")
    with mlflow.start_run(run_id=world.seen["run"]):
        mlflow.log_artifacts(str(world.folder / "model"), "model")
    client = mlflow.MlflowClient()
    client.create_registered_model(world.name("tree"))
    uri = mlflow.get_run(world.seen["run"]).info.artifact_uri + "/model"
    made = client.create_model_version(world.name("tree"), uri, world.seen["run"])
    assert str(made.version) == "1", made
    version = client.get_model_version(world.name("tree"), "1")
    assert (version.status, version.run_id) == ("READY", world.seen["run"]), version
    return {"source": version.source}


@operation("MLflow, `azureml://`", "`register_model` of a local folder")
def register_local(world: World) -> Any:
    mlflow = mlflow_in(world)
    client = mlflow.MlflowClient()
    client.create_registered_model(world.name("local"), tags={"from": "a folder"})
    folder = (world.folder / "model").as_uri()
    made = client.create_model_version(world.name("local"), folder)
    to = world.folder / "local-down"
    to.mkdir(exist_ok=True)
    got = Path(mlflow.artifacts.download_artifacts(f"models:/{made.name}/1", dst_path=str(to)))
    assert (got / "weights.bin").read_text() == "weights", list(got.rglob("*"))
    return {"source": made.source}


@operation("MLflow, `azureml://`", "`download_artifacts` of `models:/name/version`")
def model_files(world: World) -> Any:
    mlflow = mlflow_in(world)
    to = world.folder / "model-down"
    to.mkdir(exist_ok=True)
    uri = f"models:/{world.name('tree')}/1"
    got = Path(mlflow.artifacts.download_artifacts(uri, dst_path=str(to)))
    assert (got / "weights.bin").read_text() == "weights", list(got.rglob("*"))
    return mlflow.MlflowClient().get_model_version_download_uri(world.name("tree"), "1")


@operation("MLflow, `azureml://`", "versions: tags, stages, aliases, search")
def versions(world: World) -> Any:
    client = mlflow_in(world).MlflowClient()
    name = world.name("tree")
    client.set_model_version_tag(name, "1", "checked", "yes")
    client.set_registered_model_alias(name, "best", "1")
    client.update_model_version(name, "1", description="the first")
    version = client.get_model_version_by_alias(name, "best")
    assert (version.tags, version.description) == ({"checked": "yes"}, "the first"), version
    listed = client.search_model_versions(f"name = '{name}'")
    assert [str(match.version) for match in listed] == ["1"], listed
    assert name in [model.name for model in client.search_registered_models()]
    return [model.name for model in client.search_registered_models()]


@operation("MLflow, `azureml://`", "logged models, `register_model`")
def logged(world: World) -> Any:
    mlflow = mlflow_in(world)
    with mlflow.start_run(run_id=world.seen["run"]):
        model = mlflow.initialize_logged_model(name="net")
        mlflow.log_metric("score", 0.5, model_id=model.model_id)
        client = mlflow.MlflowClient()
        client.log_model_artifacts(model.model_id, str(world.folder / "model"))
        mlflow.finalize_logged_model(model.model_id, "READY")
    to = world.folder / "logged-down"
    to.mkdir(exist_ok=True)
    got = Path(mlflow.artifacts.download_artifacts(f"models:/{model.model_id}", dst_path=str(to)))
    assert (got / "weights.bin").read_text() == "weights", list(got.rglob("*"))
    registered = mlflow.register_model(f"runs:/{world.seen['run']}/net", world.name("net"))
    assert registered.source == f"models:/{model.model_id}", registered
    return {"logged": model.artifact_location}


@operation("MLflow, `azureml://`", "`jobs.get` of a run by hand")
def same_run(world: World) -> Any:
    job = world.ml.jobs.get(world.seen["run"])
    assert job.status == "Completed", job.status
    return job.display_name
