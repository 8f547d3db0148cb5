"""Workspaces."""

from __future__ import annotations

from typing import Any

from operations import World, operation


@operation("Workspaces", "`workspaces.get`")
def get(world: World) -> Any:
    found = world.ml.workspaces.get(world.ml.workspace_name)
    assert found.name == world.ml.workspace_name
    assert found.mlflow_tracking_uri.startswith("azureml://"), found.mlflow_tracking_uri
    world.seen["tracking"] = found.mlflow_tracking_uri
    return {"name": found.name, "location": found.location, "group": found.resource_group}


@operation("Workspaces", "`workspaces.list`")
def list_all(world: World) -> Any:
    found = [one.name for one in world.ml.workspaces.list()]
    assert world.ml.workspace_name in found, found
    return found


@operation("Workspaces", "`workspaces.get` of one that is not there")
def absent(world: World) -> Any:
    from azure.core.exceptions import ResourceNotFoundError

    try:
        world.ml.workspaces.get("no-such-workspace")
    except ResourceNotFoundError as error:
        assert "no-such-workspace" in str(error), error
        return str(error)
    raise AssertionError("it was found")
