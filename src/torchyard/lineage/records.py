"""What the records of a workspace say of where things came from.

Owns: reading what jobs took and made, what assets were registered from, what deployments serve.
Leaves: which of it belongs to a node to graph.py.
Always: a path is what was made there: a job's output, a model, a data asset, else itself. Trials
of a sweep are their sweep; a pipeline is its steps.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.base import refs
from torchyard.base.errors import TorchyardError
from torchyard.batch_endpoints.actions.deployments import BATCH_DEPLOYMENTS
from torchyard.data import assets, uris
from torchyard.data.datastores import BLOB_STORE
from torchyard.data.types import MODEL_TYPES, DataAsset
from torchyard.endpoints.actions.deployment_kind import DeploymentKind
from torchyard.endpoints.actions.deployments import ONLINE_DEPLOYMENTS
from torchyard.jobs.files import outputs
from torchyard.jobs.requests import data_flow
from torchyard.jobs.services import RecordServices
from torchyard.jobs.spec.inputs import Output
from torchyard.lineage.graph import DATA, JOB, MODEL, PATH, Edge, Node
from torchyard.models import registry
from torchyard.models.types import Model
from torchyard.pipelines import actions as pipelines
from torchyard.sweeps import actions as sweeps

_URL_USER = re.compile(r"(?<=://)[^/@]*@")
_DEPLOYMENTS: tuple[DeploymentKind[Any, Any], ...] = (ONLINE_DEPLOYMENTS, BATCH_DEPLOYMENTS)


@dataclass(frozen=True)
class _Made:
    """What lies at a place. `since` is the id of the job that made it, 0 for an asset."""

    node: Node
    output: str = ""
    since: int = 0


class Records:
    """The records of one workspace at one moment."""

    def __init__(self, services: RecordServices, workspace: str) -> None:
        self._workspace = workspace
        db = services.db
        self._data = assets.list_versions(db, workspace)
        self._models = registry.all_versions(db, workspace, archived=True)
        with db.read() as connection:
            self._jobs = data_flow.of_jobs(connection, workspace)
            self._deployments = [
                (Node(f"{kind.endpoints.word}-deployment", f"{each.endpoint}/{each.name}"), file)
                for kind in _DEPLOYMENTS
                for each in kind.rows.list_in(connection, workspace)
                for file in kind.files_in_use(each)
            ]
        self._sweeps = {row.name for row in self._jobs if row.type == sweeps.TYPE}
        self._trials = {row.name: row.parent for row in self._jobs if row.parent in self._sweeps}
        self._places = self._find_places()

    def job(self, name: str) -> Node:
        return Node(JOB, self._trials.get(name, name))

    def edges(self) -> Iterator[Edge]:
        for row in self._jobs:
            if row.type == pipelines.TYPE or row.name in self._trials:
                continue
            target = Node(JOB, row.name)
            for name, value in _mappings(row.inputs):
                made = self._taken(value, row.id)
                if made is not None and made.node != target:
                    yield Edge(made.node, target, made.output, name)
        for asset in self._data:
            yield from self._registered(data_node(asset), asset.uri, asset.job)
        for model in self._models:
            yield from self._registered(model_node(model), model.source, model.job)
        for node, file in self._deployments:
            served = file.get("model")
            if isinstance(served, Mapping) and served.get("name"):
                yield Edge(Node(MODEL, str(served["name"]), str(served.get("version") or "")), node)

    def _registered(self, target: Node, path: str, job: str) -> Iterator[Edge]:
        made = self._made_at(path, apart_from=target)
        if made is not None and made.node.kind == JOB:
            yield Edge(made.node, target, made.output)
        elif job:
            yield Edge(self.job(job), target)
        elif made is not None and made.node.kind != PATH:
            yield Edge(made.node, target)

    def _find_places(self) -> dict[tuple[str, str], list[_Made]]:
        """What lies where, by datastore and path; of one place, first what was made last."""
        places: dict[tuple[str, str], list[_Made]] = defaultdict(list)
        for row in self._jobs:
            for name, output in _mappings(row.outputs):
                if not isinstance(path := output.get("path"), str):
                    continue
                try:
                    place = outputs.destination_of(
                        self._workspace, row.name, name, Output(path=path)
                    )
                except TorchyardError:
                    continue
                made = _Made(self.job(row.name), name, row.id)
                places[place.store, place.path.strip("/")].append(made)
        for model in self._models:
            if model.folder:
                places[BLOB_STORE, model.folder.strip("/")].append(_Made(model_node(model)))
        for asset in self._data:
            uri = _datastore(asset.uri, self._workspace)
            if uri is not None:
                places[uri.store, uri.path.strip("/")].append(_Made(data_node(asset)))
        return {
            place: sorted(made, key=lambda each: each.since, reverse=True)
            for place, made in places.items()
        }

    def _taken(self, job_input: Mapping[str, Any], reader: int) -> _Made | None:
        """What an input is to the job with the id `reader`; None for a literal."""
        path = job_input.get("path")
        if not isinstance(path, str) or not path:
            return None
        asset = _reference(path, MODEL if job_input.get("type") in MODEL_TYPES else DATA)
        return _Made(asset) if asset is not None else self._made_at(path, reader)

    def _made_at(
        self, path: str, reader: int | None = None, apart_from: Node | None = None
    ) -> _Made | None:
        """
        Args:
            reader: what was made after the job with this id is not what it read.
        """
        job = uris.job_output(path)
        if job is not None:
            return _Made(self.job(job.job), job.output)
        uri = _datastore(path, self._workspace)
        if uri is None:
            return None if path.startswith("azureml:") or not path else _Made(_path_node(path))
        owner, output = outputs.owner_of(uri)
        if owner:
            return _Made(self.job(owner), output)
        parts = uri.path.strip("/").split("/")
        for length in range(len(parts), -1, -1):
            for made in self._places.get((uri.store, "/".join(parts[:length])), ()):
                is_before = reader is None or made.since < reader
                if made.node != apart_from and is_before:
                    return made
        return _Made(_path_node(str(uri)))


def data_node(asset: DataAsset) -> Node:
    return Node(DATA, asset.name, asset.version)


def model_node(model: Model) -> Node:
    return Node(MODEL, model.name, str(model.version))


def _mappings(entries: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, value in entries.items() if isinstance(entries, Mapping) else ():
        if isinstance(value, Mapping):
            yield name, value


def _path_node(path: str) -> Node:
    """A URL without its query and its user, which may be secrets."""
    return Node(PATH, _URL_USER.sub("", path.partition("?")[0]))


def _datastore(path: str, workspace: str) -> uris.DatastoreUri | None:
    try:
        return uris.datastore(path, workspace)
    except TorchyardError:
        return None


def _reference(path: str, kind: str) -> Node | None:
    """The version that a reference names, pinned as it is in a job's document."""
    if not path.startswith("azureml:") or "/" in path:
        return None
    try:
        ref = refs.parse(path)
    except TorchyardError:
        return None
    return Node(kind, ref.name, ref.version) if ref.version else None
