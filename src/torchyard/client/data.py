"""Data assets of the workspace, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchyard.client import resources as read
from torchyard.client.assets import Asset, AssetDeletion, Assets, asset_fields
from torchyard.client.resources import Json


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DataAsset(Asset):
    """One version of a data asset.

    Args:
        path: where it lies.
        job: the job that made it; empty for others.
    """

    path: str
    job: str


class Data(Assets[DataAsset]):
    """Named, versioned files and folders that jobs take as inputs.

    Example::

        client.data.create({"name": "digits", "type": "uri_folder", "path": "./digits"})
        client.data.download("digits", "1", "copy")
    """

    kind = "data"
    noun = "data asset"

    def update(
        self,
        name: str,
        version: str,
        *,
        description: str | None = None,
        tags: Mapping[str, str | None] | None = None,
        properties: Mapping[str, str | None] | None = None,
    ) -> DataAsset:
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
        """Delete a version, or all of them, for good, with the files that were uploaded for it.

        Args:
            force: delete it although ended jobs name it; `breaks` says what
                no longer works.
            dry_run: check everything and delete nothing.

        Raises:
            NotFound: no such version exists.
            Conflict: something names it, or an unfinished job uses it; nothing was deleted.
        """
        return self._delete(name, version, force=force, dry_run=dry_run)

    def _asset(self, raw: Json) -> DataAsset:
        return DataAsset(
            **asset_fields(raw), path=read.text(raw, "path"), job=read.text(raw, "job")
        )
