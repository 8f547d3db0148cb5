"""Deleting and hiding versions of assets.

Owns: the JSON of a deletion, the routes of models, data and environments; the routes that archive
and restore versions, of components too.
Leaves: what names an asset, and removing it, to jobs/cleanup/asset_deletion.py.
Always: a data scientist deletes only what is their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fastapi import APIRouter

from torchyard.assets.deletions import DeletionRequest
from torchyard.base.db import Database
from torchyard.base.dependencies import DatabaseOf
from torchyard.workspaces.guarded_routes import Person, needs
from torchyard.workspaces.hooks import Hooks, HooksOf
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity, Role

Archive = Callable[[Database, str, str, str, bool, str], dict[str, Any]]


def add_delete_routes(router: APIRouter, prefix: str, noun: str) -> None:
    """Add the routes that delete all versions of an asset, and one of them.

    Args:
        prefix: in front of the asset's name.
        noun: as in `DeletionRequest`.
    """

    @router.delete(f"{prefix}/{{name}}")
    @needs(Permission.WRITE)
    def delete(
        hooks: HooksOf,
        workspace: str,
        name: str,
        identity: Person,
        force: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        request = DeletionRequest(noun, workspace, name, "", force, dry_run)
        return _delete(hooks, request, identity)

    @router.delete(f"{prefix}/{{name}}/versions/{{version}}")
    @needs(Permission.WRITE)
    def delete_version(
        hooks: HooksOf,
        workspace: str,
        name: str,
        version: str,
        identity: Person,
        force: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        request = DeletionRequest(noun, workspace, name, version, force, dry_run)
        return _delete(hooks, request, identity)


def add_archive_routes(router: APIRouter, prefix: str, archive: Archive) -> None:
    """Add the routes that hide all versions of an asset, or one of them, and show them again.

    Args:
        prefix: in front of the asset's name.
        archive: (database, workspace, name, version or empty, whether to hide, user) to an answer.
    """
    for verb, archived in (("archive", True), ("restore", False)):
        _add_archive_routes(router, prefix, archive, verb, archived)


def _add_archive_routes(
    router: APIRouter, prefix: str, archive: Archive, verb: str, archived: bool
) -> None:
    @router.post(f"{prefix}/{{name}}/{verb}", name=verb)
    @needs(Permission.WRITE)
    def hide_or_show(db: DatabaseOf, workspace: str, name: str, identity: Person) -> dict[str, Any]:
        return archive(db, workspace, name, "", archived, identity.user)

    @router.post(f"{prefix}/{{name}}/versions/{{version}}/{verb}", name=f"{verb} version")
    @needs(Permission.WRITE)
    def hide_or_show_version(
        db: DatabaseOf, workspace: str, name: str, version: str, identity: Person
    ) -> dict[str, Any]:
        return archive(db, workspace, name, version, archived, identity.user)


def _delete(hooks: Hooks, request: DeletionRequest, identity: Identity) -> dict[str, Any]:
    """
    Raises:
        NotFound: the version does not exist.
        Conflict: something names it, or an unfinished job uses it; nothing was deleted.
        Forbidden: it belongs to another person.
    """
    limited = replace(identity, own_only=identity.role is Role.DATA_SCIENTIST)
    done = hooks.delete_assets(request, limited)
    return {
        "deleted": [dict(vars(version)) for version in done.versions],
        "breaks": list(done.breaks),
        "dry_run": request.dry_run,
    }
