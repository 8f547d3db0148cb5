"""Environments taken elsewhere: saved, cloned, exported, or used by a person's shell.

Owns: the definition of a curated environment, and of what takes the place of a published one; what
is answered to those who take one.
Leaves: registering to assets.py, exported files to export.py, saved ones to the client.
Always: a clone has the content of what it was cloned from and nothing else of it: no version, no
tags; changing it leaves the other as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchyard.base.clock import Clock
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.environments import assets, export
from torchyard.environments.names import catalogue, substitutes
from torchyard.environments.names.curated_environments import Curated
from torchyard.environments.services import Environments
from torchyard.environments.types import EnvironmentAsset


@dataclass(frozen=True)
class Named:
    """An environment by its name; `definition` is what a job file may say inline of it."""

    name: str
    version: str
    definition: dict[str, Any]
    description: str
    tags: dict[str, str]
    notices: tuple[str, ...]


def named(environments: Environments, workspace: str, reference: str) -> Named:
    """
    Raises:
        InvalidSpec: it is no reference.
        NotFound: no environment has the name.
    """
    owned = assets.owned(environments.db, workspace)
    found = catalogue.find(reference, environments.resolver.platform, owned, (), substitutes.taken)
    name, _, version = found.ref.rpartition(":")
    notices = (found.notice,) if found.notice else ()
    if found.curated is not None:
        description = found.curated.description
        return Named(name, version, _definition(found.curated), description, {}, notices)
    asset = assets.get(environments.db, workspace, name, version)
    return Named(name, version, asset.definition, asset.description, asset.tags, notices)


def clone(
    environments: Environments, clock: Clock, workspace: str, source: Named, name: str, owner: str
) -> EnvironmentAsset:
    """Register the next version of `name` with the content of another environment.

    Raises:
        InvalidSpec: the name is reserved or none at all.
    """
    words = {"description": source.description} if source.description else {}
    asked = assets.read_document({"name": name, **source.definition, **words})
    return assets.register(
        environments.db,
        clock,
        workspace,
        asked,
        owner,
        lambda found: environments.resolver.resolve(found, workspace),
    )


def exported(environments: Environments, workspace: str, asked: Any, form: str) -> dict[str, Any]:
    """The environment as a file for elsewhere: its name, text and where its packages are from."""
    spec = environments.resolver.resolve(asked, workspace, is_judged=False)
    last, folder = environments.records.last(spec.hash), environments.folders.find(spec)
    python = ""
    if folder is not None and (folder / "pyvenv.cfg").exists():
        python = export.python_of((folder / "pyvenv.cfg").read_text("utf-8").splitlines())
    name = spec.ref or (asked.get("name") if isinstance(asked, dict) else "") or "inline"
    made = export.export(spec, last.lock if last else "", python, form, str(name))
    return {**vars(made), "name": name, "notices": [*spec.notices, *made.notices]}


def in_use(environments: Environments, workspace: str, asked: Any) -> dict[str, Any]:
    """Where a built environment lies on the server's machine, for a shell of somebody there.

    Raises:
        NotFound: it is not built.
        InvalidInput: it is a root file system, which needs a container.
    """
    spec = environments.resolver.resolve(asked, workspace)
    name = spec.ref or "inline"
    if spec.image is not None:
        raise InvalidInput(
            f"environment `{name}` is an image: a shell in it needs a container",
            "`yard environment export --format dockerfile` writes what builds it, then "
            "`podman run -it`",
        )
    folder = environments.builds.use(spec)
    if folder is None:
        raise NotFound(
            f"environment `{name}` is not built", f"build it: `yard environment build {name}`"
        )
    lock = environments.folders.shells_file(spec)
    return {"ref": spec.ref, "hash": spec.hash, "folder": str(folder), "lock": str(lock)}


def _definition(known: Curated) -> dict[str, Any]:
    """As a conda file, which says the Python, too."""
    dependencies: list[Any] = [f"python={known.python}" if known.python else "python", "pip"]
    if known.pinned:
        dependencies.append({"pip": list(known.pinned)})
    return {"conda_file": {"channels": ["conda-forge"], "dependencies": dependencies}}
