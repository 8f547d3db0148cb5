"""SDK v1's content service: snapshots of a script's folder.

Owns: where a client uploads the files of a snapshot, which of them are in an earlier snapshot, the
ids that clients choose for snapshots.
Leaves: files by content to base/blobs, signed URLs to the blob service.
Always: a snapshot is accepted when all its files exist; the client sends only what changed since
the snapshot that it names as parent.
"""

from __future__ import annotations

import json
import re
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.responses import JSONResponse

from torchyard.azureml.blob.links import BlobLinks
from torchyard.azureml.common.calls import AzureCall, object_at, objects_at
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.common.routing import RouteTable
from torchyard.base import files
from torchyard.base.blob_folders import BlobFolders
from torchyard.base.blobs import Snapshot, SnapshotFile
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.data.datastores import BLOB_STORE, Datastores
from torchyard.jobs.services import Services
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_FOLDER = "azureml-snapshots"
_STAGED = re.compile(rf"{_FOLDER}/staged-[0-9a-f]{{32}}/.+")
_ID = re.compile(r"[0-9a-fA-F-]{36}")
_NONE = "00000000-0000-0000-0000-000000000000"
_MAX_FILES = 10_000
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Snapshots:
    """Snapshots by the ids that clients chose, stored in the default datastore."""

    blobs: BlobFolders
    datastores: Datastores

    def find(self, workspace: str, snapshot_id: str) -> Snapshot:
        """
        Raises:
            NotFound: it does not exist, or files of it are missing.
        """
        _check_id(snapshot_id)
        try:
            path = self.datastores.file(workspace, BLOB_STORE, _record_path(snapshot_id))
        except NotFound:
            raise NotFound(
                f"snapshot `{snapshot_id}` is not in workspace `{workspace}`",
                "delete the folder `~/.azureml`, where the client remembers it, and submit again",
            ) from None
        return self.blobs.of(workspace).snapshot(json.loads(path.read_text())["snapshot"])

    def create(
        self,
        workspace: str,
        snapshot_id: str,
        tree: Mapping[str, Any],
        staged: Mapping[str, str],
        parent: str,
    ) -> Snapshot:
        """Create a snapshot; a repeated request, after a lost response, returns the same one.

        Args:
            tree: its folder as the client writes it, names below `children`.
            staged: where new and changed files were uploaded, by path.
            parent: the snapshot with the other files; empty for none.

        Raises:
            InvalidInput: a file of the tree is in neither.
            NotFound: the parent does not exist.
        """
        paths = list(_paths(tree))
        with suppress(NotFound):
            existing = self.find(workspace, snapshot_id)
            if {file.path for file in existing.files} == set(paths):
                return existing
        parent_files = {}
        if parent and parent != _NONE:
            parent_files = {file.path: file for file in self.find(workspace, parent).files}
        snapshot_files, folders, blobs = [], set(), self.blobs.of(workspace)
        for path in paths:
            if path in staged:
                upload = self.datastores.file(workspace, BLOB_STORE, _checked(staged[path]))
                size = upload.stat().st_size
                snapshot_files.append(SnapshotFile(path, blobs.put_file(upload), size))
                folders.add("/".join(staged[path].split("/")[:2]))
            elif path in parent_files:
                snapshot_files.append(parent_files[path])
            else:
                raise InvalidInput(f"file `{path[:200]}` of the snapshot was not uploaded")
        snapshot = blobs.put_snapshot({"files": [asdict(file) for file in snapshot_files]})
        with self.datastores.writing(workspace, BLOB_STORE, _record_path(snapshot_id)) as writing:
            writing.write(json.dumps({"snapshot": snapshot.id}).encode())
        for folder in folders:
            self.datastores.delete(workspace, BLOB_STORE, folder)
        return snapshot

    def zipped(self, workspace: str, snapshot_id: str) -> str:
        """The path in the default datastore of the snapshot as a zip file."""
        snapshot, blobs = self.find(workspace, snapshot_id), self.blobs.of(workspace)
        path = f"{_FOLDER}/{snapshot_id.lower()}.zip"
        with self.datastores.writing(workspace, BLOB_STORE, path) as writing:
            with zipfile.ZipFile(_Sink(writing), "w", zipfile.ZIP_DEFLATED) as archive:
                for file in snapshot.files:
                    archive.write(blobs.path(file.sha256), file.path)
        return path


class _Sink:
    """The part of a file that zipfile needs, for a file that is only appended to."""

    def __init__(self, writing: files.Writing) -> None:
        self._writing = writing

    def write(self, data: bytes, /) -> int:
        self._writing.write(data)
        return len(data)

    def flush(self) -> None:
        return None

    def close(self) -> None:
        return None


