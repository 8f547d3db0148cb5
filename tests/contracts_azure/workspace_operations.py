"""Workspaces."""

from __future__ import annotations

from typing import Any

from operations import World, operation


@operation("Workspaces", "`workspaces.get`")
def get(world: World) -> Any:
    workspace = world.ml.workspaces.get(world.ml.workspace_name)
    assert workspace.name == world.ml.workspace_name
    assert workspace.mlflow_tracking_uri.startswith("azureml://"), workspace.mlflow_tracking_uri
    world.seen["tracking"] = workspace.mlflow_tracking_uri
    return {
        "name": workspace.name,
        "location": workspace.location,
        "group": workspace.resource_group,
    }


@operation("Workspaces", "`workspaces.list`")
def list_all(world: World) -> Any:
    names = [workspace.name for workspace in world.ml.workspaces.list()]
    assert world.ml.workspace_name in names, names
    return names


@operation("Workspaces", "`workspaces.get` of one that is not there")
def absent(world: World) -> Any:
    from azure.core.exceptions import ResourceNotFoundError

    try:
        world.ml.workspaces.get("no-such-workspace")
    except ResourceNotFoundError as error:
        assert "no-such-workspace" in str(error), error
        return str(error)
    raise AssertionError("it was found")
