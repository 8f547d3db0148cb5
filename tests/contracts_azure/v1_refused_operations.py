"""SDK v1: what torchyard does not have yet, refused in words."""

from __future__ import annotations

from typing import Any

from operations import REFUSED, World
from v1_run_operations import RANKS
from v1_world import CLUSTER, EXPERIMENT, operation, plain_environment, source, submit, workspace


@operation("Refused", "`Experiment.submit`: HyperDriveConfig", REFUSED, "hyperdrive")
def hyperdrive(world: World) -> Any:
    from azureml.core import Experiment, ScriptRunConfig
    from azureml.train.hyperdrive import (
        HyperDriveConfig,
        PrimaryMetricGoal,
        RandomParameterSampling,
        choice,
    )

    asked = HyperDriveConfig(
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
    return Experiment(workspace(world), EXPERIMENT).submit(asked).id


@operation("Refused", "`submit`: compute target `local`", REFUSED, "local")
def local(world: World) -> Any:
    return submit(world, "local", source(world, "ranks", RANKS), compute_target="local").id


@operation("Refused", "`Model.deploy`: a web service", REFUSED, "not served")
def deploy(world: World) -> Any:
    from azureml.core import Model
    from azureml.core.model import InferenceConfig
    from azureml.core.webservice import AciWebservice

    asked = InferenceConfig(
        entry_script="train.py",
        source_directory=str(source(world, "ranks", RANKS)),
        environment=plain_environment(world),
    )
    ws = workspace(world)
    where = AciWebservice.deploy_configuration(cpu_cores=1, memory_gb=1)
    return Model.deploy(ws, "v1-service", [Model(ws, "v1-local")], asked, where).name


@operation("Refused", "`ws.webservices`: there are none", how="an empty list")
def webservices(world: World) -> Any:
    found = workspace(world).webservices
    assert len(found) == 0, found
    return found
