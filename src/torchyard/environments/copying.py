"""Saving, cloning and exporting environments, and using one in a user's shell.

Owns: the definition of a curated environment or of a substitute; the JSON of the responses.
Leaves: registering to assets.py, exported files to export.py, saved ones to the client.
Always: a clone has the content of its source, but not its version and tags; changing one leaves
the other as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchyard.base.clock import Clock
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.environments import assets, export
from torchyard.environments.assembly import Environments
from torchyard.environments.names import catalogue, substitutes
from torchyard.environments.names.curated_environments import Curated
from torchyard.environments.packages.requirements import package_name
from torchyard.environments.types import REQUESTED, EnvironmentAsset, EnvironmentSpec


@dataclass(frozen=True)
class Named:
    """An environment by its name; `definition` is its inline form in a job file.

    `requested` is what its packages were resolved from, where they are all pinned now: a release
    resolves that again.
    """

    name: str
    version: str
    definition: dict[str, Any]
    description: str
    tags: dict[str, str]
    notices: tuple[str, ...]
    requested: Mapping[str, Any] | None = None


def resolve_reference(environments: Environments, workspace: str, reference: str) -> Named:
    """
    Raises:
        InvalidSpec: it is not a reference.
        NotFound: no environment has the name.
    """
    owned = assets.owned(environments.db, workspace)
    entry = catalogue.find(reference, environments.resolver.platform, owned, (), substitutes.allow)
    name, _, version = entry.ref.rpartition(":")
    notices = (entry.notice,) if entry.notice else ()
    if entry.curated is not None:
        description = entry.curated.description
        definition = _definition(entry.curated)
        requested = requested_of(entry.curated)
        return Named(name, version, definition, description, {}, notices, requested)
    asset = assets.get(environments.db, workspace, name, version)
    return Named(
        name, version, asset.definition, asset.description, asset.tags, notices, requested_by(asset)
    )


def clone(
    environments: Environments, clock: Clock, workspace: str, source: Named, name: str, owner: str
) -> EnvironmentAsset:
    """Register the next version of `name` with the content of another environment.

    A release of it resolves what a release of the other one would.

    Raises:
        InvalidSpec: the name is reserved or not valid.
    """
    words = {"description": source.description} if source.description else {}
    request = assets.read_document({"name": name, **source.definition, **words})
    if source.requested is not None:
        properties = {**request.properties, REQUESTED: json.dumps(source.requested)}
        request = replace(request, properties=properties)
    return assets.register(
        environments.db,
        clock,
        workspace,
        request,
        owner,
        lambda definition: environments.resolver.resolve(definition, workspace),
    )


def export_to_file(
    environments: Environments, workspace: str, environment: Any, form: str
) -> dict[str, Any]:
    """The environment as a file for use elsewhere: name, text, source of its packages, notices."""
    spec = environments.resolver.resolve(environment, workspace, enforce_policy=False)
    name = spec.ref or (environment.get("name") if isinstance(environment, dict) else "")
    return export_spec(environments, spec, form, str(name or "inline"))


def export_spec(
    environments: Environments, spec: EnvironmentSpec, form: str, name: str
) -> dict[str, Any]:
    """As `export_to_file`, of what a name was resolved to."""
    last, folder = environments.records.last(spec.hash), environments.folders.find(spec)
    python = ""
    if folder is not None and (folder / "pyvenv.cfg").exists():
        python = export.python_of((folder / "pyvenv.cfg").read_text("utf-8").splitlines())
    exported = export.export(spec, last.lock if last else "", python, form, name)
    return {**vars(exported), "name": name, "notices": [*spec.notices, *exported.notices]}


def use(environments: Environments, workspace: str, environment: Any) -> dict[str, Any]:
    """The folder of a built environment on the server's machine, for a shell there.

    Raises:
        NotFound: it is not built.
        InvalidInput: it is an image, which needs a container.
    """
    spec = environments.resolver.resolve(environment, workspace)
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


def requested_by(asset: EnvironmentAsset) -> Mapping[str, Any] | None:
    """What a version was resolved from, where that is not its own definition."""
    try:
        requested = json.loads(asset.properties[REQUESTED])
    except (KeyError, ValueError):
        return None
    return requested if isinstance(requested, dict) else None


def requested_of(curated: Curated) -> dict[str, Any]:
    """The requirements of a curated environment, and setuptools where it holds it: a conda file may
    else get an old one, as conda's `pip` would bring it.
    """
    lines = curated.requirements
    is_listed = "setuptools" in map(package_name, lines)
    if not is_listed and "setuptools" in map(package_name, curated.packages):
        lines = (*lines, "setuptools")
    return conda_file_of(curated.python, lines)


def conda_file_of(python: str, lines: Sequence[str]) -> dict[str, Any]:
    """The inline definition with a Python, exact or a range, and packages of pip."""
    is_exact = bool(python) and python[0].isdigit()
    dependencies: list[Any] = [f"python={python}" if is_exact else f"python{python}"]
    if lines:
        dependencies.append({"pip": list(lines)})
    return {"conda_file": {"channels": ["conda-forge"], "dependencies": dependencies}}


def _definition(curated: Curated) -> dict[str, Any]:
    """Its definition as a conda file, which also names the Python."""
    dependencies: list[Any] = [f"python={curated.python}" if curated.python else "python", "pip"]
    if curated.pinned:
        dependencies.append({"pip": list(curated.pinned)})
    return {"conda_file": {"channels": ["conda-forge"], "dependencies": dependencies}}
