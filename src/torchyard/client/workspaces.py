"""Workspaces of the server, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from torchyard.base.http import Transport
from torchyard.client.responses import Record, Records, Rows


class Workspaces:
    """Workspaces of the server, and their maps of URLs.

    Example::

        client.workspaces.create({"name": "vision"})
        client = Client("vision")
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, document: Mapping[str, Any]) -> Record:
        """Create the workspace `document["name"]`, with a compute and datastores of its own.

        Raises:
            Conflict: there is one of this name.
        """
        return Record(self._transport.post("/v1/workspaces", dict(document)))

    def list(self) -> Rows:
        answer = self._transport.get("/v1/workspaces")
        return Records(Record(row) for row in answer["value"])

    def get(self, name: str) -> Record:
        return Record(self._transport.get(_of(name)))

    def update(self, name: str, changes: Mapping[str, Any]) -> Record:
        """Change `description`, `rehearse_on_cpu` (whether jobs are rehearsed on the CPU unless
        they say otherwise), `allow_substitutes` (whether torchyard's own may take the place of
        published environments; owners only, and None leaves it to the server) or
        `retention_days`: jobs that ended longer ago are deleted, and 0 keeps them for ever.
        """
        return Record(self._transport.call("PATCH", _of(name), dict(changes)))

    def url_maps(self, name: str) -> Rows:
        """Which URLs are read from a datastore instead: `prefix`, `target`."""
        answer = self._transport.get(f"{_of(name)}/url-maps")
        return Records(Record(row) for row in answer["value"])

    def map_url(self, name: str, prefix: str, target: str) -> Record:
        """Read URLs that begin with `prefix` from `target`, `azureml://datastores/…`."""
        asked = {"prefix": prefix, "target": target}
        return Record(self._transport.put(f"{_of(name)}/url-maps", asked) or asked)

    def unmap_url(self, name: str, prefix: str) -> None:
        self._transport.delete(f"{_of(name)}/url-maps", {"prefix": prefix})


def _of(name: str) -> str:
    return f"/v1/workspaces/{quote(name, safe='')}"
