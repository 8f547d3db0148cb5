"""SDK v1: workspaces and compute targets."""

from __future__ import annotations

from typing import Any

from operations import ERROR, World
from v1_world import CLUSTER, operation, workspace


@operation("Workspaces", "`Workspace.from_config` without arguments")
def from_config(world: World) -> Any:
    from azureml.core import Workspace

    default = Workspace.from_config()
    assert default.name == "default", default.name
    return [default.name, default.location, default.subscription_id, default.resource_group]


@operation("Workspaces", "`Workspace.get`, `Workspace(...)`, `write_config`")
def get(world: World) -> Any:
    from azureml.core import Workspace

    ws = workspace(world)
    again = Workspace.get(
        ws.name, subscription_id=ws.subscription_id, resource_group=ws.resource_group
    )
    assert Workspace(ws.subscription_id, ws.resource_group, ws.name).name == again.name
    (world.folder / "written").mkdir()
    again.write_config(path=str(world.folder / "written"), file_name="mine.json")
    file = world.folder / "written" / ".azureml" / "mine.json"
    assert Workspace.from_config(path=str(file)).name == ws.name
    return file.read_text()


@operation("Workspaces", "`Workspace.list`")
def list_all(world: World) -> Any:
    from azureml.core import Workspace

    ws = workspace(world)
    workspaces = Workspace.list(ws.subscription_id, resource_group=ws.resource_group)
    assert [entry.name for entry in workspaces["default"]] == ["default"], workspaces
    return list(workspaces)


@operation("Workspaces", "`Workspace.create`, with and without `exist_ok`")
def create(world: World) -> Any:
    from azureml.core import Workspace
    from azureml.exceptions import WorkspaceException

    ws = workspace(world)
    names = {"subscription_id": ws.subscription_id, "location": "eastus2"}
    same = Workspace.create(ws.name, resource_group=ws.resource_group, exist_ok=True, **names)
    assert same.name == ws.name, same.name
    made = Workspace.create(
        "v1-own", resource_group="v1-group", create_resource_group=True, show_output=False, **names
    )
    assert (made.resource_group, made.location) == ("v1-group", "eastus2"), made.location
    try:
        Workspace.create("v1-own", resource_group="v1-group", **names)
    except WorkspaceException as error:
        assert "already exists" in str(error), error
    else:
        raise AssertionError("it was created twice")
    return made.name


@operation("Workspaces", "`Workspace.get` of one that is not there", ERROR, "workspace not found")
def get_absent(world: World) -> Any:
    from azureml.core import Workspace

    ws = workspace(world)
    return Workspace.get(
        "no-such-place", subscription_id=ws.subscription_id, resource_group=ws.resource_group
    )


@operation("Workspaces", "`get_details`")
def details(world: World) -> Any:
    fields = workspace(world).get_details()
    keys = {"id", "name", "location", "type", "workspaceid", "storageAccount", "sku"}
    assert keys <= set(fields), fields
    return sorted(fields)


@operation("Workspaces", "`datastores`, `get_default_datastore`")
def datastores(world: World) -> Any:
    ws = workspace(world)
    assert ws.get_default_datastore().name == "workspaceblobstore"
    assert {"workspaceblobstore", "workspaceartifactstore"} <= set(ws.datastores)
    return sorted(ws.datastores)


@operation("Compute", "`ComputeTarget` of one that is not there: `ComputeTargetException`")
def absent_compute(world: World) -> Any:
    from azureml.core.compute import ComputeTarget
    from azureml.core.compute_target import ComputeTargetException

    try:
        ComputeTarget(workspace=workspace(world), name=CLUSTER)
    except ComputeTargetException as error:
        assert "ComputeTargetNotFound" in str(error), error
        return str(error)
    raise AssertionError("it is there")


@operation("Compute", "`AmlCompute.provisioning_configuration`, `ComputeTarget.create`, wait")
def create_compute(world: World) -> Any:
    from azureml.core.compute import AmlCompute, ComputeTarget

    config = AmlCompute.provisioning_configuration(vm_size="STANDARD_D2_V2", max_nodes=4)
    made = ComputeTarget.create(workspace(world), CLUSTER, config)
    made.wait_for_completion(show_output=True, min_node_count=None, timeout_in_minutes=20)
    assert made.provisioning_state == "Succeeded", made.provisioning_state
    again = ComputeTarget(workspace=workspace(world), name=CLUSTER)
    assert (again.type, again.vm_size.upper()) == ("AmlCompute", "STANDARD_D2_V2"), again.vm_size
    return again.name


