"""The environments that every workspace has: folders of this package.

Owns: reading `curated/<name>/`: `environment.yml` (what is said of it), `requirements.txt` (what
is asked for), `contents.json` (what a build of it held, written by `make curated`), and where
nobody could build it yet, `lock.txt` (what those packages resolve to).
Leaves: which name means which to catalogue.py, building to build/builder.py.
Always: what is shown of a curated environment is what was found in a build of it; one that was
never built on a machine of its kind says so.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "curated"
_CONTENTS = "contents.json"


@dataclass(frozen=True)
class Curated:
    """One environment of the package.

    `python` empty means the platform's own. `accelerator` is what it needs: `cpu`, `cuda`, or
    empty where any will do. `twin` has the same for the other accelerator. `contents` is empty
    where nobody built it yet; then `locked` are the versions that a build will ask for.
    `variables` are those that Azure's image of that name sets.
    """

    name: str
    version: str
    description: str
    python: str = ""
    accelerator: str = ""
    twin: str = ""
    requirements: tuple[str, ...] = ()
    contents: Mapping[str, Any] = field(default_factory=dict)
    locked: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def packages(self) -> tuple[str, ...]:
        """`name==version` of everything in it, or what it asks for where that is not known."""
        found = self.contents.get("packages")
        if not found:
            return self.locked or self.requirements
        return tuple(f"{name}=={version}" for name, version in found.items())

    @property
    def pinned(self) -> tuple[str, ...]:
        """What a build asks for: every package in the version that its label names.

        Which build of torch it is, the platform decides; pip comes with Python.
        """
        found = self.contents.get("packages")
        if not found:
            return self.locked or self.requirements
        public = {name: version.partition("+")[0] for name, version in found.items()}
        return tuple(f"{name}=={version}" for name, version in public.items() if name != "pip")


@functools.cache
def every() -> tuple[Curated, ...]:
    """In order of name."""
    return tuple(_read(folder) for folder in sorted(FOLDER.iterdir()) if folder.is_dir())


def named(name: str) -> Curated | None:
    """In any case."""
    return next((one for one in every() if one.name.lower() == name.lower()), None)


def contents_file(name: str) -> Path:
    """Where `make curated` writes what it found in a build."""
    return FOLDER / name / _CONTENTS


def _read(folder: Path) -> Curated:
    import yaml

    said = yaml.safe_load((folder / "environment.yml").read_text(encoding="utf-8"))
    contents, locked = folder / _CONTENTS, folder / "lock.txt"
    return Curated(
        name=folder.name,
        version=str(said["version"]),
        description=said["description"],
        python=str(said.get("python", "")),
        accelerator=said.get("accelerator", ""),
        twin=said.get("twin", ""),
        requirements=_lines(folder / "requirements.txt"),
        contents=json.loads(contents.read_text(encoding="utf-8")) if contents.exists() else {},
        locked=_lines(locked) if locked.exists() else (),
        variables=tuple(said.get("variables", {}).items()),
    )


def _lines(file: Path) -> tuple[str, ...]:
    lines = (
        line.partition(" #")[0].strip() for line in file.read_text(encoding="utf-8").split("\n")
    )
    return tuple(line for line in lines if line and not line.startswith("#"))
