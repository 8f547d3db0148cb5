"""What torchyard does not have yet: refused in words, and nothing is left of it."""

from __future__ import annotations

from typing import Any

from job_operations import ENVIRONMENT, command_job
from operations import REFUSED, World, operation


@operation("Sweeps", "`jobs.create_or_update`: sweep", REFUSED, "sweep")
def sweep(world: World) -> Any:
    from azure.ai.ml.sweep import Choice

    job = command_job(world, "trial", command="echo ${{inputs.rate}}", inputs={"rate": 0.1})
    made = job(rate=Choice([0.1, 0.2])).sweep(
        primary_metric="loss", goal="minimize", sampling_algorithm="random"
    )
    made.name = world.name("sweep")
    made.set_limits(max_total_trials=2)
    return world.ml.jobs.create_or_update(made).name


def _steps(world: World) -> Any:
    from azure.ai.ml import command, dsl

    step = command(name="step", command="echo step", environment=ENVIRONMENT)

    def steps() -> None:
        step()

    return dsl.pipeline(default_compute=world.name("nodes"))(steps)()


@operation("Pipelines", "`jobs.create_or_update`: pipeline", REFUSED, "pipeline")
def pipeline(world: World) -> Any:
    return world.ml.jobs.create_or_update(_steps(world), experiment_name="contract").name


@operation("Endpoints", "`online_endpoints.list`", REFUSED, "online endpoints")
def online_endpoints(world: World) -> Any:
    return [endpoint.name for endpoint in world.ml.online_endpoints.list()]


@operation("Endpoints", "`online_endpoints.begin_create_or_update`", REFUSED, "online endpoints")
def online_endpoint(world: World) -> Any:
    from azure.ai.ml.entities import ManagedOnlineEndpoint

    made = ManagedOnlineEndpoint(name=world.name("endpoint"), auth_mode="key")
    return world.ml.online_endpoints.begin_create_or_update(made).result().name


@operation("Endpoints", "`batch_endpoints.list`", REFUSED, "batch endpoints")
def batch_endpoints(world: World) -> Any:
    return [endpoint.name for endpoint in world.ml.batch_endpoints.list()]


@operation("Schedules", "`schedules.list`", REFUSED, "schedules")
def schedules(world: World) -> Any:
    return [entity.name for entity in world.ml.schedules.list()]


@operation("Schedules", "`schedules.begin_create_or_update`", REFUSED, "schedules")
def schedule(world: World) -> Any:
    from azure.ai.ml.entities import JobSchedule, RecurrenceTrigger

    made = JobSchedule(
        name=world.name("schedule"),
        trigger=RecurrenceTrigger(frequency="day", interval=1),
        create_job=_steps(world),
    )
    return world.ml.schedules.begin_create_or_update(made).result().name


@operation("Connections", "`connections.list`", REFUSED, "connections")
def connections(world: World) -> Any:
    return [connection.name for connection in world.ml.connections.list()]
