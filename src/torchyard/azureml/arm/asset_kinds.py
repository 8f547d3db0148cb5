"""The kinds of assets that a workspace has, over one server's rooms."""

from __future__ import annotations

from typing import Any

from torchyard.azureml.arm import components, data, environments, models
from torchyard.azureml.arm.assets import Assets
from torchyard.azureml.blob.links import Links
from torchyard.azureml.common.calls import Call
from torchyard.data.codes import Places
from torchyard.jobs.files import data_sources
from torchyard.jobs.services import Services
from torchyard.models.types import FindSource


def assets_of(services: Services, find_model: FindSource, links: Links) -> list[Assets]:
    """Environments, data, models and components, to be mounted."""

    def resolve(workspace: str, type: str, path: str) -> str:
        return data_sources.pin(services, workspace, type, path).path

    def start(call: Call, name: str, version: str) -> dict[str, Any]:
        return links.pending_upload(call)

    of_blob, verbs = links.datastore_uri, {"startpendingupload": start}
    places = Places(services.db, services.clock, services.datastores, services.blobs)
    return [
        Assets(environments.Noun(services.environments, services.clock, places, of_blob), verbs),
        Assets(
            data.Noun(
                services.db, services.clock, services.datastores, services.blobs, resolve, of_blob
            ),
            verbs,
        ),
        Assets(
            models.Noun(services.db, services.clock, services.datastores, find_model, of_blob),
            verbs,
        ),
        Assets(components.Noun(services.db, services.clock, places)),
    ]
