"""Compute instances of the workspace, over HTTP.

Owns: which request each verb is.
Leaves: clusters to computes.py.
Always: a verb is one request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from torchyard.base.errors import InvalidInput
from torchyard.base.http import Transport
from torchyard.client.resources import Json, Listing, Resource


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Instance(Resource):
    """A person's own JupyterLab. `state` is Starting, Running, Stopping, Stopped or CreateFailed;
    `message` says why, `job` runs it.
    """

    name: str
    state: str
    message: str
    owner: str
    job: str

    _shown = ("name", "state", "owner")


class Instances:
    """Compute instances of the workspace; `client.instances` is one."""

    def __init__(self, transport: Transport, workspace_path: str) -> None:
        self._transport = transport
        self._path = f"{workspace_path}/instances"

    def create(self, document: Mapping[str, Any]) -> Instance:
        """Create and start the instance `document["name"]`, or change it from its next start on;
        keys as in Azure ML's computeInstance.

        Raises:
            InvalidSpec: the document is wrong.

        Example::

            client.instances.create({"name": "ada-lab", "type": "computeinstance"})
        """
        name = document.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidInput("a compute needs a name", "give one with `--name`", at=("name",))
        return _instance(self._transport.put(self._at(name), dict(document)))

    def get(self, name: str) -> Instance:
        """
        Raises:
            NotFound: the instance does not exist.
        """
        return _instance(self._transport.get(self._at(name)))

    def list(self) -> Listing[Instance]:
        """The compute instances that you may see."""
        return Listing(_instance(row) for row in self._transport.get(self._path)["value"])

    def start(self, name: str) -> Instance:
        """Start it; one that runs stays as it is."""
        return self._do(name, "start")

    def stop(self, name: str) -> Instance:
        """Stop it: its files are stored, its node is free."""
        return self._do(name, "stop")

    def restart(self, name: str) -> Instance:
        """Stop it, and start it again once it has stopped."""
        return self._do(name, "restart")

    def delete(self, name: str) -> None:
        """Stop and remove it; the files that it stored stay in the datastore."""
        self._transport.delete(self._at(name))

    def link(self, name: str) -> str:
        """A link that opens its JupyterLab in a browser; good once, for a minute."""
        return str(self._transport.post(f"{self._at(name)}/link")["url"])

    def _do(self, name: str, verb: str) -> Instance:
        return _instance(self._transport.post(f"{self._at(name)}/{verb}"))

    def _at(self, name: str) -> str:
        return f"{self._path}/{quote(name, safe='')}"


def _instance(raw: Json) -> Instance:
    return Instance(
        raw=raw,
        name=raw["name"],
        state=raw["state"],
        message=raw["message"],
        owner=raw["owner"],
        job=raw["job"],
    )
