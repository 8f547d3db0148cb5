"""Decide how many of the machine's GPUs a job gets, and whether they are free.

Owns: the count for each node, refusing impossible requests, why a job waits for devices.
Leaves: which devices, and their locks, to executors/; rehearsals to spec/rehearsal.py.
Always: on a cluster of a size a node has what the size says; on one without, as `local`, a node
has one GPU for each process, as far as the machine has them, or what the job asks for by name;
which ones, another engine decides.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from torchyard.base.errors import InvalidSpec
from torchyard.compute import actions as computes
from torchyard.compute.types import Compute
from torchyard.executors.machine import Machine
from torchyard.jobs.records.types import Job
from torchyard.jobs.spec import own_properties, rehearsal
from torchyard.shared.plurals import plural

PROPERTY = f"{own_properties.PREFIX}gpus"
_MOST = 4096


def per_node(
    machine: Machine,
    compute: Compute,
    node_count: int,
    processes_per_node: int,
    properties: Mapping[str, str],
    rehearsed: bool,
    engine_gpus: int = 0,
) -> int:
    """How many devices each node of a job gets.

    Args:
        engine_gpus: of one machine of the cluster's engine, where that is not the local one.

    Raises:
        InvalidSpec: the job's property is not a number, or contradicts the size.
    """
    is_requested = PROPERTY in properties
    count = own_properties.count(properties, PROPERTY, 0, 0, _MOST)
    if rehearsed:
        return 0
    if compute.gpus is not None:
        if is_requested and count != compute.gpus:
            raise InvalidSpec(
                f"`{PROPERTY}` is {count}, and a node of `{compute.name}` has {compute.gpus}: "
                f"its size is `{compute.size}`",
                "remove the property, or use a cluster without a size, such as `local`",
                at=("properties", PROPERTY),
            )
        return compute.gpus
    if is_requested:
        return count
    if not compute.is_local:
        return min(processes_per_node, engine_gpus)
    return min(processes_per_node, machine.most_together() // node_count)


def check(
    machine: Machine,
    compute: Compute,
    node_count: int,
    processes_per_node: int,
    properties: Mapping[str, str],
    rehearsed: bool,
) -> list[str]:
    """Refuse a job that this machine can never run; return notices about one that it can.

    Raises:
        InvalidSpec: it needs more GPUs than there are.
    """
    each = per_node(machine, compute, node_count, processes_per_node, properties, rehearsed)
    if not compute.is_local:
        return []  # its engine knows what its machines have
    there = machine.most_together() if each or compute.gpus is None else 0
    if each * node_count > there:
        raise InvalidSpec(
            f"the job needs {_gpus(each * node_count)}: {node_count} x {each} of "
            f"`{compute.name}`{_of_size(compute)}; this machine has {there or 'none'}",
            _hint(compute, there),
            code="no_gpu" if not there else "too_many_gpus",
            at=("compute",) if PROPERTY not in properties else ("properties", PROPERTY),
        )
    is_dealt = compute.gpus is None and PROPERTY not in properties and not rehearsed
    if is_dealt and 0 < there and each < processes_per_node:
        return [
            f"{node_count} x {processes_per_node} processes share {_gpus(there)} of this "
            f"machine: each node gets {each}"
        ]
    return []


def of_job(devices: Machine, compute: Compute, job: Job) -> int:
    """How many devices each node of a job gets that was accepted."""
    if not compute.is_local:
        return job.gpus
    return per_node(
        devices,
        compute,
        job.node_count,
        job.processes_per_node,
        job.properties,
        rehearsal.is_rehearsed(job.properties),
    )


def waiting_reason(devices: Machine, connection: Connection, job: Job) -> str:
    """Why the devices for a job are not free now, in one sentence; empty when they are."""
    if not devices.whole_devices:
        return ""
    compute = computes.find(connection, job.workspace, job.compute)
    is_here = compute is not None and compute.is_local
    count = of_job(devices, compute, job) * job.node_count if compute and is_here else 0
    if not count:
        return ""
    free = len(devices.free())
    if count <= free:
        return ""
    there = len(devices.whole_devices)
    return (
        f"needs {_gpus(count)}; {there - free} of {there} of this machine are in use{_by(devices)}"
    )


def _by(devices: Machine) -> str:
    """Who holds them, as far as known."""
    holders = sorted({holder for holder in devices.holders().values() if holder})
    return f" by {', '.join(holders)}" if holders else ""


def _of_size(compute: Compute) -> str:
    return f", of size `{compute.size}`" if compute.size else ""


def _hint(compute: Compute, there: int) -> str:
    if there:
        return f"use fewer nodes, or a size with fewer GPUs: at most {there} in all"
    return (
        "try it on the CPU: `yard job create … --rehearse-on-cpu`; or use a CPU size: "
        f"`yard compute create -n {compute.name} --size Standard_D2_v2`"
    )


def _gpus(count: int) -> str:
    return f"{count} {plural('GPU', count)}"
