"""SDK v1: what is told to who asks wrongly, and that nothing is left of it."""

from __future__ import annotations

import os
from typing import Any

from operations import ERROR, EXPIRED, World
from v1_run_operations import RANKS
from v1_world import operation, source, submit, workspace


def _distributed(world: World, **options: Any) -> Any:
    from azureml.core.runconfig import PyTorchConfiguration

    folder = source(world, "ranks", RANKS)
    return submit(world, "wrong", folder, distributed_job_config=PyTorchConfiguration(**options)).id


@operation("Jobs", "`submit`: `node_count=-1`", ERROR, "-1")
def negative_nodes(world: World) -> Any:
    return _distributed(world, node_count=-1)


@operation("Jobs", "`submit`: more nodes than the cluster can have", ERROR, "at most 4")
def too_many_nodes(world: World) -> Any:
    return _distributed(world, node_count=100)


@operation("Jobs", "`submit`: `process_count=-2`", ERROR, "-2")
def negative_processes(world: World) -> Any:
    return _distributed(world, process_count=-2)


@operation("Jobs", "`submit`: a negative `max_run_duration_seconds`", ERROR, "-5")
def negative_limit(world: World) -> Any:
    folder = source(world, "ranks", RANKS)
    return submit(world, "wrong", folder, max_run_duration_seconds=-5).id


@operation("Jobs", "`submit`: neither a script nor a command", ERROR, "neither")
def neither(world: World) -> Any:
    return submit(world, "wrong", source(world, "ranks", RANKS), script=None).id


@operation("Jobs", "`submit`: a script that is not there", ERROR, "nope.py")
def no_script(world: World) -> Any:
    return submit(world, "wrong", source(world, "ranks", RANKS), script="nope.py").id


@operation("Jobs", "`submit`: 2,001 files", ERROR, "file limit of 2000")
def many_files(world: World) -> Any:
    folder = source(world, "many", RANKS)
    for number in range(2001):
        (folder / f"{number}.txt").touch()
    return submit(world, "wrong", folder).id


@operation("Jobs", "`submit`: more than 300 MB", ERROR, "limit of 300")
def large(world: World) -> Any:
    folder = source(world, "large", RANKS)
    with open(folder / "large.bin", "wb") as file:
        file.truncate(301 << 20)
    return submit(world, "wrong", folder).id


@operation("Jobs", "`submit`: what `.amlignore` names stays here")
def ignored(world: World) -> Any:
    folder = source(world, "large", RANKS)
    (folder / ".amlignore").write_text("large.bin\n")
    run = submit(world, "ignored", folder)
    run.cancel()
    return run.get_snapshot_id()


@operation("Jobs", "`submit`: a dataset whose path is gone", ERROR, "there is nothing at `gone/")
def submit_with_a_missing_path(world: World) -> Any:
    from azureml.core import Dataset

    store = workspace(world).get_default_datastore()
    made = Dataset.File.from_files((store, "gone/nothing"), validate=False)
    folder = source(world, "ranks", RANKS)
    return submit(world, "wrong", folder, arguments=[made.as_mount()]).id


@operation("Data", "`upload_directory` of a folder that is not there", ERROR, "not found")
def no_directory(world: World) -> Any:
    from azureml.core import Dataset

    target = (workspace(world).get_default_datastore(), "nothing")
    return Dataset.File.upload_directory(str(world.folder / "nothing"), target=target).to_path()


@operation("Data", "`register` by a name that is none", ERROR, "bad name!")
def bad_dataset_name(world: World) -> Any:
    return world.seen["dataset"].register(workspace(world), "bad name!").id


@operation("Data", "`Datastore` of a name that is not there", ERROR, "no-such-store")
def no_store(world: World) -> Any:
    from azureml.core import Datastore

    return Datastore.get(workspace(world), "no-such-store").name


@operation("Models", "`Model.register` of a path that is not there", ERROR, "does not exist")
def no_model_path(world: World) -> Any:
    from azureml.core import Model

    return Model.register(workspace(world), str(world.folder / "nothing"), "v1-nothing").id


@operation("Models", "`Model` of a version that is not there", ERROR, "v1-local:99")
def no_version(world: World) -> Any:
    from azureml.core import Model

    return Model(workspace(world), "v1-local", version=99).id


@operation("Environments", "`Environment.get` of a version that is not there", ERROR, "python:99")
def no_environment_version(world: World) -> Any:
    from azureml.core import Environment

    return Environment.get(workspace(world), "python", version="99").name


@operation("Environments", "`register` by a name that is none", ERROR, "bad name!")
def bad_environment_name(world: World) -> Any:
    from azureml.core import Environment

    return Environment("bad name!").register(workspace(world)).name


@operation("Errors", "a workspace of another subscription", ERROR, "subscription")
def other_subscription(world: World) -> Any:
    from azureml.core import Workspace

    ws = workspace(world)
    return Workspace("11111111-2222-3333-4444-555555555555", ws.resource_group, ws.name).name


@operation("Errors", "a workspace of another resource group", ERROR, "workspace not found")
def other_group(world: World) -> Any:
    from azureml.core import Workspace

    ws = workspace(world)
    return Workspace(ws.subscription_id, "other-group", ws.name).name


@operation("Errors", "a folder without config.json", ERROR, "config.json")
def no_config(world: World) -> Any:
    from azureml.core import Workspace

    folder = world.folder.parent / "elsewhere"
    folder.mkdir()
    before = os.getcwd()
    os.chdir(folder)
    try:
        return Workspace.from_config().name
    finally:
        os.chdir(before)


@operation("Errors", "a token whose time is over", ERROR, "expired")
def expired(world: World) -> Any:
    from azureml.core import Experiment, Workspace
    from azureml.core.authentication import ArmTokenAuthentication

    ws = workspace(world)
    authentication = ArmTokenAuthentication(os.environ[EXPIRED])
    other = Workspace(ws.subscription_id, ws.resource_group, ws.name, auth=authentication)
    return Experiment(other, "v1-contract").name
