"""Data assets of the workspace, over HTTP."""

from __future__ import annotations

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

    def delete(
        self, name: str, version: str = "", *, force: bool = False, dry_run: bool = False
    ) -> AssetDeletion:
        """Delete a version, or all of them, for good, with the files that were uploaded for it.

        Args:
            force: delete it although ended jobs name it; `breaks` says what
                no longer works.
            dry_run: check everything and delete nothing.

        Raises:
            NotFound: there is no such version.
            Conflict: something names it, or an unfinished job uses it; nothing was deleted.
        """
        return self._delete(name, version, force=force, dry_run=dry_run)

    def _asset(self, raw: Json) -> DataAsset:
        return DataAsset(
            **asset_fields(raw), path=read.text(raw, "path"), job=read.text(raw, "job")
        )
