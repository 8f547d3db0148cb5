"""What the operations of SDK v1 share: their own list, the workspace, plain runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import operations
from operations import Operation, World

OPERATIONS: list[Operation] = []
operation = partial(operations.operation, into=OPERATIONS)

CLUSTER, EXPERIMENT = "v1-cluster", "v1-contract"


def workspace(world: World) -> Any:
    """The `Workspace`, made once."""
    if "workspace" not in world.seen:
        from azureml.core import Workspace

        world.seen["workspace"] = Workspace.from_config(path=str(world.folder))
    return world.seen["workspace"]


def plain_environment(world: World) -> Any:
    """An environment that is there already, with nothing but Python."""
    from azureml.core import Environment

    return Environment.get(workspace(world), "python")


def source(world: World, name: str, text: str) -> Path:
    """A folder with one script `train.py`."""
    return world.write(f"{name}/train.py", text).parent


def submit(world: World, key: str, folder: Path, **options: Any) -> Any:
    """A run of a folder's script, unless a command is given; later operations find it by `key`."""
    from azureml.core import Experiment, ScriptRunConfig

    arguments = {"compute_target": CLUSTER, "environment": plain_environment(world), **options}
    if "command" not in arguments:
        arguments.setdefault("script", "train.py")
    config = ScriptRunConfig(source_directory=str(folder), **arguments)
    run = Experiment(workspace(world), EXPERIMENT).submit(config)
    world.seen[key] = run
    return run


def ended(world: World, key: str, status: str = "Completed") -> Any:
    """The run of an earlier operation, once it has ended so."""
    run = world.seen[key]
    # The client looks for seconds even at a run that has ended.
    if run.get_status() not in ("Completed", "Failed", "Canceled"):
        run.wait_for_completion(raise_on_error=False)
    assert run.get_status() == status, (run.get_status(), run.get_details().get("error"))
    return run


def text_of(world: World, run: Any, path: str) -> str:
    """A file of a run."""
    file: Path = world.folder / "read" / run.id / path
    run.download_file(path, output_file_path=str(file))
    return file.read_text()
