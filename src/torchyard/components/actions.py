"""What can be done with components.

Owns: versions, finding the same component again, archiving.
Leaves: a document's grammar to documents.py, running one to jobs/.
Always: of an existing version only description, tags and properties change; anonymous components
with the same content are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torchyard.assets import versions
from torchyard.assets.versioned_assets import VersionedAssets
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.components import documents, store
from torchyard.components.types import Component
from torchyard.workspaces import ownership

LATEST = versions.LATEST

_components = VersionedAssets("component", store.versions, ownership.Assets())
get = _components.get
versions_of = _components.versions_of
list_in = _components.list_in
list_versions = _components.list_versions
archive = _components.archive
delete_all = _components.delete_all


def register(
    db: Database,
    clock: Clock,
    workspace: str,
    document: Mapping[str, Any],
    owner: str,
    *,
    anonymous: bool = False,
) -> tuple[Component, bool]:
    """Give a component a version, the next whole number unless the document names one.

    Returns it, and whether it is new: the same content again is the existing version, with the
    new description, tags and properties.

    Raises:
        InvalidSpec: the document is wrong.
        Conflict: the version that it names exists with another content.
        Forbidden: the name, or the version, is another's.
    """
    request = documents.read(document)
    with db.write() as connection:
        existing = store.versions.list_in(connection, workspace, request.name)
        component = next((old for old in existing if old.version == request.version), None)
        if component is None and anonymous:
            component = next((old for old in existing if old.hash == request.hash), None)
        if component is not None and component.hash != request.hash:
            raise versions.other_content("component", request.name, request.version)
        if component is not None:
            described = replace(
                component,
                description=request.description,
                tags=request.tags,
                properties=request.properties,
            )
            if described != component:
                if not anonymous:
                    _components.refuse_changing(connection, component, owner)
                store.versions.describe(connection, described)
            return described, False
        if not anonymous:
            _components.refuse_adding(connection, existing, owner)
        component = Component(
            workspace=workspace,
            name=request.name,
            version=request.version or versions.next_of(old.version for old in existing),
            type=request.type,
            definition=request.definition,
            hash=request.hash,
            created_at=clock.now(),
            owner=owner,
            description=request.description,
            tags=request.tags,
            properties=request.properties,
            anonymous=anonymous,
        )
        store.versions.add(connection, component)
    return component, True
