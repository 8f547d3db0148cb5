"""What Azure tells of a place: the sizes that nodes can have, and how much of it is used.

Owns: the two routes.
Leaves: sizes to compute/sizes.py, the machine to executors/machine.py.
Always: every location is this server; what is counted is what this machine has.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends

from torchyard.azureml.common.calls import Authenticate
from torchyard.azureml.common.errors import AzureRoute
from torchyard.azureml.common.paths import ABOVE, PROVIDER
from torchyard.compute import actions as computes
from torchyard.compute import sizes
from torchyard.compute.sizes import Size
from torchyard.jobs.services import Services
from torchyard.workspaces.types import Identity

_GIB = 1 << 30
_IN = "/subscriptions/{subscription}/providers"
_TOP = f"{ABOVE}{_IN}/{PROVIDER.lower()}/locations/{{location}}"


def router(services: Services, authenticate: Authenticate) -> APIRouter:
    routes = APIRouter(prefix=_TOP, route_class=AzureRoute, include_in_schema=False)
    person = Annotated[Identity, Depends(authenticate)]

    @routes.get("/vmsizes")
    def vm_sizes(identity: person, subscription: str, location: str) -> dict[str, Any]:
        known = [_size(one) for one in sizes.known(services.home).values()]
        # SDK v1 reads the second.
        return {"value": known, "amlCompute": known}

    @routes.get("/usages")
    def usages(identity: person, subscription: str, location: str) -> dict[str, Any]:
        cores, gpus = computes.in_use(services.db)
        there = {
            "cores": ("Cores that jobs hold", cores, services.devices.cores),
            "gpus": ("GPUs that jobs hold", gpus, services.devices.most_together()),
        }
        top = f"/subscriptions/{subscription}/providers/{PROVIDER}/locations/{location}/usages"
        return {
            "value": [
                _usage(f"{top}/{name}", location, name, *counts) for name, counts in there.items()
            ]
        }

    return routes


def _size(size: Size) -> Mapping[str, Any]:
    return {
        "name": size.name,
        "family": "own" if size.own else size.name.removeprefix("Standard_"),
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
    path: str, location: str, name: str, words: str, used: int, limit: int
) -> Mapping[str, Any]:
    return {
        "id": path,
        "amlWorkspaceLocation": location,
        "type": f"{PROVIDER}/usages",
        "unit": "Count",
        "currentValue": used,
        "limit": limit,
        "name": {"value": name, "localizedValue": words},
    }
