"""Data assets of the workspace, over HTTP."""

from __future__ import annotations

from dataclasses import dataclass

from torchyard.client import resources as read
from torchyard.client.assets import Asset, DeletableAssets, asset_fields
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


class Data(DeletableAssets[DataAsset]):
    """Named, versioned files and folders that jobs take as inputs.

    Example::

        client.data.create({"name": "digits", "type": "uri_folder", "path": "./digits"})
        client.data.download("digits", "1", "copy")
    """

    kind = "data"
    noun = "data asset"

    def _asset(self, raw: Json) -> DataAsset:
        return DataAsset(
            **asset_fields(raw), path=read.text(raw, "path"), job=read.text(raw, "job")
        )
