"""The environments that every workspace has: folders of this package.

Owns: reading `curated/<name>/`: `environment.yml` (its description), `requirements.txt` (its
requirements), `contents.json` (what a build of it held, written by `make curated`), and where
nobody has built it yet, `lock.txt` (what the requirements resolve to); `curated/variants.yml`, with
those that differ from one with a folder in some versions only.
Leaves: which name means which to catalogue.py, building to build/builder.py.
Always: the packages of a curated environment are those of a build of it; one that was never built
on a machine of its kind says so.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torchyard.environments.types import Accelerator

FOLDER = Path(__file__).parents[1] / "curated"
_CONTENTS = "contents.json"
_VARIANTS = "variants.yml"


@dataclass(frozen=True)
class Curated:
    """One environment of the package.

    An empty `python` means the platform's own. `accelerator` is what it needs: `cpu`, `cuda`, or
    empty for any. `twin` is the environment for the other accelerator. `contents` is empty where
    nobody has built it yet; then `locked` are the versions that a build will request.
    `variables` are those that Azure's image of that name sets. `unavailable` are components that it
    lacks, with `reason` and `instead` (components.py); `needs_gpu` are components that it holds and
    that run on a GPU only, with the same.
    """

    name: str
    version: str
    description: str
    python: str = ""
    accelerator: Accelerator | Literal[""] = ""
    twin: str = ""
    requirements: tuple[str, ...] = ()
    contents: Mapping[str, Any] = field(default_factory=dict)
    locked: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    unavailable: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    needs_gpu: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def packages(self) -> tuple[str, ...]:
        """`name==version` of everything in it, or its requirements where that is unknown."""
        versions = self.contents.get("packages")
        if not versions:
            return self.locked or self.requirements
        return tuple(f"{name}=={version}" for name, version in versions.items())

    @property
    def pinned(self) -> tuple[str, ...]:
        """What a build requests: every package in the version of its contents.

        The platform decides the build of torch; pip comes with Python.
        """
        versions = self.contents.get("packages")
        if not versions:
            return tuple(line.partition("+")[0] for line in self.locked or self.requirements)
        public = {name: version.partition("+")[0] for name, version in versions.items()}
        return tuple(f"{name}=={version}" for name, version in public.items() if name != "pip")


@functools.cache
def every() -> tuple[Curated, ...]:
    """Those with a folder, sorted by name."""
    return tuple(_read(folder) for folder in sorted(FOLDER.iterdir()) if folder.is_dir())


@functools.cache
def variants() -> tuple[Curated, ...]:
    """Those that take the place of published names only, and are not listed."""
    import yaml

    documents = yaml.safe_load((FOLDER / _VARIANTS).read_text(encoding="utf-8"))
    return tuple(_variant(name, document) for name, document in documents.items())


def find_by_name(name: str) -> Curated | None:
    """The environment of that name, written in any case."""
    lowered = name.lower()
    listed = (environment for environment in every() if environment.name.lower() == lowered)
    unlisted = (variant for variant in variants() if variant.name.lower() == lowered)
    return next(listed, None) or next(unlisted, None)


def contents_file(name: str) -> Path:
    """The file in which `make curated` writes the contents of a build."""
    return FOLDER / name / _CONTENTS


def _read(folder: Path) -> Curated:
    import yaml

    description = yaml.safe_load((folder / "environment.yml").read_text(encoding="utf-8"))
    contents, locked = folder / _CONTENTS, folder / "lock.txt"
    return Curated(
        name=folder.name,
        version=str(description["version"]),
        description=description["description"],
        python=str(description.get("python", "")),
        accelerator=description.get("accelerator", ""),
        twin=description.get("twin", ""),
        requirements=_lines(folder / "requirements.txt"),
        contents=json.loads(contents.read_text(encoding="utf-8")) if contents.exists() else {},
        locked=_lines(locked) if locked.exists() else (),
        variables=tuple(description.get("variables", {}).items()),
        unavailable=description.get("unavailable", {}),
        needs_gpu=description.get("needs_gpu", {}),
    )


def _variant(name: str, document: Mapping[str, Any]) -> Curated:
    like = next(environment for environment in every() if environment.name == document["like"])
    packages = document.get("packages", [])
    replaced = {_package(line) for line in (*packages, *document.get("without", ()))}
    inherited = [line for line in like.requirements if _package(line) not in replaced]
    return Curated(
        name=name,
        version=like.version,
        description=document["description"],
        python=document["python"],
        accelerator=document.get("accelerator", like.accelerator),
        twin=document.get("twin", ""),
        requirements=(*packages, *inherited),
        variables=like.variables,
        unavailable=like.unavailable,
    )


def _package(line: str) -> str:
    return line.partition("==")[0].lower()


def _lines(file: Path) -> tuple[str, ...]:
    lines = (
        line.partition(" #")[0].strip() for line in file.read_text(encoding="utf-8").split("\n")
    )
    return tuple(line for line in lines if line and not line.startswith("#"))
