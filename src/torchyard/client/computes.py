"""Clusters of the workspace, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from torchyard.answers import Record, Records, Rows
from torchyard.base.errors import InvalidInput
from torchyard.base.http import Transport

# What the server says of a cluster and is not asked for in its document.
_SAID = {
    "provisioning_state", "current_node_count", "created_at", "owner", "id", "nodes", "workspace",
}  # fmt: skip


class Computes:
    """Clusters of the workspace."""

    def __init__(self, transport: Transport, here: str) -> None:
        self._transport = transport
        self._here = f"{here}/computes"

    def create(self, document: Mapping[str, Any]) -> Record:
        """Create or change the cluster `document["name"]`; keys as in Azure ML's amlCompute.

        Example::

            client.computes.create({"name": "cpu", "type": "amlcompute", "max_instances": 4})
        """
        name = document.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidInput("a compute needs a name", "give one with `--name`", at=("name",))
        return Record(self._transport.put(self._of(name), dict(document)))

    def update(self, name: str, changes: Mapping[str, Any]) -> Record:
        """Change some keys of a cluster, and leave the others as they are."""
        found = {key: value for key, value in self.get(name).items() if key not in _SAID}
        asked = {key: value for key, value in found.items() if value not in (None, "")}
        return Record(self._transport.put(self._of(name), {**asked, **changes}))

    def list(self) -> Rows:
        return Records(Record(row) for row in self._transport.get(self._here)["value"])

    def get(self, name: str) -> Record:
        return Record(self._transport.get(self._of(name)))

    def delete(self, name: str) -> None:
        self._transport.delete(self._of(name))

    def _of(self, name: str) -> str:
        return f"{self._here}/{quote(name, safe='')}"
