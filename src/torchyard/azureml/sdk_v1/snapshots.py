"""SDK v1's content service: snapshots of a script's folder.

Owns: where a client puts the files of a snapshot, which of them are those of an earlier one, the
ids that clients choose for snapshots.
Leaves: files by content to base/blobs, signed URLs to the blob service.
Always: a snapshot is accepted when all its files are here; the client sends only what changed
since the one it names as parent.
"""

import hashlib
import json
import re
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.azureml.blob.links import Links
from torchyard.azureml.common.calls import Call, Caller, items, part
from torchyard.azureml.common.errors import AzureRoute, NotServed
from torchyard.base import files
from torchyard.base.blobs import Blobs, Snapshot, SnapshotFile
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.data.datastores import BLOB_STORE, Datastores

_FOLDER = "azureml-snapshots"
_STAGED = re.compile(rf"{_FOLDER}/staged-[0-9a-f]{{32}}/.+")
_ID = re.compile(r"[0-9a-fA-F-]{36}")
_NONE = "00000000-0000-0000-0000-000000000000"
_MOST_FILES = 10_000
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Snapshots:
    """Snapshots by the ids that clients gave them, kept beside the default datastore's data."""

    blobs: Blobs
    datastores: Datastores

    def find(self, workspace: str, snapshot_id: str) -> Snapshot:
        """
        Raises:
            NotFound: no client sent one of this id, or it is no longer whole.
        """
        if not _ID.fullmatch(snapshot_id):
            raise InvalidInput(f"`{snapshot_id[:60]}` is no snapshot's id", "it is a GUID")
        try:
            path = self.datastores.file(workspace, BLOB_STORE, _kept(snapshot_id))
        except NotFound:
            raise NotFound(
                f"snapshot `{snapshot_id}` is not in workspace `{workspace}`",
                "delete the folder `~/.azureml`, where the client remembers it, and submit again",
            ) from None
        return self.blobs.snapshot(json.loads(path.read_text())["snapshot"])

    def create(
        self,
        workspace: str,
        snapshot_id: str,
        tree: Mapping[str, Any],
        staged: Mapping[str, str],
        parent: str,
    ) -> Snapshot:
        """Put a snapshot together; asked again, because the answer was lost, it is the same one.

        Args:
            tree: its folder as the client writes it, names below `children`.
            staged: where new and changed files were put, by path.
            parent: the snapshot that the others are in; empty for none.

        Raises:
            InvalidInput: a file of the tree is in neither.
            NotFound: the parent is gone.
        """
        paths = list(_paths(tree))
        with suppress(NotFound):
            known = self.find(workspace, snapshot_id)
            if {one.path for one in known.files} == set(paths):
                return known
        earlier = {}
        if parent and parent != _NONE:
            earlier = {one.path: one for one in self.find(workspace, parent).files}
        found, folders = [], set()
        for path in paths:
            if path in staged:
                place = self.datastores.file(workspace, BLOB_STORE, _checked(staged[path]))
                found.append(self._kept_file(path, place))
                folders.add("/".join(staged[path].split("/")[:2]))
            elif path in earlier:
                found.append(earlier[path])
            else:
                raise InvalidInput(f"file `{path[:200]}` of the snapshot was not uploaded")
        made = self.blobs.put_snapshot({"files": [vars(one) for one in found]})
        with self.datastores.writing(workspace, BLOB_STORE, _kept(snapshot_id)) as writing:
            writing.write(json.dumps({"snapshot": made.id}).encode())
        for folder in folders:
            self.datastores.delete(workspace, BLOB_STORE, folder)
        return made

    def zipped(self, workspace: str, snapshot_id: str) -> str:
        """The path in the default datastore of the snapshot as a zip file."""
        snapshot = self.find(workspace, snapshot_id)
        path = f"{_FOLDER}/{snapshot_id.lower()}.zip"
        with self.datastores.writing(workspace, BLOB_STORE, path) as writing:
            with zipfile.ZipFile(_Sink(writing), "w", zipfile.ZIP_DEFLATED) as archive:
                for one in snapshot.files:
                    archive.write(self.blobs.path(one.sha256), one.path)
        return path

    def _kept_file(self, path: str, place: Path) -> SnapshotFile:
        digest = hashlib.sha256()
        with open(place, "rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        sha256 = digest.hexdigest()
        if self.blobs.missing([sha256]):
            with open(place, "rb") as file:
                self.blobs.put(sha256, iter(lambda: file.read(_CHUNK), b""))
        return SnapshotFile(path, sha256, place.stat().st_size)


class _Sink:
    """What zipfile needs of a file that only grows."""

    def __init__(self, writing: files.Writing) -> None:
        self._writing = writing

    def write(self, data: bytes, /) -> int:
        self._writing.write(data)
        return len(data)

    def flush(self) -> None:
        return None

    def close(self) -> None:
        return None


def routes(services: Snapshots, links: Links, caller: Caller) -> APIRouter:
    """`/content/v1.0` and `/content/v2.0`, the requests of the client's snapshots."""
    found = APIRouter(prefix="/content/snapshots", route_class=AzureRoute)
    the_call = Annotated[Call, Depends(caller)]

    @found.get("/latest/metadata")
    def latest(call: the_call) -> JSONResponse:
        # A client that knows of none sends everything; what it sent before, it remembers itself.
        root = {"name": "", "type": "Directory", "hash": "", "timestamp": "", "children": {}}
        return JSONResponse({"id": _NONE, "root": root})

    @found.post("/getblob")
    def places(call: the_call) -> JSONResponse:
        names = call.document.get("FileNames")
        if not isinstance(names, list) or len(names) > _MOST_FILES:
            raise InvalidInput(f"`FileNames` must be a list of at most {_MOST_FILES} paths")
        folder = f"{_FOLDER}/staged-{uuid.uuid4().hex}"
        nodes = []
        for number, name in enumerate(names):
            files.safe_relative(str(name).replace("\\", "/"))
            # By a number: the client quotes names that it takes out of addresses once more.
            uri = links.url(call, BLOB_STORE, f"{folder}/{number}", write=True)
            nodes.append({"fullName": name, "blobUri": uri})
        return JSONResponse({"fileNodes": nodes})

    @found.post("/uri/{snapshot_id}")
    def of_git(call: the_call, snapshot_id: str) -> JSONResponse:
        raise NotServed(
            "a snapshot of a Git address can't be taken by SDK v1 here",
            "clone it and name the folder, or write `code: git+https://…` in a job file",
        )

    @found.post("/{snapshot_id}/zip")
    def zipped(call: the_call, snapshot_id: str) -> JSONResponse:
        path = services.zipped(call.workspace.name, snapshot_id)
        return JSONResponse({"zipSasUri": links.url(call, BLOB_STORE, path)})

    @found.post("/{snapshot_id}")
    def create(call: the_call, snapshot_id: str) -> JSONResponse:
        if not _ID.fullmatch(snapshot_id):
            raise InvalidInput(f"`{snapshot_id[:60]}` is no snapshot's id", "it is a GUID")
        body = call.document
        staged = {
            files.safe_relative(str(one.get("FullName")).replace("\\", "/")): _in_datastore(one)
            for one in items(part(body, "FileRevisionList"), "FileNodes")
        }
        parent = str(body.get("ParentSnapshotId") or "")
        services.create(
            call.workspace.name, snapshot_id, body.get("DirTreeNode") or {}, staged, parent
        )
        return JSONResponse({"snapshotId": snapshot_id, "id": snapshot_id})

    return found


def _kept(snapshot_id: str) -> str:
    return f"{_FOLDER}/{snapshot_id.lower()}.json"


def _paths(node: Any, above: str = "") -> Iterator[str]:
    """Every file of a tree; children come as a mapping or as a list."""
    children = node.get("children") if isinstance(node, Mapping) else None
    below = list(children.values()) if isinstance(children, Mapping) else children or []
    for child in below if isinstance(below, list) else [below]:
        if not isinstance(child, Mapping) or not isinstance(child.get("name"), str):
            raise InvalidInput("the snapshot's `DirTreeNode` is not one")
        path = files.safe_relative(f"{above}{child['name']}".replace("\\", "/"))
        if str(child.get("type")).lower() == "file":
            yield path
        else:
            yield from _paths(child, f"{path}/")


def _in_datastore(node: Mapping[str, Any]) -> str:
    """Where the client put a file, from the URL that it was given for it."""
    path = urlsplit(str(node.get("BlobUri"))).path
    found = ""
    with suppress(ValueError):
        found = path[path.index(f"/{_FOLDER}/") + 1 :]
    return _checked(found)


def _checked(path: str) -> str:
    if not _STAGED.fullmatch(path):
        raise InvalidInput("a file of the snapshot lies where the server did not tell it to be put")
    return path
