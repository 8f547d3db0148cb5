"""The types of resource that Azure Resource Manager serves for a workspace.

Owns: the table of types, and making the adapter of each.
Leaves: their routes to resources.py, what a type does to its adapter.
Always: a type is one line of the table.
"""

from __future__ import annotations

from functools import partial

from torchyard.azureml.arm.assets import AssetKind, AssetResources
from torchyard.azureml.arm.codes import Codes
from torchyard.azureml.arm.components import ComponentAssets
from torchyard.azureml.arm.computes import Computes
from torchyard.azureml.arm.connections import Connections
from torchyard.azureml.arm.data import DataAssets
from torchyard.azureml.arm.datastores import DatastoreKind
from torchyard.azureml.arm.environments import EnvironmentAssets
from torchyard.azureml.arm.jobs import Jobs
from torchyard.azureml.arm.models import ModelAssets
from torchyard.azureml.arm.resources import ResourceType, VersionedResourceType
from torchyard.azureml.blob.links import links_of
from torchyard.azureml.common.calls import Call
from torchyard.azureml.common.context import AzureContext
from torchyard.batch_endpoints.actions import model_uses
from torchyard.data.codes import Places
from torchyard.jobs.files import data_sources


def computes(context: AzureContext) -> Computes:
    return Computes(context.services)


def datastores(context: AzureContext) -> DatastoreKind:
    services = context.services
    return DatastoreKind(services.db, services.clock, services.datastores, links_of(context))


def connections(context: AzureContext) -> Connections:
    return Connections(context.services.db, context.services.clock)


def jobs(context: AzureContext) -> Jobs:
    return Jobs(context.services, codes(context).snapshot)


def codes(context: AzureContext) -> Codes:
    links = links_of(context)
    return Codes(_places(context), links.pending_upload, links.datastore_uri)


def environments(context: AzureContext) -> AssetResources:
    services, datastore_uri = context.services, links_of(context).datastore_uri
    kind = EnvironmentAssets(services.environments, services.clock, _places(context), datastore_uri)
    return _with_uploads(context, kind)


def data(context: AzureContext) -> AssetResources:
    services = context.services
    kind = DataAssets(
        services.db,
        services.clock,
        services.datastores,
        services.blobs,
        partial(data_sources.asset_uri, services),
        links_of(context).datastore_uri,
    )
    return _with_uploads(context, kind)


def models(context: AzureContext) -> AssetResources:
    services, datastore_uri = context.services, links_of(context).datastore_uri
    kind = ModelAssets(
        services.db,
        services.clock,
        services.datastores,
        context.find_model,
        datastore_uri,
        partial(model_uses.refuse_deployed, services.db),
    )
    return _with_uploads(context, kind)


def components(context: AzureContext) -> AssetResources:
    services = context.services
    return AssetResources(ComponentAssets(services.db, services.clock, _places(context)))


RESOURCE_TYPES = (
    ResourceType("datastores", DatastoreKind.permissions, datastores),
    ResourceType("computes", Computes.permissions, computes),
    ResourceType("connections", Connections.permissions, connections),
    ResourceType("jobs", Jobs.permissions, jobs),
    VersionedResourceType("environments", EnvironmentAssets.permissions, environments),
    VersionedResourceType("data", DataAssets.permissions, data),
    VersionedResourceType("models", ModelAssets.permissions, models),
    VersionedResourceType("components", ComponentAssets.permissions, components),
    VersionedResourceType("codes", Codes.permissions, codes),
)


def _places(context: AzureContext) -> Places:
    services = context.services
    return Places(services.db, services.clock, services.datastores, services.blobs)


def _with_uploads(context: AzureContext, kind: AssetKind) -> AssetResources:
    links = links_of(context)

    def start(call: Call, name: str, version: str) -> object:
        return links.pending_upload(call)

    return AssetResources(kind, {"startpendingupload": start})
