"""Compute."""

from __future__ import annotations

from typing import Any

from operations import ERROR, REFUSED, World, operation


def _cluster(world: World, word: str = "cluster", **options: Any) -> Any:
    from azure.ai.ml.entities import AmlCompute

    options = {"size": "STANDARD_DS3_v2", "max_instances": 2, **options}
    made = AmlCompute(name=world.name(word), **options)
    return world.ml.compute.begin_create_or_update(made).result()


@operation("Compute", "`compute.begin_create_or_update`: cluster")
def cluster(world: World) -> Any:
    made = _cluster(world, tier="low_priority", idle_time_before_scale_down=300, tags={"a": "b"})
    assert (made.name, made.type, made.size) == (
        world.name("cluster"),
        "amlcompute",
        "STANDARD_DS3_v2",
    )
    assert (made.min_instances, made.max_instances, made.tier) == (0, 2, "low_priority")
    assert (made.idle_time_before_scale_down, made.provisioning_state) == (300, "Succeeded")
    return made.id


@operation("Compute", "`compute.get`, `list`, `begin_update`, `list_nodes`")
def cluster_update(world: World) -> Any:
    compute = world.ml.compute.get(world.name("CLUSTER"))
    compute.max_instances, compute.idle_time_before_scale_down = 3, 60
    changed = world.ml.compute.begin_update(compute).result()
    assert (changed.max_instances, changed.idle_time_before_scale_down) == (3, 60)
    names = [compute.name for compute in world.ml.compute.list()]
    assert {"local", world.name("cluster")} <= set(names), names
    return list(world.ml.compute.list_nodes(world.name("cluster")))


@operation("Compute", "`compute.begin_delete`")
def cluster_delete(world: World) -> Any:
    world.ml.compute.begin_delete(world.name("cluster")).result()
    assert world.name("cluster") not in [compute.name for compute in world.ml.compute.list()]


@operation("Compute", "`compute.list_sizes`, `list_usage`", how="of the server's machine")
def sizes(world: World) -> Any:
    sizes_by_name = {size.name: size for size in world.ml.compute.list_sizes()}
    assert sizes_by_name["Standard_NC6s_v3"].gpus == 1
    return [
        (usage.name, usage.current_value, usage.limit) for usage in world.ml.compute.list_usage()
    ]


@operation("Compute", "`compute.begin_create_or_update`: unknown size", ERROR, "did you mean")
def unknown_size(world: World) -> Any:
    return _cluster(world, "odd", size="STANDARD_DS3_v22").id


@operation("Compute", "`compute.begin_create_or_update`: managed identity", REFUSED, "identity")
def identity(world: World) -> Any:
    from azure.ai.ml.entities import IdentityConfiguration

    return _cluster(world, "odd", identity=IdentityConfiguration(type="SystemAssigned")).id


@operation("Compute", "`ComputeInstance`: create, `begin_stop`, `begin_start`, `begin_restart`")
def instance(world: World) -> Any:
    from azure.ai.ml.entities import (
        ComputeInstance,
        ComputeSchedules,
        ComputeStartStopSchedule,
        CronTrigger,
    )

    name = world.name("instance")
    stop_at_night = ComputeStartStopSchedule(
        trigger=CronTrigger(expression="0 22 * * *"), action="stop"
    )
    made = ComputeInstance(
        name=name,
        size="STANDARD_DS3_v2",
        idle_time_before_shutdown_minutes=30,
        schedules=ComputeSchedules(compute_start_stop=[stop_at_night]),
    )
    created = world.ml.compute.begin_create_or_update(made).result()
    assert created.type == "computeinstance" and created.size == "STANDARD_DS3_v2"
    world.ml.compute.begin_stop(name).result()
    shown = world.ml.compute.get(name)
    assert shown.state in ("Stopping", "Stopped"), shown.state
    assert shown.idle_time_before_shutdown_minutes == 30
    world.ml.compute.begin_restart(name).result()
    assert name in [compute.name for compute in world.ml.compute.list()]
    world.ml.compute.begin_delete(name).result()
    return shown.state


@operation("Compute", "`ComputeInstance`: setup scripts", REFUSED, "setup_scripts")
def instance_scripts(world: World) -> Any:
    from azure.ai.ml.entities import ComputeInstance, ScriptReference, SetupScripts

    scripts = SetupScripts(creation_script=ScriptReference(path="Users/a/setup.sh"))
    made = ComputeInstance(name=world.name("scripts"), setup_scripts=scripts)
    return world.ml.compute.begin_create_or_update(made).result().id


@operation(
    "Compute", "`compute.begin_attach`: Kubernetes, attached machines", REFUSED, "Kubernetes"
)
def attached(world: World) -> Any:
    from azure.ai.ml.entities import KubernetesCompute

    cluster = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Kubernetes/connectedClusters/c"
    made = KubernetesCompute(name=world.name("attached"), namespace="n", resource_id=cluster)
    return world.ml.compute.begin_attach(made).result().id


@operation("Compute", "`compute.begin_start`", REFUSED, "neither started nor stopped")
def start(world: World) -> Any:
    return world.ml.compute.begin_start("local").result()
