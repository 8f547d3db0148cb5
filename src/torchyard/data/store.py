"""The tables of datastores, data assets, URL maps and checksums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Integer,
    String,
    Table,
    Text,
    delete,
    select,
)

from torchyard.assets.named_table import NamedTable
from torchyard.assets.version_table import VersionTable
from torchyard.base.db import Instant, metadata, put_rows
from torchyard.base.sealed_columns import SealedJson
from torchyard.data.types import Checksum, DataAsset, Datastore, UrlMap

LEFT_OUT = {"torchyard.credentials": "left out of a backup"}
"""In place of the options of a datastore whose credentials a backup left out."""
_OF = "the credentials of datastore `{name}`"
# Options of fsspec that say where and as whom. Every other one lets somebody in.
_OPEN = {"account", "account_host", "account_name", "anon", "client_id", "client_kwargs"}
_OPEN |= {"endpoint_url", "host", "is_own", "key_filename", "person", "port", "tenant_id"}
_OPEN |= {"username"}


def _without_credentials(options: Mapping[str, Any]) -> Mapping[str, Any]:
    is_open = options.keys() <= _OPEN or options.get("token") == "anon"
    return options if is_open else LEFT_OUT


datastores = Table(
    "datastores",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("name", String(256), primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("url", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("options", SealedJson(_without_credentials, _OF), nullable=False),
    Column("document", JSON, nullable=False),
    Column("description", Text, nullable=False),
    Column("tags", JSON, nullable=False),
    # Empty for those that were made before it was recorded.
    Column("owner", String(128), nullable=False, server_default=""),
)

data_assets = Table(
    "data_assets",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("workspace", String(64), nullable=False),
    Column("name", String(256), nullable=False),
    Column("version", String(64), nullable=False),
    Column("type", String(32), nullable=False),
    Column("uri", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("owner", String(128), nullable=False),
    Column("description", Text, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("properties", JSON, nullable=False),
    Column("job", String(256), nullable=False, index=True),
    Column("archived", Boolean, nullable=False),
)
asset_versions = VersionTable(data_assets, DataAsset)

url_maps = Table(
    "url_maps",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("prefix", String(512), primary_key=True),
    Column("target", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
)

checksums = Table(
    "checksums",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("datastore", String(256), primary_key=True),
    Column("path", String(1024), primary_key=True),
    Column("sha256", String(64), nullable=False),
    Column("size_bytes", BigInteger().with_variant(Integer, "sqlite"), nullable=False),
    Column("mark", Text, nullable=False),
    Column("job", String(256), nullable=False, default="", server_default=""),
    Column("written_at", Instant),
)


_datastores = NamedTable(datastores, Datastore)
put_datastore, list_datastores = _datastores.put, _datastores.list_in
drop_datastore = _datastores.drop
_url_maps = NamedTable(url_maps, UrlMap)
put_url_map, list_url_maps, drop_url_map = _url_maps.put, _url_maps.list_in, _url_maps.drop


def put_checksums(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows, or replace those of the same files."""
    put_rows(connection, checksums, rows)


def drop_checksums(connection: Connection, workspace: str, datastore: str, folder: str) -> None:
    """Delete the checksums of all files below a folder."""
    path = checksums.c.path
    connection.execute(
        delete(checksums).where(
            checksums.c.workspace == workspace,
            checksums.c.datastore == datastore,
            (path > f"{folder}/") & (path < f"{folder}0"),
        )
    )


def checksums_below(
    connection: Connection, workspace: str, datastore: str, prefix: str
) -> dict[str, Checksum]:
    """By path, for `prefix` itself and all below it."""
    clean = prefix.rstrip("/")
    path = checksums.c.path
    conditions = [checksums.c.workspace == workspace, checksums.c.datastore == datastore]
    if clean:
        conditions.append((path == clean) | ((path > f"{clean}/") & (path < f"{clean}0")))
    rows = connection.execute(select(checksums).where(*conditions))
    return {row.path: Checksum(row.sha256, row.mark, row.job, row.written_at) for row in rows}
