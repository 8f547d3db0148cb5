"""What a path of an input means.

Owns: pinning a path when a job is created, finding the files that a pinned path names.
Leaves: job outputs and models to the packages above, copying to fetching.py.
Always: a pinned path names the same data as long as the data itself stays; a URL inside a
datastore of the workspace is read with that datastore's credentials.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from sqlalchemy import Connection

from torchyard.base import refs
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound, TorchyardError, Unreachable
from torchyard.base.files import Stored
from torchyard.data import (
    assets,
    datastores,
    property_store,
    saved_datasets,
    several_files,
    store,
    uris,
    url_maps,
)
from torchyard.data.connections import EXTRAS, REFUSED
from torchyard.data.datastores import Datastores
from torchyard.data.folders import FolderFiles
from torchyard.data.remote import RemoteFiles
from torchyard.data.types import DATA_TYPES, Checksum, DataAsset, DataFile, Datastore, Files, Pinned
from torchyard.data.web import HOSTS, Container, WebFiles, url_of

# A slower datastore is checked again when the job is prepared.
_CHECK_TIMEOUT_S = 5.0
# A dataset may name thousands of URLs.
_MAP_NOTICES = 4
_ADDRESS_KEYS = ("account_name", "account_host", "endpoint_url", "host", "port")


@dataclass(frozen=True)
class DataLocation:
    """The files that a path names: `path` below `files`. `store` is empty for a plain URL.

    `source` distinguishes places with equal names in different workspaces.
    """

    files: Files
    path: str
    uri: str
    store: str = ""
    source: str = ""


def pin(
    db: Database,
    stores: Datastores,
    workspace: str,
    type: str,
    path: str,
    mode: str,
    *,
    may_be_missing: bool = False,
) -> Pinned:
    """What to write into the job instead of `path`; checked as far as checks are cheap.

    Args:
        type: the input's: uri_file, uri_folder, mltable or a model type.
        path: a datastore URI in either form, a data asset, or a URL.
        may_be_missing: whether the data may be written to its datastore later.

    Raises:
        InvalidInput: the path has no known form, its data another type, or an extra is missing.
        NotFound: no such datastore, asset, file or folder.
    """
    if saved_datasets.id_in(path):
        locate(db, stores, workspace, path)
        paths = [folder for folder, _ in _saved_paths(db, workspace, path)]
        return Pinned(path, _map_notices(db, workspace, paths))
    if _names_asset(path, workspace):
        asset = _asset(db, workspace, path)
        _check_type(type, asset)
        notices = _map_notices(db, workspace, [asset.uri])
        return Pinned(f"azureml:{asset.name}:{asset.version}", notices)
    pinned = _mapped(db, workspace, path)
    uri = uris.datastore(pinned.path, workspace)
    if uri is not None:
        pinned = Pinned(str(uri), pinned.notices)
    location = locate(db, stores, workspace, pinned.path)
    if location.store and mode != "direct":
        _check_exists(location, type, may_be_missing)
    return pinned


def refuse_deleted(db: Database, stores: Datastores, workspace: str, path: str) -> None:
    """Check again, without the network, that a pinned path names what may be deleted here.

    Raises:
        NotFound: the data asset, or what it names in the default datastore, was deleted since.
    """
    if saved_datasets.id_in(path):
        return  # it has no name that anybody could delete
    if _names_asset(path, workspace):
        _asset(db, workspace, path)
        return
    datastores.refuse_deleted(stores, workspace, path)


def locate(db: Database, stores: Datastores, workspace: str, path: str) -> DataLocation:
    """The place of a pinned path's files; reads none of them.

    Raises:
        InvalidInput: the path has no known form, or an extra is missing.
        NotFound: no such datastore or asset.
    """
    several = _several(db, stores, workspace, path)
    if several is not None:
        return several
    if _names_asset(path, workspace):
        return locate(db, stores, workspace, _asset(db, workspace, path).uri)
    path = _mapped(db, workspace, path).path
    uri = uris.datastore(path, workspace)
    if uri is not None:
        datastore = datastores.get(db, stores, workspace, uri.store)
        return _in_store(db, stores, datastore, uri.path, str(uri))
    protocol = uris.protocol_of(path)
    if not protocol or protocol == "azureml" or "::" in path:
        raise _unknown_form(path)
    if protocol in REFUSED:
        raise InvalidInput(
            f"`{path}` would read the server's own disk",
            "upload it: name a path beside the job file; or make a datastore of `type: local`",
        )
    return _of_url(db, stores, workspace, protocol, path)


def _several(db: Database, stores: Datastores, workspace: str, path: str) -> DataLocation | None:
    """The place of an unregistered dataset's files; None for other paths."""
    if not saved_datasets.id_in(path):
        return None
    parts = []
    for folder, pattern in _saved_paths(db, workspace, path):
        location = locate(db, stores, workspace, folder)
        name = several_files.name_of(folder)
        part = several_files.Part(name, location.files, location.path, location.uri, pattern)
        parts.append(part)
    return DataLocation(several_files.SeveralFiles(parts), "", path)


