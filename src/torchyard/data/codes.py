"""Code that was uploaded as files of a datastore, by name and version.

Owns: the table of codes; making a snapshot of a code's files for jobs.
Leaves: uploading to the protocols, snapshots to base/blobs.py.
Always: the content of a name and version never changes; the files stay where they were uploaded,
and a deleted snapshot is made again from them; codes of equal files are represented by the oldest.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Index,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from torchyard.base.blob_folders import BlobFolders
from torchyard.base.blobs import Blobs
from torchyard.base.clock import Clock
from torchyard.base.db import Database, Instant, metadata
from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.data import actions as data
from torchyard.data.datastores import Datastores

# Datastores keep no file modes: files that begin with a shebang are made executable.
_SHEBANG = b"#!"

codes = Table(
    "codes",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("name", String(256), primary_key=True),
    Column("version", String(64), primary_key=True),
    Column("uri", Text, nullable=False),
    Column("snapshot", String(64), nullable=False),
    Column("hash", String(128), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("owner", String(128), nullable=False),
    Column("description", Text, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("properties", JSON, nullable=False),
    Index("ix_codes_hash", "workspace", "hash"),
)


@dataclass(frozen=True)
class Code:
    """`uri` is the datastore folder (or file) of its files, `snapshot` the id of their snapshot;
    `hash` is the uploading client's hash of them, empty where it sent none.
    """

    workspace: str
    name: str
    version: str
    uri: str
    snapshot: str
    created_at: datetime
    owner: str
    hash: str = ""
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CodeRequest:
    """What a client registers after it has uploaded code."""

    name: str
    version: str
    uri: str
    hash: str = ""
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Places:
    """Where codes are kept."""

    db: Database
    clock: Clock
    datastores: Datastores
    blobs: BlobFolders


def register(
    storage: Places, workspace: str, request: CodeRequest, owner: str
) -> tuple[Code, bool]:
    """Register a code; for one that exists, change its description and tags.

    Returns the code, and whether it is new. For files that several clients uploaded at once it is
    the oldest code: clients compare components by the code that they name.

    Raises:
        Conflict: the name and version exist with other files.
        InvalidInput, NotFound: its uri holds no files.
    """
    existing = _find_version(storage, workspace, request.name, request.version)
    if existing is None:
        snapshot = _make_snapshot(storage, workspace, request.uri)
        try:
            with storage.db.write() as connection:
                # The time is taken inside the transaction, so that the oldest stays the oldest.
                code = Code(
                    workspace,
                    request.name,
                    request.version,
                    request.uri,
                    snapshot,
                    storage.clock.now(),
                    owner,
                    request.hash,
                    request.description,
                    dict(request.tags),
                    dict(request.properties),
                )
                connection.execute(insert(codes).values(**vars(code)))
            return _first_of(storage, code), True
        except IntegrityError:
            existing = get(storage, workspace, request.name, request.version)
    if request.uri.rstrip("/") != existing.uri.rstrip("/"):
        raise Conflict(
            f"code `{request.name}:{request.version}` exists in workspace `{workspace}` with other "
            "files",
            "register it with another version",
            at=["properties", "codeUri"],
        )
    words = {"description": request.description, "tags": dict(request.tags)}
    with storage.db.write() as connection:
        connection.execute(update(codes).where(*_is_row_of(existing)).values(**words))
    return _first_of(storage, get(storage, workspace, request.name, request.version)), False


def get(storage: Places, workspace: str, name: str, version: str) -> Code:
    """
    Raises:
        NotFound: the code does not exist.
    """
    code = _find_version(storage, workspace, name, version)
    if code is None:
        raise NotFound(
            f"code `{name}:{version}` does not exist in workspace `{workspace}`",
            "submit the job again: the client uploads its code again",
        )
    return code


def list_in(storage: Places, workspace: str, name: str = "") -> list[Code]:
    """Newest first."""
    conditions = [codes.c.workspace == workspace]
    if name:
        conditions.append(codes.c.name == name)
    return _all(storage, conditions)


def of_hash(storage: Places, workspace: str, hash: str) -> list[Code]:
    """The codes with that hash whose files still exist, oldest first."""
    matching = _all(storage, [codes.c.workspace == workspace, codes.c.hash == hash]) if hash else []
    return [code for code in reversed(matching) if _is_whole(storage, code)]


def snapshot_of(storage: Places, code: Code) -> str:
    """The id of a complete snapshot of the code's files, made again if it was deleted.

    Raises:
        NotFound: neither the snapshot nor the files exist any more.
    """
    try:
        return storage.blobs.of(code.workspace).snapshot(code.snapshot).id
    except NotFound:
        snapshot_id = _make_snapshot(storage, code.workspace, code.uri)
    if snapshot_id != code.snapshot:
        raise NotFound(
            f"the files of code `{code.name}:{code.version}` have changed since it was uploaded",
            "submit the job again: the client uploads its code again",
        )
    return snapshot_id


def snapshot_at(storage: Places, workspace: str, uri: str) -> str:
    """The id of a snapshot of the files at a datastore URI.

    Raises:
        NotFound: there are none.
    """
    return _make_snapshot(storage, workspace, uri)


def drop(storage: Places, code: Code) -> None:
    """Delete a code; its files, and jobs that use it, stay."""
    with storage.db.write() as connection:
        connection.execute(delete(codes).where(*_is_row_of(code)))


def delete_all(connection: Connection, workspace: str) -> None:
    """Delete the codes of a workspace that is being deleted."""
    connection.execute(delete(codes).where(codes.c.workspace == workspace))


def _find_version(storage: Places, workspace: str, name: str, version: str) -> Code | None:
    conditions = [codes.c.workspace == workspace, codes.c.name == name, codes.c.version == version]
    return next(iter(_all(storage, conditions)), None)


def _all(storage: Places, conditions: list[Any]) -> list[Code]:
    with storage.db.read() as connection:
        rows = connection.execute(
            select(codes).where(*conditions).order_by(codes.c.created_at.desc())
        )
        return [Code(**row._mapping) for row in rows]


def _is_row_of(code: Code) -> list[Any]:
    return [
        codes.c.workspace == code.workspace,
        codes.c.name == code.name,
        codes.c.version == code.version,
    ]


def _first_of(storage: Places, code: Code) -> Code:
    """The oldest code with the same files."""
    equal = of_hash(storage, code.workspace, code.hash)
    return next((other for other in equal if other.snapshot == code.snapshot), code)


def _is_whole(storage: Places, code: Code) -> bool:
    try:
        snapshot_of(storage, code)
    except (NotFound, InvalidInput):
        return False
    return True


def _make_snapshot(storage: Places, workspace: str, uri: str) -> str:
    """Make a snapshot of the files at `uri`; its id."""
    location = data.locate(storage.db, storage.datastores, workspace, uri)
    single = location.files.entry(location.path)
    if single is not None:
        sources = [(location.path, location.path.rpartition("/")[2])]
    else:
        top = f"{location.path.strip('/')}/" if location.path.strip("/") else ""
        sources = [
            (f"{top}{entry.path}", entry.path) for entry in location.files.walk(location.path)
        ]
    if not sources:
        raise NotFound(f"`{uri}` holds no files", "upload the folder again")
    manifest, blobs = [], storage.blobs.of(workspace)
    with tempfile.TemporaryDirectory(prefix="code-") as folder:
        for number, (source, path) in enumerate(sources):
            copy = Path(folder) / str(number)
            location.files.fetch([(source, copy)])
            manifest.append({"path": path, **_store_file(blobs, copy)})
            copy.unlink()
    return blobs.put_snapshot({"files": manifest}).id


def _store_file(blobs: Blobs, file: Path) -> dict[str, Any]:
    """Store a file as a blob; its entry in a manifest."""
    with open(file, "rb") as opened:
        mode = "0755" if opened.read(len(_SHEBANG)) == _SHEBANG else "0644"
    return {"sha256": blobs.put_file(file), "size": os.stat(file).st_size, "mode": mode}
