"""SDK v1's services together: what app.py mounts of them.

Owns: which services there are.
Leaves: each to its module.
"""

from collections.abc import Callable
from functools import partial

from fastapi import APIRouter

from torchyard.azureml.arm.computes import Computes
from torchyard.azureml.blob.links import Links
from torchyard.azureml.common.calls import Caller
from torchyard.azureml.sdk_v1 import (
    computes,
    datastores,
    environments,
    execution,
    hyperdrive,
    local_runs,
    metric_queries,
    metrics,
    models,
    secrets,
)
from torchyard.azureml.sdk_v1 import (
    datasets as v1_datasets,
)
from torchyard.azureml.sdk_v1 import (
    snapshots as v1_snapshots,
)
from torchyard.azureml.sdk_v1.datasets import Datasets
from torchyard.azureml.sdk_v1.snapshots import Snapshots
from torchyard.environments.requested_builds import Builds
from torchyard.jobs.services import Room


def services(room: Room, links: Links, builds: Builds) -> list[Callable[[Caller], APIRouter]]:
    """Makers of the routes of every service of SDK v1."""
    snapshots, datasets = Snapshots(room.blobs, room.datastores), Datasets(room)
    return [
        partial(computes.routes, Computes(room)),
        partial(environments.routes, room.environments, room.clock),
        partial(datastores.routes, room.db, room.clock, room.datastores, links),
        partial(v1_snapshots.routes, snapshots, links),
        partial(execution.routes, room, snapshots, datasets),
        partial(local_runs.routes, room, datasets, links, builds),
        partial(metrics.routes, room),
        partial(metric_queries.routes, room),
        hyperdrive.routes,
        secrets.routes,
        partial(models.routes, room),
        partial(v1_datasets.routes, datasets),
    ]
