"""What torchyard does not have yet: refused in words, and nothing is left of it."""

from __future__ import annotations

from typing import Any

from job_operations import ENVIRONMENT
from operations import REFUSED, World, operation


def _steps(world: World) -> Any:
    from azure.ai.ml import command, dsl

    step = command(name="step", command="echo step", environment=ENVIRONMENT)

    def steps() -> None:
        step()

    return dsl.pipeline(default_compute=world.name("nodes"))(steps)()


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