routes = RouteTable("/content/snapshots")


async def _snapshots(request: Request) -> Snapshots:
    services: Services = request.app.state.services
    return Snapshots(services.blobs, services.datastores)


SnapshotsOf = Annotated[Snapshots, Depends(_snapshots)]


@routes.get("/latest/metadata")
@needs(Permission.READ)
def get_latest(call: AzureCall) -> JSONResponse:
    # Without a latest snapshot a client sends all files; it remembers its own snapshots itself.
    root = {"name": "", "type": "Directory", "hash": "", "timestamp": "", "children": {}}
    return JSONResponse({"id": _NONE, "root": root})


@routes.post("/getblob")
@needs(Permission.UPLOAD)
def create_uploads(call: AzureCall, links: BlobLinks) -> JSONResponse:
    names = call.document.get("FileNames")
    if not isinstance(names, list) or len(names) > _MAX_FILES:
        raise InvalidInput(f"`FileNames` must be a list of at most {_MAX_FILES} paths")
    folder = f"{_FOLDER}/staged-{uuid.uuid4().hex}"
    nodes = []
    for number, name in enumerate(names):
        files.safe_relative(str(name).replace("\\", "/"))
        # A number: the client quotes names from URLs a second time.
        uri = links.url(call, BLOB_STORE, f"{folder}/{number}", write=True)
        nodes.append({"fullName": name, "blobUri": uri})
    return JSONResponse({"fileNodes": nodes})


@routes.post("/uri/{snapshot_id}")
@needs(Permission.UPLOAD)
def create_from_git(call: AzureCall, snapshot_id: str) -> JSONResponse:
    raise NotServed(
        "SDK v1 can't take a snapshot of a Git URL here",
        "clone it and name the folder, or write `code: git+https://…` in a job file",
    )


@routes.post("/{snapshot_id}/zip")
@needs(Permission.READ)
def get_zip(
    call: AzureCall, snapshots: SnapshotsOf, links: BlobLinks, snapshot_id: str
) -> JSONResponse:
    path = snapshots.zipped(call.workspace.name, snapshot_id)
    return JSONResponse({"zipSasUri": links.url(call, BLOB_STORE, path)})


@routes.post("/{snapshot_id}")
@needs(Permission.UPLOAD)
def create(call: AzureCall, snapshots: SnapshotsOf, snapshot_id: str) -> JSONResponse:
    _check_id(snapshot_id)
    body = call.document
    staged = {
        files.safe_relative(str(node.get("FullName")).replace("\\", "/")): _staged_path(node)
        for node in objects_at(object_at(body, "FileRevisionList"), "FileNodes")
    }
    parent = str(body.get("ParentSnapshotId") or "")
    snapshots.create(
        call.workspace.name, snapshot_id, body.get("DirTreeNode") or {}, staged, parent
    )
    return JSONResponse({"snapshotId": snapshot_id, "id": snapshot_id})


def _check_id(snapshot_id: str) -> None:
    if not _ID.fullmatch(snapshot_id):
        raise InvalidInput(f"`{snapshot_id[:60]}` is not a snapshot id", "it is a GUID")


def _record_path(snapshot_id: str) -> str:
    return f"{_FOLDER}/{snapshot_id.lower()}.json"


def _paths(node: Any, above: str = "") -> Iterator[str]:
    """Every file of a tree; children come as a mapping or as a list."""
    children = node.get("children") if isinstance(node, Mapping) else None
    below = list(children.values()) if isinstance(children, Mapping) else children or []
    for child in below if isinstance(below, list) else [below]:
        if not isinstance(child, Mapping) or not isinstance(child.get("name"), str):
            raise InvalidInput("the snapshot's `DirTreeNode` is not a tree of files")
        path = files.safe_relative(f"{above}{child['name']}".replace("\\", "/"))
        if str(child.get("type")).lower() == "file":
            yield path
        else:
            yield from _paths(child, f"{path}/")


def _staged_path(node: Mapping[str, Any]) -> str:
    """Where the client uploaded a file, from the URL that it got for it."""
    path = urlsplit(str(node.get("BlobUri"))).path
    staged = ""
    with suppress(ValueError):
        staged = path[path.index(f"/{_FOLDER}/") + 1 :]
    return _checked(staged)


def _checked(path: str) -> str:
    if not _STAGED.fullmatch(path):
        raise InvalidInput(
            "a file of the snapshot is not at the URL that the server returned for it"
        )
    return path
