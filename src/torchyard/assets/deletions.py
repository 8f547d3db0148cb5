"""Deletions of versions of assets: what is asked for, and what it did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeletionRequest:
    """`noun` is model, data or environment; an empty `version` stands for all versions.

    Args:
        force: delete it although ended jobs, components or aliases name it.
        dry_run: check everything and delete nothing.
    """

    noun: str
    workspace: str
    name: str
    version: str = ""
    force: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class DeletedVersion:
    """`size_bytes` of files are removed with the version; 0 where files stay."""

    name: str
    version: str
    size_bytes: int


@dataclass(frozen=True)
class AssetDeletion:
    """What was deleted, or would be; `breaks` says in sentences what no longer works."""

    versions: tuple[DeletedVersion, ...]
    breaks: tuple[str, ...] = ()
