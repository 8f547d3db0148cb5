"""Datastores of the workspace, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from torchyard.base.errors import InvalidInput
from torchyard.base.http import Transport
from torchyard.client.responses import Record, Records, Rows


class Datastores:
    """Places where data lies: a folder, a bucket, a container.

    Example::

        client.datastores.create({"name": "nas", "type": "local", "path": "/mnt/nas/data"})
    """

    def __init__(self, transport: Transport, here: str) -> None:
        self._transport = transport
        self._here = f"{here}/datastores"

    def create(self, document: Mapping[str, Any], folder: Path | None = None) -> Record:
        """Create or change the datastore `document["name"]`; keys as in Azure ML's datastores.

        Args:
            folder: what the path of a local one is relative to; the current one when None.
        """
        asked = dict(document)
        name = asked.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidInput("a datastore needs a name", "give one with `--name`", at=("name",))
        path = asked.get("path")
        if str(asked.get("type")).lower() == "local" and isinstance(path, str) and path:
            asked["path"] = str((folder or Path.cwd()) / Path(path).expanduser())
        return Record(self._transport.put(self._of(name), asked))

    def list(self) -> Rows:
        return Records(Record(row) for row in self._transport.get(self._here)["value"])

    def get(self, name: str) -> Record:
        """The datastore without its credentials, which never leave the server."""
        return Record(self._transport.get(self._of(name)))

    def delete(self, name: str) -> None:
        """Forget the datastore; what lies in it stays."""
        self._transport.delete(self._of(name))

    def _of(self, name: str) -> str:
        return f"{self._here}/{quote(name, safe='')}"
