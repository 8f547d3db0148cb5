"""SDK v1: what torchyard does not have yet, refused in words."""

from __future__ import annotations

from typing import Any

from operations import REFUSED, World
from v1_world import EXPERIMENT, operation, workspace


@operation("Compute", "`AksCompute`", REFUSED, "kubernetes")
def kubernetes(world: World) -> Any:
    from azureml.core.compute import AksCompute, ComputeTarget

    config = AksCompute.provisioning_configuration()
    return ComputeTarget.create(workspace(world), "v1-aks", config).name


@operation("Compute", "`ComputeTarget.attach`: Databricks, virtual machines", REFUSED, "databricks")
def attach(world: World) -> Any:
    from azureml.core.compute import ComputeTarget, DatabricksCompute, RemoteCompute
    from azureml.exceptions import ComputeTargetException

    ws = workspace(world)
    machine = RemoteCompute.attach_configuration(
        resource_id="/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/"
        "virtualMachines/m",
        ssh_port=22,
        username="u",
        password="p",
    )
    try:
        ComputeTarget.attach(ws, "v1-machine", machine)
    except ComputeTargetException as error:
        assert "virtual machines" in str(error), error
    else:
        raise AssertionError("it was attached")
    config = DatabricksCompute.attach_configuration("g", "w", access_token="t")
    return ComputeTarget.attach(ws, "v1-bricks", config).name


@operation("Connections", "`Keyvault`, `run.get_secret`", REFUSED, "no key vault")
def secrets(world: World) -> Any:
    return workspace(world).get_default_keyvault().set_secret("a", "b")


@operation("Connections", "`ws.linked_services`", REFUSED, "linked services")
def linked_services(world: World) -> Any:
    return workspace(world).linked_services


@operation("Data", "`Datastore.register_azure_data_lake_gen2` and other kinds", REFUSED, "datalake")
def other_stores(world: World) -> Any:
    from azureml.core import Datastore

    none = "00000000-0000-0000-0000-000000000000"
    login = {"tenant_id": none, "client_id": none, "client_secret": "s"}
    return Datastore.register_azure_data_lake_gen2(
        workspace(world), "v1lake", filesystem="f", account_name="acc", **login
    ).name


@operation("Jobs", "`Experiment.delete`", REFUSED, "archive")
def delete_experiment(world: World) -> Any:
    from azureml.core import Experiment

    ws = workspace(world)
    return Experiment.delete(ws, ws.experiments[EXPERIMENT].id)
