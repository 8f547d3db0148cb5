"""The next version of an environment: what it begins from, its new lock, what moved.

Owns: what is resolved again, the definition that a lock becomes, the list of changes, the version's
number.
Leaves: resolving and building to environments/build/, names to environments/.
Always: the same requested lines are resolved again, so limits stay; the definition pins every
package that the lock has, and so builds the same packages anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput
from torchyard.environments import assets, copying
from torchyard.environments.assembly import Environments
from torchyard.environments.names import catalogue, curated_environments, substitutes
from torchyard.environments.packages import lock, python_choice
from torchyard.environments.packages.requirements import package_name
from torchyard.environments.types import EnvironmentAsset, EnvironmentSpec
from torchyard.releases.vulnerabilities import locked


@dataclass(frozen=True)
class Base:
    """The version that a release begins from.

    `requested` is the inline definition that is resolved again; `asset` is None for a curated one
    of the package.
    """

    name: str
    version: str
    requested: Mapping[str, Any]
    asset: EnvironmentAsset | None = None

    @property
    def ref(self) -> str:
        return f"{self.name}:{self.version}"


def base_of(environments: Environments, workspace: str, reference: str) -> Base:
    """
    Raises:
        NotFound: no environment has the name.
        InvalidInput: it is not one that a release can resolve.
    """
    platform = environments.resolver.platform
    owned = assets.owned(environments.db, workspace)
    entry = catalogue.find(reference, platform, owned, (), substitutes.allow)
    name, _, version = entry.ref.rpartition(":")
    if entry.notice:
        raise InvalidInput(
            f"`{reference}` is not here: {entry.notice}", f"name it as it is here: `{entry.ref}`"
        )
    if entry.definition is not None:
        asset = assets.get(environments.db, workspace, name, version)
        return Base(name, version, copying.requested_by(asset) or asset.definition, asset)
    assert entry.curated is not None
    if entry.curated.variables:
        raise InvalidInput(
            f"environment `{name}` sets variables of Azure's image, which a release can't carry",
            f"release a copy: `yard environment clone -n {name} --new-name my-{name}`",
        )
    return Base(name, version, copying.requested_of(entry.curated))


def latest(db: Database, environments: Environments, workspace: str, name: str) -> str:
    """The newest version of a name, as `name:version`.

    Raises:
        NotFound: no environment has the name.
    """
    owned = assets.owned(db, workspace)
    entry = catalogue.find(name, environments.resolver.platform, owned, (), substitutes.allow)
    return entry.ref


def description(base: Base) -> str:
    """What the package says of a curated environment."""
    curated = curated_environments.find_by_name(base.name)
    return curated.description if curated is not None else ""


def to_resolve(
    environments: Environments, workspace: str, base: Base, mark: str
) -> EnvironmentSpec:
    """What a build has to resolve again.

    Args:
        mark: sets it apart from the build of the base, whose lock stays.

    Raises:
        InvalidInput: it holds more than packages from an index.
    """
    spec = environments.resolver.resolve(base.requested, workspace)
    if spec.image is not None:
        raise InvalidInput(
            f"environment `{base.ref}` is an image, and torchyard resolves packages only",
            "release the image where it is built, and register its new tag: "
            f"`yard environment create -n {base.name} -i IMAGE`",
        )
    if spec.conda:
        raise InvalidInput(
            f"environment `{base.ref}` holds conda packages ({', '.join(spec.conda[:3])}), which "
            "a release can't resolve again",
            "list packages that PyPI has, too, under `pip:`",
        )
    return replace(spec, resolution=mark)


def is_pinned(spec: EnvironmentSpec) -> bool:
    """Whether it names one version of each package, so that nothing of them can move."""
    return all(("==" in line and "*" not in line) or "@" in line for line in spec.packages)


def definition_of(spec: EnvironmentSpec, text: str) -> dict[str, Any]:
    """The inline definition that pins what the lock of a spec holds, and its layers."""
    requested = {package_name(line) for line in spec.packages}
    lines = list(spec.options)
    for name, version in lock.pins(text).items():
        if "/" in version:
            lines.append(f"{name} @ {version}")
        elif name != "pip" or name in requested:
            # The platform decides the build of torch.
            lines.append(f"{name}=={version.partition('+')[0]}")
    lines += [name for name in spec.layers if name not in requested]
    taken = python_choice.in_lock(text)
    return copying.conda_file_of(taken.python if taken is not None else spec.python, lines)


def versions_of_base(environments: Environments, workspace: str, base: Base) -> dict[str, str]:
    """The packages of the base with their versions; empty where it was never built."""
    if base.asset is None:
        curated = curated_environments.find_by_name(base.name)
        assert curated is not None
        return _versions(curated.packages)
    spec = environments.resolver.resolve(base.ref, workspace, enforce_policy=False)
    last = environments.records.last(spec.hash)
    text = last.lock if last is not None else ""
    return {package.name: package.version for package in locked.packages(text, spec.layers)}


def _versions(lines: Sequence[str]) -> dict[str, str]:
    pairs = (line.partition("==") for line in lines)
    return {name: version for name, mark, version in pairs if mark}


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[dict[str, str]]:
    """What moved, by name: `change` is `new`, `gone` or `moved`; local parts don't count."""
    rows = []
    for name in sorted({*before, *after}):
        old, new = before.get(name, ""), after.get(name, "")
        # pip comes with Python, and is in a lock only where it was requested.
        is_bundled = name == "pip" and not (old and new)
        if is_bundled or old.partition("+")[0] == new.partition("+")[0]:
            continue
        change = "moved" if old and new else "new" if new else "gone"
        rows.append({"package": name, "change": change, "from": old, "to": new})
    return rows


def in_words(rows: Sequence[Mapping[str, str]]) -> str:
    """A changelog: a line for each package."""
    words = {"moved": "{from} → {to}", "new": "new, {to}", "gone": "gone, was {from}"}
    return "\n".join(f"{row['package']}: {words[row['change']].format(**row)}" for row in rows)


def next_version(base: Base, existing: Sequence[str]) -> str:
    """Of a curated environment `<its version>.<n>`; empty where the next whole number is meant.

    Args:
        existing: the versions of the name in the workspace, deleted ones too.
    """
    curated = curated_environments.find_by_name(base.name)
    if curated is None:
        return ""
    prefix = f"{curated.version}."
    numbers = [
        int(version.removeprefix(prefix))
        for version in existing
        if version.startswith(prefix) and version.removeprefix(prefix).isdecimal()
    ]
    return f"{prefix}{max(numbers, default=0) + 1}"
