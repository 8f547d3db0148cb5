"""Code that was uploaded as files of a datastore, by name and version.

Owns: the table of codes; making a snapshot of a code's files, so that jobs get it like any other.
Leaves: uploading to the protocols, snapshots to base/blobs.py.
Always: a name and version stands for one content; the files stay where they were uploaded, and a
snapshot that was reclaimed is made anew from them; the first of a hash stands for all of it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
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

from torchyard.base.blobs import Blobs
from torchyard.base.clock import Clock
from torchyard.base.db import Database, Instant, metadata
from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.data import actions as data
from torchyard.data.datastores import Datastores

_CHUNK = 1 << 20
# A store takes no file modes: what a kernel would start by its first line is executable.
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
    `hash` is what the client that uploaded them knows them by, empty where it said nothing.
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
class Request:
    """What a client says of a code that it has uploaded."""

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
    blobs: Blobs


def register(places: Places, workspace: str, asked: Request, owner: str) -> tuple[Code, bool]:
    """Keep a code under its name and version; asked again, its words change.

    Returns the code, and whether it is new. Of equal files that several uploaded at once it is the
    first code: a client compares components by the code that they name.

    Raises:
        Conflict: the name and version are another content's.
        InvalidInput, NotFound: there are no files at its uri.
    """
    known = _named(places, workspace, asked.name, asked.version)
    if known is None:
        snapshot = _take(places, workspace, asked.uri)
        try:
            with places.db.write() as connection:
                # The time is taken when no other is writing: what is first stays first.
                made = Code(
                    workspace,
                    asked.name,
                    asked.version,
                    asked.uri,
                    snapshot,
                    places.clock.now(),
                    owner,
                    asked.hash,
                    asked.description,
                    dict(asked.tags),
                    dict(asked.properties),
                )
                connection.execute(insert(codes).values(**vars(made)))
            return _first_of(places, made), True
        except IntegrityError:
            known = get(places, workspace, asked.name, asked.version)
    if asked.uri.rstrip("/") != known.uri.rstrip("/"):
        raise Conflict(
            f"code `{asked.name}:{asked.version}` exists in workspace `{workspace}` with other "
            "files",
            "give this one another version",
            at=["properties", "codeUri"],
        )
    words = {"description": asked.description, "tags": dict(asked.tags)}
    with places.db.write() as connection:
        connection.execute(update(codes).where(*_is(known)).values(**words))
    return _first_of(places, get(places, workspace, asked.name, asked.version)), False


def get(places: Places, workspace: str, name: str, version: str) -> Code:
    """
    Raises:
        NotFound: there is none of that name and version.
    """
    found = _named(places, workspace, name, version)
    if found is None:
        raise NotFound(
            f"code `{name}:{version}` does not exist in workspace `{workspace}`",
            "submit the job again: the client uploads its code anew",
        )
    return found


def list_in(places: Places, workspace: str, name: str = "") -> list[Code]:
    """Newest first."""
    wanted = [codes.c.workspace == workspace]
    if name:
        wanted.append(codes.c.name == name)
    return _all(places, wanted)


def of_hash(places: Places, workspace: str, hash: str) -> list[Code]:
    """Those with that hash whose files are still here, oldest first."""
    found = _all(places, [codes.c.workspace == workspace, codes.c.hash == hash]) if hash else []
    return [code for code in reversed(found) if _is_whole(places, code)]


def snapshot_of(places: Places, code: Code) -> str:
    """The id of a snapshot with the code's files, whole and new.

    Raises:
        NotFound: neither the snapshot nor the files are here any more.
    """
    try:
        return places.blobs.snapshot(code.snapshot).id
    except NotFound:
        taken = _take(places, code.workspace, code.uri)
    if taken != code.snapshot:
        raise NotFound(
            f"the files of code `{code.name}:{code.version}` have changed since it was uploaded",
            "submit the job again: the client uploads its code anew",
        )
    return taken


def snapshot_at(places: Places, workspace: str, uri: str) -> str:
    """The id of a snapshot of the files that lie at a datastore URI.

    Raises:
        NotFound: there are none.
    """
    return _take(places, workspace, uri)


def drop(places: Places, code: Code) -> None:
    """Forget a code; its files and jobs made of it stay."""
    with places.db.write() as connection:
        connection.execute(delete(codes).where(*_is(code)))


def forget_all(connection: Connection, workspace: str) -> None:
    """Every code of a workspace that is going."""
    connection.execute(delete(codes).where(codes.c.workspace == workspace))


def _named(places: Places, workspace: str, name: str, version: str) -> Code | None:
    wanted = [codes.c.workspace == workspace, codes.c.name == name, codes.c.version == version]
    return next(iter(_all(places, wanted)), None)


def _all(places: Places, wanted: list[Any]) -> list[Code]:
    with places.db.read() as connection:
        rows = connection.execute(select(codes).where(*wanted).order_by(codes.c.created_at.desc()))
        return [Code(**row._mapping) for row in rows]


def _is(code: Code) -> list[Any]:
    return [
        codes.c.workspace == code.workspace,
        codes.c.name == code.name,
        codes.c.version == code.version,
    ]


def _first_of(places: Places, code: Code) -> Code:
    """The code that stands for this one's files."""
    alike = of_hash(places, code.workspace, code.hash)
    return next((one for one in alike if one.snapshot == code.snapshot), code)


def _is_whole(places: Places, code: Code) -> bool:
    try:
        snapshot_of(places, code)
    except (NotFound, InvalidInput):
        return False
    return True


def _take(places: Places, workspace: str, uri: str) -> str:
    """The id of a snapshot of what lies at `uri`."""
    place = data.locate(places.db, places.datastores, workspace, uri)
    single = place.files.entry(place.path)
    if single is not None:
        wanted = [(place.path, place.path.rpartition("/")[2])]
    else:
        top = f"{place.path.strip('/')}/" if place.path.strip("/") else ""
        wanted = [(f"{top}{entry.path}", entry.path) for entry in place.files.walk(place.path)]
    if not wanted:
        raise NotFound(f"there are no files at `{uri}`", "upload the folder again")
    manifest = []
    with tempfile.TemporaryDirectory(prefix="code-") as folder:
        for number, (source, path) in enumerate(wanted):
            here = place.files.local(source)
            if here is None:
                here = Path(folder) / str(number)
                place.files.fetch([(source, here)])
            manifest.append({"path": path, **_keep(places.blobs, here)})
    return places.blobs.put_snapshot({"files": manifest}).id


def _keep(blobs: Blobs, file: Path) -> dict[str, Any]:
    """A file's entry in a manifest; its bytes are a blob from now on."""
    digest, start = hashlib.sha256(), b""
    for chunk in _chunks(file):
        start = start or chunk[: len(_SHEBANG)]
        digest.update(chunk)
    sha256 = digest.hexdigest()
    if blobs.missing([sha256]):
        blobs.put(sha256, _chunks(file))
    mode = "0755" if start == _SHEBANG else "0644"
    return {"sha256": sha256, "size": os.stat(file).st_size, "mode": mode}


def _chunks(file: Path) -> Iterator[bytes]:
    with open(file, "rb") as opened:
        while chunk := opened.read(_CHUNK):
            yield chunk