def _saved_paths(db: Database, workspace: str, path: str) -> list[tuple[str, str]]:
    """The paths of an unregistered dataset, with the pattern of each."""
    with db.read() as connection:
        dataset = saved_datasets.get(connection, workspace, saved_datasets.id_in(path))
    return saved_datasets.paths_of(dataset)


def _mapped(db: Database, workspace: str, path: str) -> Pinned:
    """What a URL is mapped to, with a notice; any other path as it is."""
    if uris.protocol_of(path) in ("", "azureml"):
        return Pinned(path)
    return url_maps.apply(url_maps.list_in(db, workspace), path)


def _map_notices(db: Database, workspace: str, paths: Iterable[str]) -> tuple[str, ...]:
    notices = [notice for path in paths for notice in _mapped(db, workspace, path).notices]
    if len(notices) > _MAP_NOTICES:
        more = f"this workspace maps {len(notices) - _MAP_NOTICES + 1} more URLs of it"
        notices = [*notices[: _MAP_NOTICES - 1], more]
    return tuple(notices)


def files_of(
    db: Database,
    stores: Datastores,
    asset: DataAsset,
    on_links: Callable[[int], None] = lambda count: None,
) -> list[DataFile]:
    """Every file of an asset, with its sha256 where that is known.

    Args:
        on_links: called with the number of links that its folder holds, if there are any; they
            are no files of it.

    Raises:
        NotFound: they were deleted.
        Unreachable: their datastore does not answer.
    """
    location = locate(db, stores, asset.workspace, asset.uri)
    checksums = checksums_of(db, asset.workspace, location)
    single = location.files.entry(location.path) if asset.type == "uri_file" else None
    if single is not None:
        name = location.path.rpartition("/")[2] or location.uri.rpartition("/")[2]
        checksum = checksums.get("")
        return [DataFile(name, single.size_bytes, checksum.sha256 if checksum else "")]
    if isinstance(location.files, FolderFiles):
        entries = location.files.walk(location.path, on_links)
    else:
        entries = location.files.walk(location.path)
    return [
        DataFile(entry.path, entry.size_bytes, _sha256(checksums.get(entry.path), entry.mark))
        for entry in entries
    ]


def delete_checksums(connection: Connection, workspace: str, name: str, folder: str) -> None:
    """Delete checksums and properties of the files below a folder that was deleted."""
    store.drop_checksums(connection, workspace, name, folder)
    property_store.drop_below(connection, workspace, name, folder)


def checksums_of(db: Database, workspace: str, location: DataLocation) -> dict[str, Checksum]:
    """Of the files that the server wrote there, by path below the place."""
    if not location.store:
        return {}
    top = location.path.strip("/")
    with db.read() as connection:
        rows = store.checksums_below(connection, workspace, location.store, top)
    start = len(top) + 1 if top else 0
    return {path[start:]: checksum for path, checksum in rows.items()}


def record_checksum(
    db: Database,
    workspace: str,
    store_name: str,
    files: Files,
    path: str,
    stored: Stored,
    job: str,
    now: datetime,
) -> str:
    """Store the sha256 of a file that a job has just written there.

    Returns:
        The job that wrote what was there before, empty for none.
    """
    entry = files.entry(path)
    row = {
        "workspace": workspace,
        "datastore": store_name,
        "path": path,
        "sha256": stored.sha256,
        "size_bytes": stored.size_bytes,
        "mark": entry.mark if entry else "",
        "job": job,
        "written_at": now,
    }
    with db.write() as connection:
        replaced = store.checksums_below(connection, workspace, store_name, path).get(path)
        store.put_checksums(connection, [row])
    return replaced.job if replaced else ""


def _sha256(checksum: Checksum | None, mark: str) -> str:
    return checksum.sha256 if checksum and checksum.mark == mark else ""


def _in_store(
    db: Database, stores: Datastores, datastore: Datastore, path: str, uri: str
) -> DataLocation:
    address = [str(datastore.options.get(key, "")) for key in _ADDRESS_KEYS]
    return DataLocation(
        datastores.open_files(db, stores, datastore),
        path,
        uri,
        datastore.name,
        " ".join([datastore.url, *address]),
    )


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


def _check_type(type: str, asset: DataAsset) -> None:
    if type not in DATA_TYPES or type == asset.type:
        return
    if type == "uri_folder" and asset.type == "mltable":
        return
    raise InvalidInput(
        f"data `{asset.name}:{asset.version}` is of type `{asset.type}`, and the input is of "
        f"type `{type}`",
        f"write `type: {asset.type}`",
        code="type_mismatch",
    )


