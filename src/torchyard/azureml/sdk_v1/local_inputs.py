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
from torchyard.data.actions import Place
from torchyard.jobs.services import Services


def pinned(
    services: Services, workspace: str, inputs: Mapping[str, Mapping[str, str]]
) -> dict[str, Mapping[str, str]]:
    """The inputs as the run keeps them: a mapped URL is read from where this workspace maps it.

    Raises:
        InvalidInput: a path has no known form.
        NotFound: a datastore or an asset does not exist.
    """
    db, stores = services.db, services.datastores
    kept: dict[str, Mapping[str, str]] = {}
    for name, item in inputs.items():
        path = item["path"]
        if not data.locate(db, stores, workspace, path).store:
            path = data.pin(db, stores, workspace, item["type"], path, item["mode"]).path
        kept[name] = {**item, "path": path}
    return kept


def listing(services: Services, links: Links, call: Call, path: str) -> dict[str, Any]:
    """The files of an input: each with its URL, or with its size where `content` has it.

    Raises:
        NotFound: there are none.
        Unreachable: their site does not answer.
    """
    place = data.locate(services.db, services.datastores, call.workspace.name, path)
    single = _single(place)
    if single is not None:
        entries = [(_name(place), place.path, single)]
    else:
        top = f"{place.path}/" if place.path else ""
        entries = [
            (entry.path, f"{top}{entry.path}", entry.size_bytes)
            for entry in place.files.walk(place.path)
        ]
    if not entries:
        raise NotFound(f"`{place.uri}` has no files")
    listed = [
        {"path": name, "url": links.url(call, place.store, stored, host_style=False)}
        if place.store
        else {"path": name, "size_bytes": size_bytes}
        for name, stored, size_bytes in entries
    ]
    return {"is_file": single is not None, "files": listed}


def content(services: Services, call: Call, path: str, file: str) -> StreamingResponse:
    """One file of an input that is not in a datastore.

    Args:
        path: the input's.
        file: as `listing` names it.

    Raises:
        NotFound: the input has no such file.
        Unreachable: its site does not answer.
    """
    place = data.locate(services.db, services.datastores, call.workspace.name, path)
    if place.store:
        raise NotFound(f"`{place.uri}` is in a datastore", "read it by its signed URL")
    if file == _name(place) and _single(place) is not None:
        inner = place.path
    else:
        below = files.safe_relative(file)
        inner = f"{place.path}/{below}" if place.path else below
        if place.files.entry(inner) is None:
            raise NotFound(f"`{below}` does not exist in `{place.uri}`")
    return StreamingResponse(place.files.read(inner), media_type="application/octet-stream")


def _single(place: Place) -> int | None:
    """The size of the one file that the place is; None for a folder."""
    if place.store and not place.path:
        return None
    entry = place.files.entry(place.path)
    return None if entry is None else entry.size_bytes


def _name(place: Place) -> str:
    """The name that the file of a place has on the user's machine."""
    path = place.path or place.uri.partition("?")[0].rstrip("/")
    return path.rpartition("/")[2] or "file"
