"""The inputs of a run on SDK v1's target `local`, for the program on the user's machine.

Owns: which files an input has, the signed URL of each, the content of those outside datastores.
Leaves: what a path means to data/actions.py, permissions and routes to local_runs.py.
Always: that machine asks this server alone, as nodes do; it gets no file that is not the input's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import StreamingResponse

from torchyard.azureml.blob.links import Links
from torchyard.azureml.common.calls import Call
from torchyard.base import files
from torchyard.base.errors import NotFound
from torchyard.data import actions as data
from torchyard.data.actions import DataLocation
from torchyard.jobs.services import FileServices


def pinned(
    services: FileServices, workspace: str, inputs: Mapping[str, Mapping[str, str]]
) -> dict[str, Mapping[str, str]]:
    """The inputs as the run keeps them: a mapped URL is read from where this workspace maps it.

    Raises:
        InvalidInput: a path has no known form.
        NotFound: a datastore or an asset does not exist.
    """
    db, stores = services.db, services.datastores
    documents: dict[str, Mapping[str, str]] = {}
    for name, item in inputs.items():
        path = item["path"]
        if not data.locate(db, stores, workspace, path).store:
            path = data.pin(db, stores, workspace, item["type"], path, item["mode"]).path
        documents[name] = {**item, "path": path}
    return documents


def listing(services: FileServices, links: Links, call: Call, path: str) -> dict[str, Any]:
    """The files of an input: each with its URL, or with its size where `content` has it.

    Raises:
        NotFound: there are none.
        Unreachable: their site does not answer.
    """
    location = data.locate(services.db, services.datastores, call.workspace.name, path)
    single = _single(location)
    if single is not None:
        entries = [(_name(location), location.path, single)]
    else:
        top = f"{location.path}/" if location.path else ""
        entries = [
            (entry.path, f"{top}{entry.path}", entry.size_bytes)
            for entry in location.files.walk(location.path)
        ]
    if not entries:
        raise NotFound(f"`{location.uri}` has no files")
    listed = [
        {"path": name, "url": links.url(call, location.store, stored, host_style=False)}
        if location.store
        else {"path": name, "size_bytes": size_bytes}
        for name, stored, size_bytes in entries
    ]
    return {"is_file": single is not None, "files": listed}


def content(services: FileServices, call: Call, path: str, file: str) -> StreamingResponse:
    """One file of an input that is not in a datastore.

    Args:
        path: the input's.
        file: as `listing` names it.

    Raises:
        NotFound: the input has no such file.
        Unreachable: its site does not answer.
    """
    location = data.locate(services.db, services.datastores, call.workspace.name, path)
    if location.store:
        raise NotFound(f"`{location.uri}` is in a datastore", "read it by its signed URL")
    if file == _name(location) and _single(location) is not None:
        inner = location.path
    else:
        below = files.safe_relative(file)
        inner = f"{location.path}/{below}" if location.path else below
        if location.files.entry(inner) is None:
            raise NotFound(f"`{below}` does not exist in `{location.uri}`")
    return StreamingResponse(location.files.read(inner), media_type="application/octet-stream")


def _single(location: DataLocation) -> int | None:
    """The size of the one file that the place is; None for a folder."""
    if location.store and not location.path:
        return None
    entry = location.files.entry(location.path)
    return None if entry is None else entry.size_bytes


def _name(location: DataLocation) -> str:
    """The name that the file of a place has on the user's machine."""
    path = location.path or location.uri.partition("?")[0].rstrip("/")
    return path.rpartition("/")[2] or "file"
