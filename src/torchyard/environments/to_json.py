"""How environments look over HTTP.

Owns: the JSON of curated ones, of a workspace's own, of inline ones that were built.
Leaves: finding them to assets.py, names/curated_environments.py, builds to build/records.py.
Always: packages are those of a build where there was one, else those that are asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from torchyard.assets import versions
from torchyard.base.clock import to_text
from torchyard.base.errors import BuildFailed, InvalidSpec
from torchyard.environments import assets
from torchyard.environments.conda import conda_packages
from torchyard.environments.names import curated_environments
from torchyard.environments.names.curated_environments import Curated
from torchyard.environments.packages import lock
from torchyard.environments.services import Environments
from torchyard.environments.types import Build, EnvironmentAsset, EnvironmentSpec


def every(
    environments: Environments,
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
    own = assets.list_in(environments.db, workspace, name, archived)
    shown = [curated_to_json(one) for one in curated_environments.every() if name in ("", one.name)]
    shown += [asset_to_json(one) for one in own]
    named = set(_hashes(environments, workspace, own))
    for known in environments.records.all():
        if known.hash in asked_for and known.hash not in named and not name:
            shown.append(_inline(known))
    return shown


def _hashes(
    environments: Environments, workspace: str, own: Iterable[EnvironmentAsset]
) -> Iterator[str]:
    for one in own:
        # What could be had when it was registered may need something that is not here now.
        with suppress(InvalidSpec):
            yield _spec_of(environments, workspace, one).hash


def one(environments: Environments, workspace: str, name: str, version: str) -> dict[str, Any]:
    """
    Raises:
        NotFound: there is none of that name and version, with the nearest.
    """
    known = curated_environments.named(name.removeprefix("azureml:"))
    if known is not None and version in (versions.LATEST, known.version):
        return {
            **curated_to_json(known),
            **_build_of(environments, environments.resolver.resolve(known.name)),
        }
    asset = assets.get(environments.db, workspace, name, version)
    return {
        **asset_to_json(asset),
        **_build_of(environments, _spec_of(environments, workspace, asset)),
    }


def resolved(environments: Environments, workspace: str, asked: Any) -> dict[str, Any]:
    """What a reference or an inline definition means here, in all detail.

    `refused` says why no job may use it, `hint` what to do; both are absent where one may.
    """
    spec = environments.resolver.resolve(asked, workspace, is_judged=False)
    refusal: dict[str, str] = {}
    try:
        environments.resolver.resolve(asked, workspace)
        environments.builds.refuse_impossible(spec)
    except (InvalidSpec, BuildFailed) as error:
        refusal = {"refused": error.message, "hint": error.hint}
    return {
        **refusal,
        "ref": spec.ref,
        "python": spec.python,
        "requirements": list(spec.requirements),
        "platform": spec.platform,
        "notices": list(spec.notices),
        **_build_of(environments, spec),
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


def asset_to_json(asset: EnvironmentAsset) -> dict[str, Any]:
    said = {key: value for key, value in vars(asset).items() if key != "definition"}
    return {
        **asset.definition,
        **said,
        "created_at": to_text(asset.created_at),
        "status": "registered",
    }


def _spec_of(
    environments: Environments, workspace: str, asset: EnvironmentAsset
) -> EnvironmentSpec:
    """Of one that is registered, whether or not jobs may use it today."""
    return environments.resolver.resolve(
        f"{asset.name}:{asset.version}", workspace, is_judged=False
    )


def _build_of(environments: Environments, spec: EnvironmentSpec) -> dict[str, Any]:
    """What is known of its build: the locked packages, where the folder is."""
    last = environments.records.last(spec.hash)
    folder = environments.folders.find(spec)
    found: dict[str, Any] = {
        "hash": spec.hash,
        "build": "ready" if folder else last.status if last else "not built",
        "notices": list(spec.notices),
    }
    if last is not None and last.error:
        found["error"] = last.error
    if spec.image:
        found |= environments.images.shown(spec.image, folder)
    pins = lock.pins(last.lock) if last else {}
    if spec.conda:
        known = conda_packages.versions(last.lock) if last else {}
        written = [f"{name}={version}" for name, version in sorted(known.items())]
        found["conda_packages"] = written or list(spec.conda)
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