def _of_url(
    db: Database, stores: Datastores, workspace: str, protocol: str, url: str
) -> DataLocation:
    system, options, root, as_url = _system_of(protocol, url)
    for datastore in datastores.list_in(db, stores, workspace):
        if _covers(datastore.url, datastore.options, as_url, options):
            path = as_url[len(datastore.url) :].lstrip("/")
            return _in_store(db, stores, datastore, path, url)
    public = _public_container(protocol, url)
    if public is not None:
        return public
    if system == "http":
        return DataLocation(WebFiles(url), "", url)
    bucket, _, path = root.partition("/")
    files = RemoteFiles(f"`{protocol}://{bucket}`", system, options, bucket)
    files.check()
    return DataLocation(files, path, url)


def _system_of(protocol: str, url: str) -> tuple[str, dict[str, Any], str, str]:
    """(fsspec's protocol, its options, the path in it, the URL as datastores write theirs)."""
    parts = _parts(url)
    if protocol in ("http", "https"):
        host = parts.hostname or ""
        if host.endswith(HOSTS):
            root = unquote(parts.path.lstrip("/"))
            return "http", {"account_name": host.partition(".")[0]}, root, f"abfs://{root}"
        return "http", {}, "", url
    if protocol in ("wasb", "wasbs", "abfs", "abfss", "az"):
        # container@account.blob.core.windows.net/path
        container, _, host = parts.netloc.rpartition("@")
        if not container:
            container, host = host, ""
        options: dict[str, Any] = {"account_name": host.partition(".")[0]} if host else {}
        # SDK v1 makes such a URL of an `https` one, whose path stays quoted.
        root = f"{container}{unquote(parts.path)}"
        return "abfs", {**options, "anon": True}, root, f"abfs://{root}"
    if protocol in ("sftp", "ssh", "smb", "ftp"):
        if not parts.hostname:
            raise InvalidInput(f"`{url}` names no host", f"write `{protocol}://host/path`")
        login = {"username": parts.username, "password": parts.password}
        options = {key: unquote(value) for key, value in login.items() if value}
        port = {"port": parts.port} if parts.port else {}
        return protocol, {"host": parts.hostname, **port, **options}, parts.path, url
    if protocol not in EXTRAS:
        _check_known(protocol, url)
    root = url.partition("://")[2]
    return protocol, {}, root, f"{protocol}://{root}"


def _public_container(protocol: str, url: str) -> DataLocation | None:
    """The place of a URL of Azure Blob, which needs no package; None for other URLs."""
    parts = _parts(url)
    host = parts.hostname or ""
    path = parts.path.lstrip("/")
    if not host.endswith(HOSTS):
        return None
    if protocol in ("http", "https"):
        container, _, path = unquote(path).partition("/")
    else:
        container, path = parts.username or "", unquote(path)
    if not container:
        return None
    files = Container(url_of(host.partition(".")[0], container), parts.query)
    return DataLocation(files, path.rstrip("/"), url)


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # Raises where the port is not a number.
    except ValueError as error:
        raise InvalidInput(f"`{url}` is not a URL: {error}", "check its host and port") from error
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
            f"`{url}` has an unsupported protocol: `{protocol}`",
            "supported protocols: http, https, " + ", ".join(sorted(EXTRAS)),
        )


def _check_exists(location: DataLocation, type: str, may_be_missing: bool) -> None:
    """Check that data of the type exists there, unless the place is slow or unreachable.

    Raises:
        InvalidInput: the data there is of another type.
        NotFound: there is nothing.
    """
    errors: list[TorchyardError] = []

    def check() -> None:
        try:
            _check_type_at(location, type)
        except Unreachable:
            pass
        except TorchyardError as error:
            if not (may_be_missing and isinstance(error, NotFound)):
                errors.append(error)

    thread = threading.Thread(target=check, daemon=True)
    thread.start()
    thread.join(_CHECK_TIMEOUT_S)
    if errors:
        raise errors[0]


def _check_type_at(location: DataLocation, type: str) -> None:
    if location.files.entry(location.path) is not None:
        if type in ("uri_folder", "mltable"):
            raise InvalidInput(
                f"`{location.uri}` is a file, and the input is of type `{type}`",
                "write `type: uri_file`",
                code="type_mismatch",
            )
        return
    if not location.files.is_folder(location.path):
        raise NotFound(
            f"there is nothing at `{location.path}` in datastore `{location.store}`",
            "list its files; a datastore's paths begin at its own root",
        )
    if type == "uri_file":
        raise InvalidInput(
            f"`{location.uri}` is a folder, and the input is of type `uri_file`",
            "write `type: uri_folder`",
            code="type_mismatch",
        )


def _unknown_form(path: str) -> InvalidInput:
    return InvalidInput(
        f"`{path}` is not a path of data",
        "for example `azureml://datastores/workspaceblobstore/paths/folder`, "
        "`azureml:name@latest` or `https://host/file`",
    )
