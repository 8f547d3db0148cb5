"""What versioned assets have in common: versions, files, archiving.

Owns: requests for one version, for all versions of a name, for their files, for deleting them.
Leaves: the fields of each kind to models.py, data.py and components.py.
Always: `version` may be `latest`; an archived asset can still be read by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote

from torchyard.base.errors import InvalidInput
from torchyard.base.http import Transport
from torchyard.client import resources as read
from torchyard.client.job_reader import RemoteFile, remote_files
from torchyard.client.resources import Json, Listing, Resource

if TYPE_CHECKING:
    from torchyard.client.downloads import Counter
    from torchyard.client.snapshots.snapshots import Snapshots
    from torchyard.client.snapshots.upload import Progress


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Asset(Resource):
    """One version of a named asset.

    Args:
        created_at: aware, in UTC.
        owner: who registered it.
    """

    name: str
    version: str
    type: str
    description: str
    tags: Mapping[str, str]
    properties: Mapping[str, str]
    owner: str
    created_at: datetime
    archived: bool


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DeletedVersion(Resource):
    """A deleted version; `size_bytes` of files went with it, 0 where its files stay."""

    name: str
    version: str
    size_bytes: int

    _shown = ("name", "version", "size_bytes")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AssetDeletion(Resource):
    """What was deleted, or would be; `breaks` says in sentences what no longer works."""

    versions: tuple[DeletedVersion, ...]
    breaks: tuple[str, ...]

    _shown = ("versions", "breaks")


AnyAsset = TypeVar("AnyAsset", bound=Asset)
Paths = list[Path]


class Assets(Generic[AnyAsset]):
    """Versions of assets below `<workspace>/<kind>`."""

    kind = ""
    noun = ""

    def __init__(self, transport: Transport, workspace_path: str, snapshots: Snapshots) -> None:
        self._transport = transport
        self._workspace_path = workspace_path
        self._path = f"{workspace_path}/{self.kind}"
        self._snapshots = snapshots

    def create(
        self,
        document: Mapping[str, Any],
        folder: Path | None = None,
        progress: Progress | None = None,
    ) -> AnyAsset:
        """Register a version of `document["name"]`.

        Args:
            document: name, path and maybe version, type, description, tags; the path is a
                reference or URL, or names something on this machine, relative to `folder`.
            folder: the current one when None.
            progress: called as a local path is uploaded.

        Raises:
            InvalidInput: the local path does not exist, or is not of the given type.
        """
        from torchyard.client.snapshots.local_paths import is_elsewhere

        body = dict(document)
        path = body.get("path")
        if isinstance(path, str) and path and not is_elsewhere(path):
            body["path"] = self._upload(body, path, folder or Path.cwd(), progress)
        return self._asset(self._transport.post(self._path, body))

    def list(self, name: str = "", *, archived: bool = False) -> Listing[AnyAsset]:
        """The latest version of each; with `name`, all its versions.

        Args:
            archived: archived ones too.
        """
        query = {"name": name or None, "archived": "true" if archived else None}
        response = self._transport.get(self._path, query)
        return Listing(self._asset(row) for row in response["value"])

    def get(self, name: str, version: str = "latest") -> AnyAsset:
        """One version.

        Raises:
            NotFound: the version does not exist.
        """
        return self._asset(self._transport.get(self._version_path(name, version)))

    def files(self, name: str, version: str = "latest") -> Listing[RemoteFile]:
        """The files of a version.

        Raises:
            NotFound: the version does not exist.
        """
        return remote_files(self._transport.get(f"{self._version_path(name, version)}/files"))

    def download(
        self,
        name: str,
        version: str = "latest",
        folder: Path | str = ".",
        count: Counter | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Paths:
        """Download to `folder/<name>/…`; returns the files written.

        Args:
            count: gets the bytes to come, then those of each piece that came.
            timeout_s: how long it may take; None for as long as it takes.

        Raises:
            NotFound: the version does not exist.
            Timeout: it took longer than `timeout_s`; files that are there are whole.
        """
        listed = self.files(name, version)
        return self.fetch(name, version, listed, Path(folder) / name, count, timeout_s=timeout_s)

    def fetch(
        self,
        name: str,
        version: str,
        listed: Sequence[RemoteFile],
        folder: Path | str,
        count: Counter | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Paths:
        """Download some of a version's files to `folder`; returns them in their order.

        Args:
            listed: of `files(name, version)`.

        Raises:
            NotFound: the version, or a file of it, does not exist any more.
            Timeout: as of `download`.
        """
        from torchyard.client.downloads import RequestedFile, all_below, download_all

        here, bundle = self._version_path(name, version), f"{self._workspace_path}/bundle"
        targets = all_below(Path(folder), [file.path for file in listed])
        files = [
            RequestedFile(f"{here}/files/{quote(file.path)}", target, file.size_bytes, bundle)
            for file, target in zip(listed, targets, strict=True)
        ]
        return download_all(self._transport, files, count, timeout_s)

    def archive(self, name: str, version: str = "") -> None:
        """Hide a version, or all of them, from lists; jobs that name it still find it."""
        self._transport.post(f"{self._container_path(name, version)}/archive")

    def restore(self, name: str, version: str = "") -> None:
        """Undo `archive`."""
        self._transport.post(f"{self._container_path(name, version)}/restore")

    def _asset(self, raw: Json) -> AnyAsset:
        raise NotImplementedError

    def _upload(
        self, body: Mapping[str, Any], path: str, folder: Path, progress: Progress | None
    ) -> str:
        from torchyard.client.snapshots.local_paths import check_kind, local_path

        source = local_path(path, folder)
        if not source.exists():
            raise InvalidInput(
                f"the path `{path}` does not exist",
                "name a file or folder here, or a reference as "
                "`azureml://jobs/<job>/outputs/artifacts/paths/…`",
                at=("path",),
            )
        check_kind(body.get("type"), source, path, ("path",), self.noun)
        taken = self._snapshots.take(source, progress)
        return f"snapshot:{self._snapshots.send(taken, progress)}"

    def _container_path(self, name: str, version: str) -> str:
        if version:
            return self._version_path(name, version)
        return f"{self._path}/{quote(name, safe='')}"

    def _version_path(self, name: str, version: str) -> str:
        return f"{self._path}/{quote(name, safe='')}/versions/{quote(version, safe='')}"


class DeletableAssets(Assets[AnyAsset]):
    """Assets whose description can be changed, and which can be deleted."""

    def update(
        self,
        name: str,
        version: str,
        *,
        description: str | None = None,
        tags: Mapping[str, str | None] | None = None,
        properties: Mapping[str, str | None] | None = None,
    ) -> AnyAsset:
        """Change how a version is described; what is None stays as it is.

        Args:
            tags: merged with those it has; a tag of value None is removed.
            properties: merged likewise.

        Raises:
            NotFound: no such version exists.
        """
        changes = {"description": description, "tags": tags, "properties": properties}
        body = {key: value for key, value in changes.items() if value is not None}
        return self._asset(self._transport.call("PATCH", self._version_path(name, version), body))

    def delete(
        self, name: str, version: str = "", *, force: bool = False, dry_run: bool = False
    ) -> AssetDeletion:
        """Delete a version, or all of them, for good, with the files that are its own.

        Args:
            force: delete it although ended jobs, data or aliases name it; `breaks` says what
                no longer works.
            dry_run: check everything and delete nothing.

        Raises:
            NotFound: no such version exists.
            Conflict: something names it, or an unfinished job uses it; nothing was deleted.
        """
        path = self._container_path(name, version)
        return delete_asset(self._transport, path, force=force, dry_run=dry_run)


def delete_asset(transport: Transport, path: str, *, force: bool, dry_run: bool) -> AssetDeletion:
    """Delete the version, or all versions, at a path."""
    options = {"force": force, "dry_run": dry_run}
    raw = transport.delete(path, {key: "true" for key, value in options.items() if value})
    versions = tuple(
        DeletedVersion(
            raw=row, name=row["name"], version=row["version"], size_bytes=row["size_bytes"]
        )
        for row in raw["deleted"]
    )
    return AssetDeletion(raw=raw, versions=versions, breaks=read.texts(raw, "breaks"))


def asset_fields(raw: Json) -> dict[str, Any]:
    """What `Asset` holds, of an answer's JSON."""
    return {
        "raw": raw,
        "name": raw["name"],
        "version": read.text(raw, "version"),
        "type": read.text(raw, "type"),
        "description": read.text(raw, "description"),
        "tags": read.mapping(raw, "tags"),
        "properties": read.mapping(raw, "properties"),
        "owner": read.text(raw, "owner"),
        "created_at": read.moment(raw, "created_at"),
        "archived": bool(raw.get("archived")),
    }
