"""What sizes promise, compared with what the machine has.

Owns: whether a size's node fits on the machine, notices when clusters promise more than it has.
Leaves: refusing jobs that need missing GPUs to jobs/admission/gpus.py.
Always: cores and memory may be promised more than once, with a notice, since clusters are
rehearsed on small machines; devices never are.
"""

from __future__ import annotations

from torchyard.compute.sizes import Size
from torchyard.compute.types import Compute
from torchyard.executors.machine import Machine

_GIB = 1 << 30


def fits(size: Size, machine: Machine) -> int:
    """How many nodes of a size fit on this machine without sharing anything."""
    counts = [machine.cores // size.cores, machine.memory_bytes // max(1, size.memory_bytes)]
    if size.gpus:
        counts.append(machine.most_together() // size.gpus)
    return min(counts)


def notices(compute: Compute, machine: Machine) -> list[str]:
    """What to tell somebody who creates a cluster about this machine."""
    if not compute.is_local:
        return []  # the engine knows its machines
    if compute.cores is None or compute.memory_bytes is None or compute.gpus is None:
        return []
    texts = []
    count = compute.max_instances
    cores, memory_bytes = count * compute.cores, count * compute.memory_bytes
    if cores > machine.cores or memory_bytes > machine.memory_bytes:
        texts.append(
            f"{count} x `{compute.size}` promise {cores} cores and "
            f"{memory_bytes / _GIB:.0f} GiB; this machine has {machine.cores} and "
            f"{machine.memory_bytes / _GIB:.0f} GiB, which the nodes share"
        )
    gpus, there = count * compute.gpus, machine.most_together()
    if gpus and not there:
        texts.append(
            f"`{compute.size}` has {compute.gpus} GPUs per node and this machine has none: jobs "
            "here can only be rehearsals (`--rehearse-on-cpu`)"
        )
    elif gpus > there:
        texts.append(
            f"{count} x `{compute.size}` need {gpus} GPUs; this machine has {there}, which are "
            f"never shared: {there // compute.gpus} of the nodes can run at once"
        )
    return texts
