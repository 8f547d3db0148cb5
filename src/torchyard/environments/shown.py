"""How environments look over HTTP.

Owns: the JSON of curated ones, of a workspace's own, of inline ones that were built.
Leaves: finding them to assets.py, curated.py and actions.py.
Always: packages are those of a build where there was one, else those that are asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torchyard.base.clock import to_text
from torchyard.data import versions
from torchyard.environments import assets, curated, lock
from torchyard.environments.actions import Environments
from torchyard.environments.curated import Curated
from torchyard.environments.types import Build, EnvironmentAsset, EnvironmentSpec


def every(
    room: Environments,
    workspace: str,
    asked_for: Collection[str],
    name: str = "",
    archived: bool | None = False,
) -> list[dict[str, Any]]:
    """Curated ones, the workspace's own, then inline ones that its jobs asked for.

    Args:
        name: all versions of this one only.
        archived: None takes archived ones too.
    """
    own = assets.list_in(room.db, workspace, name, archived)
    shown = [curated_to_json(one) for one in curated.every() if name in ("", one.name)]
    shown += [asset_to_json(room, one) for one in own]
    named = {room.resolve(f"{one.name}:{one.version}", workspace).hash for one in own}
    for known in room.builds():
        if known.hash in asked_for and known.hash not in named and not name:
            shown.append(_inline(known))
    return shown


def one(room: Environments, workspace: str, name: str, version: str) -> dict[str, Any]:
    """
    Raises:
        NotFound: there is none of that name and version, with the nearest.
    """
    known = curated.named(name.removeprefix("azureml:"))
    if known is not None and version in (versions.LATEST, known.version):
        return {**curated_to_json(known), **_build_of(room, room.resolve(known.name))}
    asset = assets.get(room.db, workspace, name, version)
    spec = room.resolve(f"{asset.name}:{asset.version}", workspace)
    return {**asset_to_json(room, asset), **_build_of(room, spec)}


def resolved(room: Environments, workspace: str, asked: Any) -> dict[str, Any]:
    """What a reference or an inline definition means here, in all detail."""
    spec = room.resolve(asked, workspace)
    return {
        "ref": spec.ref,
        "python": spec.python,
        "requirements": list(spec.requirements),
        "platform": spec.platform,
        "notices": list(spec.notices),
        **_build_of(room, spec),
    }


def curated_to_json(known: Curated) -> dict[str, Any]:
    contents = known.contents
    return {
        "name": known.name,
        "version": known.version,
        "description": known.description,
        "python": contents.get("python") or known.python,
        "torch": contents.get("torch", ""),
        "cuda": contents.get("cuda", ""),
        "packages": list(known.packages),
        "size_bytes": contents.get("size_bytes"),
        "status": "curated" if contents or not known.requirements else "curated, not built here",
        "archived": False,
        "tags": {},
    }


def asset_to_json(room: Environments, asset: EnvironmentAsset) -> dict[str, Any]:
    said = {key: value for key, value in vars(asset).items() if key != "definition"}
    return {
        **asset.definition,
        **said,
        "created_at": to_text(asset.created_at),
        "status": "registered",
    }


def _build_of(room: Environments, spec: EnvironmentSpec) -> dict[str, Any]:
    """What is known of its build: the locked packages, where the folder is."""
    last = room.last_build(spec)
    folder = room.is_built(spec)
    found: dict[str, Any] = {
        "hash": spec.hash,
        "build": "ready" if folder else last.status if last else "not built",
        "notices": list(spec.notices),
    }
    if last is not None and last.error:
        found["error"] = last.error
    pins = lock.pins(last.lock) if last else {}
    if pins:
        found["packages"] = _written(pins)
    elif spec.packages:
        found["packages"] = list(spec.packages)
    return found


def _inline(known: Build) -> dict[str, Any]:
    return {
        "name": f"inline-{known.hash[:12]}",
        "version": "1",
        "description": known.error,
        "python": known.spec.python,
        "packages": _written(lock.pins(known.lock)) or list(known.spec.packages),
        "status": known.status,
        "archived": False,
        "tags": {},
    }


def _written(pins: Mapping[str, str]) -> list[str]:
    return [f"{name}=={version}" for name, version in pins.items()]
