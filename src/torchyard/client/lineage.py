"""Lineage over HTTP: where data and models come from, and what was made of them.

Owns: which request each kind is.
Leaves: what belongs to it to the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from torchyard.base.http import Transport
from torchyard.client import resources as read
from torchyard.client.resources import Json, Resource


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LineageNode(Resource):
    """A job, an asset, a deployment or a path.

    `kind` is `job`, `data`, `model`, `path`, `online-deployment` or `batch-deployment`; `status` is
    a job's, empty where it was deleted.
    """

    id: str
    kind: str
    name: str
    version: str
    status: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LineageEdge(Resource):
    """`source` and `target` are ids of nodes; `output` is what the job `source` calls what it
    hands on, `input` what the job `target` does.
    """

    source: str
    target: str
    output: str
    input: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Lineage(Resource):
    """`nodes` come after what they were made of; the farthest are left out unless it `is_whole`."""

    nodes: tuple[LineageNode, ...]
    edges: tuple[LineageEdge, ...]
    is_whole: bool


class Lineages:
    """What data, models and jobs were made of, and what was made of them.

    Example::

        for edge in client.lineage.model("digits", "3").edges:
            print(edge.source, "->", edge.target)
    """

    def __init__(self, transport: Transport, workspace_path: str) -> None:
        self._transport, self._path = transport, f"{workspace_path}/lineage"

    def job(self, name: str) -> Lineage:
        """Of a job; of a pipeline, that of its steps.

        Raises:
            NotFound: no such job.
        """
        return self._get("jobs", name)

    def data(self, name: str, version: str = "latest") -> Lineage:
        """
        Raises:
            NotFound: no such data asset or version.
        """
        return self._get("data", name, version)

    def model(self, name: str, version: str = "latest") -> Lineage:
        """
        Raises:
            NotFound: no such model or version.
        """
        return self._get("models", name, version)

    def _get(self, kind: str, name: str, version: str = "") -> Lineage:
        path = f"{self._path}/{kind}/{quote(name, safe='')}"
        if version:
            path += f"/versions/{quote(version, safe='')}"
        raw = self._transport.get(path)
        return Lineage(
            raw=raw,
            nodes=tuple(_node(row) for row in raw["nodes"]),
            edges=tuple(_edge(row) for row in raw["edges"]),
            is_whole=bool(raw["is_whole"]),
        )


def _node(raw: Json) -> LineageNode:
    fields = {name: read.text(raw, name) for name in ("id", "kind", "name", "version", "status")}
    return LineageNode(raw=raw, **fields)


def _edge(raw: Json) -> LineageEdge:
    fields = {name: read.text(raw, name) for name in ("source", "target", "output", "input")}
    return LineageEdge(raw=raw, **fields)
