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
from torchyard.environments.requested_builds import RequestedBuilds
from torchyard.jobs.services import Services


def services(
    services: Services, links: Links, builds: RequestedBuilds
) -> list[Callable[[Caller], APIRouter]]:
    """Makers of the routes of every service of SDK v1."""
    snapshots, datasets = Snapshots(services.blobs, services.datastores), Datasets(services)
    return [
        partial(computes.routes, Computes(services)),
        partial(environments.routes, services.environments, services.clock),
        partial(datastores.routes, services.db, services.clock, services.datastores, links),
        partial(v1_snapshots.routes, snapshots, links),
        partial(execution.routes, services, snapshots, datasets),
        partial(local_runs.routes, services, datasets, links, builds),
        partial(metrics.routes, services),
        partial(metric_queries.routes, services),
        hyperdrive.routes,
        secrets.routes,
        partial(models.routes, services),
        partial(v1_datasets.routes, datasets),
    ]
