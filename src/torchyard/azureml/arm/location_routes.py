"""What Azure shows of a location: the sizes that nodes can have, and how much of it is used.

Owns: the two routes.
Leaves: sizes to compute/sizes.py, the machine to executors/machine.py.
Always: every location is this server; the counts are those of its machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.azureml.common.paths import ABOVE, PROVIDER
from torchyard.azureml.common.routing import RouteTable
from torchyard.compute import actions as computes
from torchyard.compute import sizes
from torchyard.compute.sizes import Size
from torchyard.jobs.services import ServicesOf
from torchyard.workspaces.guarded_routes import Person, needs
from torchyard.workspaces.permissions import Permission

_GIB = 1 << 30

routes = RouteTable(
    f"{ABOVE}/subscriptions/{{subscription}}/providers/{PROVIDER.lower()}/locations/{{location}}"
)


@routes.get("/vmsizes")
@needs(Permission.SELF)
def list_sizes(
    identity: Person, services: ServicesOf, subscription: str, location: str
) -> dict[str, Any]:
    value = [_size(size) for size in sizes.all_sizes(services.home).values()]
    # SDK v1 reads the second.
    return {"value": value, "amlCompute": value}


@routes.get("/usages")
@needs(Permission.SELF)
def list_usages(
    identity: Person, services: ServicesOf, subscription: str, location: str
) -> dict[str, Any]:
    cores, gpus = computes.in_use(services.db)
    usages = {
        "cores": ("Cores that jobs hold", cores, services.devices.cores),
        "gpus": ("GPUs that jobs hold", gpus, services.devices.most_together()),
    }
    top = f"/subscriptions/{subscription}/providers/{PROVIDER}/locations/{location}/usages"
    return {
        "value": [_usage(f"{top}/{name}", location, name, *usage) for name, usage in usages.items()]
    }


def _size(size: Size) -> Mapping[str, Any]:
    return {
        "name": size.name,
        "family": "own" if size.custom else size.name.removeprefix("Standard_"),
        "vCPUs": size.cores,
        "gpus": size.gpus,
        "osVhdSizeMB": 0,
        "maxResourceVolumeMB": 0,
        "memoryGB": size.memory_bytes / _GIB,
        "lowPriorityCapable": True,
        "premiumIO": False,
        "supportedComputeTypes": ["AmlCompute"],
    }


def _usage(
    path: str, location: str, name: str, label: str, used: int, limit: int
) -> Mapping[str, Any]:
    return {
        "id": path,
        "amlWorkspaceLocation": location,
        "type": f"{PROVIDER}/usages",
        "unit": "Count",
        "currentValue": used,
        "limit": limit,
        "name": {"value": name, "localizedValue": label},
    }