@operation("Compute", "`get_status().serialize()`")
def compute_status(world: World) -> Any:
    status = workspace(world).compute_targets[CLUSTER].get_status().serialize()
    assert {
        "currentNodeCount",
        "targetNodeCount",
        "nodeStateCounts",
        "allocationState",
        "allocationStateTransitionTime",
        "creationTime",
        "errors",
        "modifiedTime",
        "provisioningState",
        "provisioningStateTransitionTime",
        "scaleSettings",
        "vmPriority",
        "vmSize",
    } <= set(status), status
    assert status["scaleSettings"]["maxNodeCount"] == 4, status
    return status


@operation("Compute", "`update`, `delete`")
def change_compute(world: World) -> Any:
    from azureml.core.compute import AmlCompute, ComputeTarget

    ws = workspace(world)
    config = AmlCompute.provisioning_configuration(vm_size="STANDARD_D2_V2", max_nodes=1)
    made = ComputeTarget.create(ws, "v1-short", config)
    made.wait_for_completion()
    made.update(max_nodes=2)
    made.wait_for_completion()
    assert made.get_status().scale_settings.maximum_node_count == 2
    made.delete()
    assert "v1-short" not in ws.compute_targets
    return True


@operation("Compute", "`ComputeTarget.list`, `ws.compute_targets`, `list_nodes`")
def list_compute(world: World) -> Any:
    from azureml.core.compute import ComputeTarget

    ws = workspace(world)
    listed = {target.name for target in ComputeTarget.list(ws)}
    assert CLUSTER in listed and listed == set(ws.compute_targets), listed
    nodes = ws.compute_targets[CLUSTER].list_nodes()
    assert all(node["nodeState"] for node in nodes), nodes
    return sorted(listed)


@operation("Compute", "`AmlCompute.supported_vmsizes`", how="of the server's machine")
def sizes(world: World) -> Any:
    from azureml.core.compute import AmlCompute

    names = {size["name"].lower() for size in AmlCompute.supported_vmsizes(workspace(world))}
    assert {"standard_nc6", "standard_d2_v2"} <= names, names
    return len(names)


@operation("Compute", "`wait_for_completion`: its time limit passes", how="it returns, and says so")
def wait_limited(world: World) -> Any:
    import io
    from contextlib import redirect_stdout

    made, output = workspace(world).compute_targets[CLUSTER], io.StringIO()
    with redirect_stdout(output):
        made.wait_for_completion(show_output=True, min_node_count=4, timeout_in_minutes=0.05)
    assert "Wait timeout has been reached" in output.getvalue(), output.getvalue()
    return output.getvalue()


@operation("Compute", "`ComputeTarget.create`: a size that is not there", ERROR, "standard_nope")
def unknown_size(world: World) -> Any:
    from azureml.core.compute import AmlCompute, ComputeTarget

    config = AmlCompute.provisioning_configuration(vm_size="STANDARD_NOPE", max_nodes=1)
    return ComputeTarget.create(workspace(world), "v1-sizeless", config).name


@operation("Compute", "`ComputeTarget.create`: `max_nodes=0`", ERROR, "from 1 to")
def no_nodes(world: World) -> Any:
    from azureml.core.compute import AmlCompute, ComputeTarget

    config = AmlCompute.provisioning_configuration(vm_size="STANDARD_D2_V2", max_nodes=0)
    return ComputeTarget.create(workspace(world), "v1-empty", config).name


@operation("Compute", "`ComputeTarget.create`: a name that is none", ERROR, "bad name!")
def bad_name(world: World) -> Any:
    from azureml.core.compute import AmlCompute, ComputeTarget

    config = AmlCompute.provisioning_configuration(vm_size="STANDARD_D2_V2", max_nodes=1)
    return ComputeTarget.create(workspace(world), "bad name!", config).name


@operation("Compute", "`ComputeInstance`: `create`, `stop`, `get_status`, `delete`")
def compute_instance(world: World) -> Any:
    from azureml.core.compute import ComputeInstance, ComputeTarget

    ws = workspace(world)
    config = ComputeInstance.provisioning_configuration(vm_size="STANDARD_D2_V2")
    made = ComputeTarget.create(ws, "v1-instance", config)
    assert "v1-instance" in [target.name for target in ComputeTarget.list(ws)]
    made.stop()
    status = made.get_status()
    assert status.state == "Stopped", status.serialize()
    made.delete()
    assert "v1-instance" not in [target.name for target in ComputeTarget.list(ws)]
    return made.name
