"""A release that passed its gates becomes a version.

Owns: the version's number, tags and properties.
Leaves: the asset to environments/assets.py, the gates to rounds.py.
Always: runs inside the transaction that ends the release; a base that was deleted since, or that is
no longer the newest, is not released from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torchyard.assets import deleted_versions
from torchyard.base.blobs import SNAPSHOT_PREFIX
from torchyard.base.errors import Conflict
from torchyard.environments import assets
from torchyard.environments.types import REQUESTED, WHEELS, WHEELS_BYTES, WHEELS_FOLDER
from torchyard.jobs.services import FileServices
from torchyard.releases.records.types import Record
from torchyard.releases.running import candidates
from torchyard.releases.vulnerabilities import locked
from torchyard.shared.sizes import size_text


def in_words(wheels: Mapping[str, Any]) -> str:
    """What is kept of the wheels of a version."""
    if wheels.get("error"):
        return f"its wheels are not kept: {wheels['error']}"
    without = wheels["without"]
    note = f"; none of {', '.join(without[:5])}" if without else ""
    folder = f" in `{wheels['folder']}`" if wheels.get("folder") else ""
    return f"kept wheels: {wheels['count']}, {size_text(wheels['size_bytes'])}{folder}{note}"


def _wheels(wheels: Mapping[str, Any]) -> dict[str, str]:
    """While a version has these properties, `yard gc` removes none of its wheels in the home."""
    if not wheels.get("count"):
        return {}
    if wheels.get("folder"):
        return {WHEELS_FOLDER: wheels["folder"], WHEELS_BYTES: str(wheels["size_bytes"])}
    return {
        WHEELS: f"{SNAPSHOT_PREFIX}{wheels['snapshot']}",
        WHEELS_BYTES: str(wheels["size_bytes"]),
    }


def register(services: FileServices, record: Record) -> str:
    """The version.

    Args:
        services: with the database joined to the caller's transaction.

    Raises:
        Conflict: another version was registered since the release began.
        NotFound: the base was deleted.
    """
    environments, workspace = services.environments, record.workspace
    latest = candidates.latest(services.db, environments, workspace, record.environment)
    if latest != record.base:
        raise Conflict(
            f"the newest version is `{latest}` now, and this release began from `{record.base}`",
            f"release again: `yard environment release {record.environment}`",
        )
    owned = assets.owned(services.db, workspace)(record.environment)
    base = candidates.base_of(environments, workspace, record.base)
    with services.db.read() as connection:
        deleted = deleted_versions.of_name(connection, workspace, "environment", record.environment)
    existing = [*(asset.version for asset in owned), *deleted]
    text = str(record.results["lock"])
    inherited = dict(base.asset.properties) if base.asset is not None else {}
    for key in (WHEELS, WHEELS_BYTES, WHEELS_FOLDER):
        inherited.pop(key, None)
    request = assets.EnvironmentRequest(
        name=record.environment,
        definition=dict(record.results["candidate"]),
        version=candidates.next_version(base, existing),
        description=base.asset.description if base.asset else candidates.description(base),
        tags=dict(base.asset.tags) if base.asset is not None else {},
        properties={
            **inherited,
            **_wheels(record.results["wheels"]),
            REQUESTED: json.dumps(record.results["requested"]),
            "torchyard.release": record.job,
            "torchyard.base": record.base,
            "torchyard.lock_sha256": locked.digest(text),
        },
    )
    asset = assets.register(
        services.db,
        services.clock,
        workspace,
        request,
        record.owner,
        lambda definition: environments.resolver.resolve(definition, workspace),
    )
    return asset.version
