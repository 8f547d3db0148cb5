"""What names a version of a model, of data or of an environment.

Owns: finding the jobs, components, data assets and aliases that name one; which files are its own.
Leaves: what follows from that to asset_deletion.py.
Always: a job names an asset by the reference or path that was pinned when it was submitted.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Text, cast, select

from torchyard.base import files, refs
from torchyard.base.db import Database
from torchyard.base.errors import TorchyardError
from torchyard.components import actions as components
from torchyard.data import assets as data
from torchyard.data import uris
from torchyard.data.datastores import BLOB_STORE, UPLOADS, Datastores
from torchyard.data.uris import DatastoreUri
from torchyard.environments import assets as environments
from torchyard.jobs.records import store
from torchyard.jobs.records.types import Status
from torchyard.models import registry

_LACKS = "lacks its input `{}` when it is run again"


@dataclass(frozen=True)
class AssetVersion:
    """A version of an asset of `noun`: model, data or environment."""

    noun: str
    asset: Any

    @property
    def workspace(self) -> str:
        return str(self.asset.workspace)

    @property
    def name(self) -> str:
        return str(self.asset.name)

    @property
    def version(self) -> str:
        return str(self.asset.version)

    @property
    def owner(self) -> str:
        return str(self.asset.owner)

    @property
    def files_uri(self) -> str:
        """The URI of its files; empty for an environment and for a model without files here."""
        if self.noun == "data":
            return str(self.asset.uri)
        folder = self.asset.folder if self.noun == "model" else ""
        return str(DatastoreUri(BLOB_STORE, folder)) if folder else ""

    def __str__(self) -> str:
        return f"{self.noun} `{self.name}:{self.version}`"


@dataclass(frozen=True)
class Use:
    """`by` names `asset`; `breaks` says what no longer works without it.

    `owner` and `unfinished_job` are empty where `by` is not a job.
    """

    asset: str
    by: str
    breaks: str
    owner: str = ""
    unfinished_job: str = ""


def find(db: Database, workspace: str, versions: Sequence[AssetVersion]) -> list[Use]:
    """What names these versions of one asset, which are to be deleted together."""
    uses: list[Use] = []
    going = [version.version for version in versions]
    for version in versions:
        if version.noun == "environment":
            uses += _of_environment(db, workspace, version, going)
            continue
        if version.noun == "model":
            uses += _of_model(db, version)
        else:
            uses += _jobs_naming(db, workspace, version)
        if version.files_uri:
            uses += _jobs_reading(db, workspace, version, going)
    return uses


def users_of_folder(db: Database, workspace: str, folder: str) -> set[str]:
    """Which assets and unfinished jobs name a folder of the default datastore; as in `Use.by`."""
    top = str(DatastoreUri(BLOB_STORE, folder))
    users = {
        f"data `{asset.name}:{asset.version}`"
        for asset in data.list_versions(db, workspace)
        if _is_below(asset.uri, top, workspace)
    }
    users |= {
        f"model `{model.name}:{model.version}`"
        for model in registry.all_versions(db, workspace, archived=True)
        if f"{model.folder}/".startswith(f"{folder}/")
    }
    users |= {
        f"job `{row.name}`"
        for row in _jobs_with(db, workspace, folder)
        if not Status(row.status).ended
        and any(_is_below(path, top, workspace) for _, path in _paths_of(row))
    }
    return users


def own_folder(db: Database, version: AssetVersion, going: Collection[str] = ()) -> str:
    """The folder of the default datastore that goes with a version of data; empty for none.

    Args:
        going: versions of the same name that are deleted as well.
    """
    uri = _datastore_uri(version.files_uri, version.workspace)
    if uri is None or uri.store != BLOB_STORE:
        return ""
    parts = uri.path.strip("/").split("/")
    if len(parts) < 2 or parts[0] != UPLOADS:
        return ""
    folder = "/".join(parts[:2])
    for other in data.list_versions(db, version.workspace):
        is_going = other.name == version.name and other.version in (version.version, *going)
        if not is_going and _is_below(
            other.uri, str(DatastoreUri(BLOB_STORE, folder)), other.workspace
        ):
            return ""
    return folder


def size_bytes(datastores: Datastores, version: AssetVersion, folder: str) -> int:
    """The bytes of files that are removed with a version; `folder` goes with one of data."""
    if version.noun == "model":
        return sum(file.size_bytes for file in version.asset.files)
    if not folder:
        return 0
    root = datastores.root(version.workspace, BLOB_STORE)
    return sum(size for _, size in files.walk(files.inside(root, folder)))


def _of_model(db: Database, version: AssetVersion) -> Iterator[Use]:
    for alias in registry.aliases_of(db, version.asset):
        yield Use(
            str(version),
            f"alias `{alias}`",
            f"`azureml:{version.name}@{alias}` names nothing",
        )
    for asset in data.list_versions(db, version.workspace) if version.files_uri else ():
        if _is_below(asset.uri, version.files_uri, version.workspace):
            by = f"data `{asset.name}:{asset.version}`"
            yield Use(str(version), by, f"{by} has no files")


def _of_environment(
    db: Database, workspace: str, version: AssetVersion, going: Collection[str]
) -> Iterator[Use]:
    reference = f"{version.name}:{version.version}"
    for row in _jobs_with(db, workspace, reference):
        # A sweep's is its trial's.
        written = (row.spec.get("trial") or row.spec).get("environment")
        if isinstance(written, str) and written.removeprefix("azureml:") == reference:
            yield _use_of_job(row, version, "can't be run again")
    all_versions = environments.list_versions(db, workspace, version.name)
    is_last = all(asset.version in going for asset in all_versions)
    for component in components.list_versions(db, workspace):
        ref = _reference(component.definition.get("environment"))
        if ref is None or ref.name != version.name or ref.registry:
            continue
        if ref.version == version.version or (is_last and not ref.version):
            by = f"component `{component.name}:{component.version}`"
            yield Use(str(version), by, f"{by} can't be run")


def _jobs_naming(db: Database, workspace: str, version: AssetVersion) -> Iterator[Use]:
    """Jobs that take a version of data by its name."""
    reference = f"azureml:{version.name}:{version.version}"
    for row in _jobs_with(db, workspace, reference):
        for name, path in _paths_of(row):
            if path == reference:
                yield _use_of_job(row, version, _LACKS.format(name))
                break


def _jobs_reading(
    db: Database, workspace: str, version: AssetVersion, going: Collection[str]
) -> Iterator[Use]:
    """Jobs that take files by their path, which go with the version."""
    uri = _datastore_uri(version.files_uri, workspace)
    goes = version.noun == "model" or own_folder(db, version, going)
    if uri is None or not goes:
        return
    for row in _jobs_with(db, workspace, uri.path.rstrip("/")):
        for name, path in _paths_of(row):
            if _is_below(path, version.files_uri, workspace):
                yield _use_of_job(row, version, _LACKS.format(name))
                break


def _paths_of(row: Row[Any]) -> Iterator[tuple[str, str]]:
    """(name, path) of the inputs of a job that are data."""
    for name, job_input in (row.spec.get("inputs") or {}).items():
        path = job_input.get("path") if isinstance(job_input, Mapping) else None
        if isinstance(path, str):
            yield name, path


def _use_of_job(row: Row[Any], version: AssetVersion, breaks: str) -> Use:
    by = f"job `{row.name}`"
    unfinished = "" if Status(row.status).ended else row.name
    return Use(str(version), by, f"{by} {breaks}", row.owner, unfinished)


def _jobs_with(db: Database, workspace: str, text: str) -> list[Row[Any]]:
    """Jobs whose document may hold a text, newest first."""
    jobs = store.jobs
    # As JSON writes it: without its quotes, with other characters escaped.
    needle = json.dumps(text)[1:-1]
    query = (
        select(jobs.c.name, jobs.c.status, jobs.c.owner, jobs.c.spec)
        .where(
            jobs.c.workspace == workspace,
            ~store.IS_RUN,
            jobs.c.deleted.is_(False),
            cast(jobs.c.spec, Text).contains(needle, autoescape=True),
        )
        .order_by(jobs.c.id.desc())
    )
    with db.read() as connection:
        return list(connection.execute(query))


def _is_below(path: str, top: str, workspace: str) -> bool:
    """Whether a path is `top` or lies below it."""
    inner, outer = (_datastore_uri(text, workspace) for text in (path, top))
    if inner is None or outer is None:
        return path.rstrip("/") == top.rstrip("/")
    folder = outer.path.strip("/")
    is_inside = inner.path.strip("/") == folder or inner.path.startswith(f"{folder}/")
    return inner.store == outer.store and (is_inside or not folder)


def _datastore_uri(text: str, workspace: str) -> DatastoreUri | None:
    try:
        return uris.datastore(text, workspace)
    except TorchyardError:
        return None


def _reference(written: Any) -> refs.Ref | None:
    try:
        return refs.parse(written) if isinstance(written, str) else None
    except TorchyardError:
        return None
