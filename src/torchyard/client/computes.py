"""Clusters of the workspace, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from torchyard.base.errors import InvalidInput
from torchyard.base.http import Transport
from torchyard.client.responses import Record, Records, Rows

# What a cluster's document may say; the server answers with much more.
_ASKED = (
    "name", "type", "engine", "size", "tier", "min_instances", "max_instances",
    "idle_time_before_scale_down", "description", "tags",
)  # fmt: skip


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
        found = self.get(name)
        asked = {key: found[key] for key in _ASKED if found.get(key) not in (None, "")}
        return Record(self._transport.put(self._of(name), {**asked, **changes}))

    def list(self) -> Rows:
        return Records(Record(row) for row in self._transport.get(self._here)["value"])

    def get(self, name: str) -> Record:
        return Record(self._transport.get(self._of(name)))

    def delete(self, name: str, force: bool = False) -> bool:
        """Delete a cluster; `force` cancels its jobs. Returns whether it is gone already: one
        that jobs still leave goes with the last of them.
        """
        said = self._transport.delete(self._of(name), {"force": "true"} if force else None)
        return bool((said or {}).get("gone", True))

    def nodes(self, name: str) -> Record:
        """Its nodes in `value`, with their jobs; in `waiting`, who waits for some, and why."""
        return Record(self._transport.get(f"{self._of(name)}/nodes"))

    def history(self, name: str) -> Record:
        """How many nodes there were, in `counts`; node-hours by day, in `usage`."""
        return Record(self._transport.get(f"{self._of(name)}/history"))

    def sizes(self) -> Record:
        """Every size of a node, in `value`, and what the server's machine has, in `machine`."""
        return Record(self._transport.get(f"{self._here.removesuffix('s')}-sizes"))

    def _of(self, name: str) -> str:
        return f"{self._here}/{quote(name, safe='')}"
