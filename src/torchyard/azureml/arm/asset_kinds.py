"""The kinds of assets that a workspace has, over one server's rooms."""

from __future__ import annotations

from typing import Any

from torchyard.azureml.arm import components, data, environments, models
from torchyard.azureml.arm.assets import Assets
from torchyard.azureml.blob.links import Links
from torchyard.azureml.common.calls import Call
from torchyard.data.codes import Places
from torchyard.jobs.files import data_sources
from torchyard.jobs.services import Room
from torchyard.models.types import FindSource


def assets_of(room: Room, find_model: FindSource, links: Links) -> list[Assets]:
    """Environments, data, models and components, to be mounted."""

    def resolve(workspace: str, type: str, path: str) -> str:
        return data_sources.pin(room, workspace, type, path).path

    def start(call: Call, name: str, version: str) -> dict[str, Any]:
        return links.pending_upload(call)

    of_blob, verbs = links.datastore_uri, {"startpendingupload": start}
    places = Places(room.db, room.clock, room.datastores, room.blobs)
    return [
        Assets(environments.Noun(room.environments, room.clock, places, of_blob), verbs),
        Assets(
            data.Noun(room.db, room.clock, room.datastores, room.blobs, resolve, of_blob), verbs
        ),
        Assets(models.Noun(room.db, room.clock, room.datastores, find_model, of_blob), verbs),
        Assets(components.Noun(room.db, room.clock, places)),
    ]
