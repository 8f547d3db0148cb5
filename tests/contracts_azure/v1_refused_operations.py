"""SDK v1: what torchyard does not have yet, refused in words."""

from __future__ import annotations

from typing import Any

from operations import REFUSED, World
from v1_run_operations import RANKS
from v1_world import CLUSTER, EXPERIMENT, operation, plain_environment, source, workspace


@operation("Sweeps", "`Experiment.submit`: HyperDriveConfig", REFUSED, "hyperdrive")
def hyperdrive(world: World) -> Any:
    from azureml.core import Experiment, ScriptRunConfig
    from azureml.train.hyperdrive import (
        HyperDriveConfig,
        PrimaryMetricGoal,
        RandomParameterSampling,
        choice,
    )

    config = HyperDriveConfig(
        run_config=ScriptRunConfig(
            source_directory=str(source(world, "ranks", RANKS)),
            script="train.py",
            compute_target=CLUSTER,
            environment=plain_environment(world),
        ),
        hyperparameter_sampling=RandomParameterSampling({"rate": choice(0.1, 0.2)}),
        primary_metric_name="loss",
        primary_metric_goal=PrimaryMetricGoal.MINIMIZE,
        max_total_runs=2,
    )
    return Experiment(workspace(world), EXPERIMENT).submit(config).id


@operation("Endpoints", "`Model.deploy`: a web service", REFUSED, "does not serve web services")
def deploy(world: World) -> Any:
    from azureml.core import Model
    from azureml.core.model import InferenceConfig
    from azureml.core.webservice import AciWebservice

    config = InferenceConfig(
        entry_script="train.py",
        source_directory=str(source(world, "ranks", RANKS)),
        environment=plain_environment(world),
    )
    ws = workspace(world)
    where = AciWebservice.deploy_configuration(cpu_cores=1, memory_gb=1)
    return Model.deploy(ws, "v1-service", [Model(ws, "v1-local")], config, where).name


@operation("Endpoints", "`ws.webservices`, `ws.images`: there are none", how="an empty list")
def webservices(world: World) -> Any:
    services = workspace(world).webservices
    assert len(services) == 0, services
    assert len(workspace(world).images) == 0
    return services


@operation("Endpoints", "`Model.package`", REFUSED, "does not serve web services")
def package(world: World) -> Any:
    from azureml.core import Model
    from azureml.core.model import InferenceConfig

    config = InferenceConfig(
        entry_script="train.py",
        source_directory=str(source(world, "ranks", RANKS)),
        environment=plain_environment(world),
    )
    ws = workspace(world)
    return Model.package(ws, [Model(ws, "v1-local")], config).location


@operation("Compute", "compute instances", REFUSED, "compute instances")
def instance(world: World) -> Any:
    from azureml.core.compute import ComputeInstance, ComputeTarget

    config = ComputeInstance.provisioning_configuration(vm_size="STANDARD_D2_V2")
    return ComputeTarget.create(workspace(world), "v1-instance", config).name


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
