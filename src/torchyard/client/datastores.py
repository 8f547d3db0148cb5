"""Datastores of the workspace, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from torchyard.base.errors import InvalidInput
from torchyard.base.http import Transport
from torchyard.client import resources as read
from torchyard.client.resources import Json, Listing, Resource


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Datastore(Resource):
    """A place where data lies. Its credentials never leave the server.

    Args:
        url: fsspec's URL of it.
        built_in: every workspace has it.
        is_default: jobs and uploads go there where nothing else is said.
    """

    _making: ClassVar[str] = (
        """write `client.datastores.create({"name": "nas", "type": "local", "path": "/mnt"})`"""
    )

    name: str
    type: str
    url: str
    description: str
    tags: Mapping[str, str]
    built_in: bool
    is_default: bool
    created_at: datetime | None

    _shown = ("name", "type", "url")


class Datastores:
    """Places where data lies: a folder, a bucket, a container.

    Example::

        client.datastores.create({"name": "nas", "type": "local", "path": "/mnt/nas/data"})
    """

    def __init__(self, transport: Transport, workspace_path: str) -> None:
        self._transport = transport
        self._path = f"{workspace_path}/datastores"

    def create(self, document: Mapping[str, Any], folder: Path | None = None) -> Datastore:
        """Create or change the datastore `document["name"]`; keys as in Azure ML's datastores.

        Args:
            folder: what the path of a local one is relative to; the current one when None.

        Raises:
            InvalidSpec: the document is wrong.
        """
        body = dict(document)
        name = body.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidInput("a datastore needs a name", "give one with `--name`", at=("name",))
        path = body.get("path")
        if str(body.get("type")).lower() == "local" and isinstance(path, str) and path:
            body["path"] = str((folder or Path.cwd()) / Path(path).expanduser())
        return _datastore(self._transport.put(self._datastore_path(name), body))

    def list(self) -> Listing[Datastore]:
        """All datastores of the workspace."""
        return Listing(_datastore(row) for row in self._transport.get(self._path)["value"])

    def get(self, name: str) -> Datastore:
        """One datastore.

        Raises:
            NotFound: the datastore does not exist.
        """
        return _datastore(self._transport.get(self._datastore_path(name)))

    def delete(self, name: str) -> None:
        """Forget the datastore; the files in it stay.

        Raises:
            NotFound: the datastore does not exist.
        """
        self._transport.delete(self._datastore_path(name))

    def _datastore_path(self, name: str) -> str:
        return f"{self._path}/{quote(name, safe='')}"


def _datastore(raw: Json) -> Datastore:
    return Datastore(
        raw=raw,
        name=raw["name"],
        type=read.text(raw, "type"),
        url=read.text(raw, "url"),
        description=read.text(raw, "description"),
        tags=read.mapping(raw, "tags"),
        built_in=bool(raw.get("built_in")),
        is_default=bool(raw.get("is_default")),
        created_at=read.optional_moment(raw, "created_at"),
    )
