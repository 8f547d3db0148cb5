"""What a path of an input means.

Owns: pinning a path when a job is created, finding the files that a pinned path names.
Leaves: job outputs and models to those above this room, copying to fetching.py.
Always: a pinned path names the same data as long as the data itself stays; a URL that a
datastore of the workspace covers is read with that datastore's credentials.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from sqlalchemy import Connection

from torchyard.base import refs
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound, TorchyardError, Unreachable
from torchyard.base.files import Stored
from torchyard.data import assets, datastores, property_store, store, uris, url_maps
from torchyard.data.connections import EXTRAS, REFUSED
from torchyard.data.datastores import Datastores
from torchyard.data.remote import RemoteFiles
from torchyard.data.types import DATA_TYPES, DataAsset, DataFile, Datastore, Files, Pinned
from torchyard.data.web import WebFiles

# A datastore that answers later than this is asked again when the job is prepared.
_LOOK_S = 5.0
_WHERE = ("account_name", "account_host", "endpoint_url", "host", "port")
_AZURE_HOSTS = (".blob.core.windows.net", ".dfs.core.windows.net")


@dataclass(frozen=True)
class Place:
    """The files that a path names: `path` below `files`. `store` is empty for a plain URL.

    `source` tells places apart that have equal names in different workspaces.
    """

    files: Files
    path: str
    uri: str
    store: str = ""
    source: str = ""


def pin(
    db: Database, stores: Datastores, workspace: str, type: str, path: str, mode: str
) -> Pinned:
    """What to write into the job instead of `path`; checked as far as that is cheap.

    Args:
        type: the input's: uri_file, uri_folder, mltable or a model type.
        path: a datastore URI in either form, a data asset, or a URL.

    Raises:
        InvalidInput: a path of no known form, a type that doesn't suit, an extra that is missing.
        NotFound: no such datastore, asset, file or folder.
    """
    if _names_asset(path, workspace):
        asset = _asset(db, workspace, path)
        _suits(type, asset)
        return Pinned(f"azureml:{asset.name}:{asset.version}")
    pinned = Pinned(path)
    if uris.protocol_of(path) not in ("", "azureml"):
        pinned = url_maps.apply(url_maps.list_in(db, workspace), path)
    uri = uris.datastore(pinned.path, workspace)
    if uri is not None:
        pinned = Pinned(str(uri), pinned.notices)
    place = locate(db, stores, workspace, pinned.path)
    if place.store and mode != "direct":
        _look(place, type)
    return pinned


def locate(db: Database, stores: Datastores, workspace: str, path: str) -> Place:
    """Where the files of a pinned path are; nothing is read yet.

    Raises:
        InvalidInput: a path of no known form, or an extra is missing.
        NotFound: no such datastore or asset.
    """
    if _names_asset(path, workspace):
        return locate(db, stores, workspace, _asset(db, workspace, path).uri)
    uri = uris.datastore(path, workspace)
    if uri is not None:
        found = datastores.get(db, stores, workspace, uri.store)
        return _in_store(found, uri.path, str(uri))
    protocol = uris.protocol_of(path)
    if not protocol or protocol == "azureml" or "::" in path:
        raise _no_form(path)
    if protocol in REFUSED:
        raise InvalidInput(
            f"`{path}` would read the server's own disk",
            "upload it: name a path beside the job file; or make a datastore of `type: local`",
        )
    return _of_url(db, stores, workspace, protocol, path)


def files_of(db: Database, stores: Datastores, asset: DataAsset) -> list[DataFile]:
    """Every file of an asset, with its sha256 where that is known.

    Raises:
        NotFound: they are gone.
        Unreachable: their place does not answer.
    """
    place = locate(db, stores, asset.workspace, asset.uri)
    known = checksums_of(db, asset.workspace, place)
    single = place.files.entry(place.path) if asset.type == "uri_file" else None
    if single is not None:
        name = place.path.rpartition("/")[2] or place.uri.rpartition("/")[2]
        sha256 = known.get("", ("", ""))[0]
        return [DataFile(name, single.size_bytes, sha256)]
    return [
        DataFile(entry.path, entry.size_bytes, _sha256(known, entry.path, entry.mark))
        for entry in place.files.walk(place.path)
    ]


def forget_checksums(connection: Connection, workspace: str, name: str, folder: str) -> None:
    """Of the files below a folder of a datastore, which are gone, and whatever was said of them."""
    store.drop_checksums(connection, workspace, name, folder)
    property_store.drop_below(connection, workspace, name, folder)


def checksums_of(db: Database, workspace: str, place: Place) -> dict[str, tuple[str, str]]:
    """(sha256, mark) of the files that we wrote there, by path below the place."""
    if not place.store:
        return {}
    top = place.path.strip("/")
    with db.read() as connection:
        rows = store.checksums_below(connection, workspace, place.store, top)
    start = len(top) + 1 if top else 0
    return {path[start:]: (sha256, mark) for path, (sha256, _, mark) in rows.items()}


def record(
    db: Database, workspace: str, store_name: str, place: Files, path: str, stored: Stored
) -> None:
    """Keep the sha256 of a file that was just written there."""
    entry = place.entry(path)
    row = {
        "workspace": workspace,
        "datastore": store_name,
        "path": path,
        "sha256": stored.sha256,
        "size_bytes": stored.size_bytes,
        "mark": entry.mark if entry else "",
    }
    with db.write() as connection:
        store.put_checksums(connection, [row])


def _sha256(known: dict[str, tuple[str, str]], path: str, mark: str) -> str:
    sha256, written_as = known.get(path, ("", ""))
    return sha256 if written_as == mark else ""


def _in_store(found: Datastore, path: str, uri: str) -> Place:
    where = [str(found.options.get(key, "")) for key in _WHERE]
    return Place(datastores.opened(found), path, uri, found.name, " ".join([found.url, *where]))


def _names_asset(path: str, workspace: str) -> bool:
    if uris.asset_id(path, workspace) is not None:
        return True
    return path.startswith("azureml://registries/") or (
        path.startswith("azureml:") and not path.startswith("azureml:/")
    )


def _asset(db: Database, workspace: str, path: str) -> DataAsset:
    by_id = uris.asset_id(path, workspace)
    if by_id is not None:
        return assets.get(db, workspace, *by_id)
    ref = refs.parse(path)
    if ref.label and ref.label != assets.LATEST:
        raise NotFound(f"`{path}` has the label `{ref.label}`", "write a version, or `@latest`")
    return assets.get(db, workspace, ref.name, ref.version or assets.LATEST)


def _suits(type: str, asset: DataAsset) -> None:
    if type not in DATA_TYPES or type == asset.type:
        return
    if type == "uri_folder" and asset.type == "mltable":
        return
    raise InvalidInput(
        f"data `{asset.name}:{asset.version}` is of type `{asset.type}`, the input of `{type}`",
        f"write `type: {asset.type}`",
        code="type_mismatch",
    )


def _of_url(db: Database, stores: Datastores, workspace: str, protocol: str, url: str) -> Place:
    system, options, root, as_url = _system_of(protocol, url)
    for found in datastores.list_in(db, stores, workspace):
        if _covers(found.url, found.options, as_url, options):
            path = as_url[len(found.url) :].lstrip("/")
            return _in_store(found, path, url)
    if system == "http":
        return Place(WebFiles(url), "", url)
    bucket, _, path = root.partition("/")
    place = RemoteFiles(f"`{protocol}://{bucket}`", system, options, bucket)
    place.check()
    return Place(place, path, url)


def _system_of(protocol: str, url: str) -> tuple[str, dict[str, Any], str, str]:
    """(fsspec's protocol, its options, the path in it, the URL as datastores write theirs)."""
    parts = _parts(url)
    if protocol in ("http", "https"):
        host = parts.hostname or ""
        if host.endswith(_AZURE_HOSTS):
            root = parts.path.lstrip("/")
            return "http", {"account_name": host.partition(".")[0]}, root, f"abfs://{root}"
        return "http", {}, "", url
    if protocol in ("wasb", "wasbs", "abfs", "abfss", "az"):
        # container@account.blob.core.windows.net/path
        container, _, host = parts.netloc.rpartition("@")
        if not container:
            container, host = host, ""
        options: dict[str, Any] = {"account_name": host.partition(".")[0]} if host else {}
        root = f"{container}{parts.path}"
        return "abfs", {**options, "anon": True}, root, f"abfs://{root}"
    if protocol in ("sftp", "ssh", "smb", "ftp"):
        if not parts.hostname:
            raise InvalidInput(f"`{url}` names no host", f"write `{protocol}://host/path`")
        login = {"username": parts.username, "password": parts.password}
        options = {key: unquote(said) for key, said in login.items() if said}
        port = {"port": parts.port} if parts.port else {}
        return protocol, {"host": parts.hostname, **port, **options}, parts.path, url
    if protocol not in EXTRAS:
        _check_known(protocol, url)
    root = url.partition("://")[2]
    return protocol, {}, root, f"{protocol}://{root}"


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # Read as a number only when it is asked for.
    except ValueError as error:
        raise InvalidInput(f"`{url}` is no URL: {error}", "check its host and port") from error
    return parts


def _covers(
    datastore_url: str, datastore_options: dict[str, Any], url: str, options: dict[str, Any]
) -> bool:
    if not (url == datastore_url or url.startswith(datastore_url + "/")):
        return False
    account = options.get("account_name")
    return account is None or account == datastore_options.get("account_name")


def _check_known(protocol: str, url: str) -> None:
    from fsspec.registry import known_implementations

    if protocol not in known_implementations:
        raise InvalidInput(
            f"`{url}` has a protocol that is not served: `{protocol}`",
            "known ones: http, https, " + ", ".join(sorted(EXTRAS)),
        )


def _look(place: Place, type: str) -> None:
    """Is there something of that type? A place that is slow or away is not waited for."""
    told: list[TorchyardError] = []

    def look() -> None:
        try:
            _exists(place, type)
        except Unreachable:
            pass
        except TorchyardError as error:
            told.append(error)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(_LOOK_S)
    if told:
        raise told[0]


def _exists(place: Place, type: str) -> None:
    if place.files.entry(place.path) is not None:
        if type in ("uri_folder", "mltable"):
            raise InvalidInput(
                f"`{place.uri}` is a file, and the input is of type `{type}`",
                "write `type: uri_file`",
                code="type_mismatch",
            )
        return
    if not place.files.is_folder(place.path):
        raise NotFound(
            f"there is nothing at `{place.path}` in datastore `{place.store}`",
            "see what it holds; a datastore's paths begin at its own root",
        )
    if type == "uri_file":
        raise InvalidInput(
            f"`{place.uri}` is a folder, and the input is of type `uri_file`",
            "write `type: uri_folder`",
            code="type_mismatch",
        )


def _no_form(path: str) -> InvalidInput:
    return InvalidInput(
        f"`{path}` is not a path that data can lie at",
        "for example `azureml://datastores/workspaceblobstore/paths/folder`, "
        "`azureml:name@latest` or `https://host/file`",
    )
