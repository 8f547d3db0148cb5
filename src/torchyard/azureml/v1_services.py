"""SDK v1's services together: what app.py mounts of them.

Owns: which services there are.
Leaves: each to its module.
"""

from collections.abc import Callable
from functools import partial

from fastapi import APIRouter

from torchyard.azureml import (
    v1_computes,
    v1_datasets,
    v1_datastores,
    v1_environments,
    v1_execution,
    v1_hyperdrive,
    v1_local,
    v1_metric_queries,
    v1_metrics,
    v1_models,
    v1_secrets,
    v1_snapshots,
)
from torchyard.azureml.blob_links import Links
from torchyard.azureml.calls import Caller
from torchyard.azureml.computes import Computes
from torchyard.azureml.v1_datasets import Datasets
from torchyard.azureml.v1_snapshots import Snapshots
from torchyard.environments.builds import Builds
from torchyard.jobs.room import Room


def services(room: Room, links: Links, builds: Builds) -> list[Callable[[Caller], APIRouter]]:
    """Makers of the routes of every service of SDK v1."""
    snapshots, datasets = Snapshots(room.blobs, room.datastores), Datasets(room)
    return [
        partial(v1_computes.routes, Computes(room)),
        partial(v1_environments.routes, room.environments, room.clock),
        partial(v1_datastores.routes, room.db, room.clock, room.datastores, links),
        partial(v1_snapshots.routes, snapshots, links),
        partial(v1_execution.routes, room, snapshots, datasets),
        partial(v1_local.routes, room, datasets, links, builds),
        partial(v1_metrics.routes, room),
        partial(v1_metric_queries.routes, room),
        v1_hyperdrive.routes,
        v1_secrets.routes,
        partial(v1_models.routes, room),
        partial(v1_datasets.routes, datasets),
    ]
