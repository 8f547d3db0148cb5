"""The folder of an environment that is an image: its files and variables.

Owns: `rootfs/` and `image.json` in it; which Python packages it holds; removing it.
Leaves: making it to build/image_builder.py, running in it to the worker.
Always: reading it needs no engine.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from torchyard.environments.images.engine import ImageFacts
from torchyard.environments.packages.requirements import normal
from torchyard.shared.plan import ImagePlan

ROOT = "rootfs"
_FILE = "image.json"


def write(folder: Path, facts: ImageFacts, tags: Iterable[str], engine: str) -> None:
    body = {
        "id": facts.id,
        "digest": facts.digest,
        "variables": dict(facts.variables),
        "folder": facts.folder,
        "user": facts.user,
        "size_bytes": facts.size_bytes,
        "engine": engine,
        "images": list(tags),
    }
    (folder / _FILE).write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


def read(folder: Path) -> dict[str, Any] | None:
    """What `write` wrote; None for an environment that is not an image."""
    try:
        body: dict[str, Any] = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return body


def plan(folder: Path, visible: Iterable[Path]) -> ImagePlan | None:
    """The plan for nodes; None for an environment that is not an image."""
    facts = read(folder)
    if facts is None:
        return None
    return ImagePlan(
        rootfs=str(folder / ROOT),
        variables=facts["variables"],
        visible=[str(path) for path in visible],
    )


def packages_as_lock(folder: Path) -> str:
    """`name==version` lines, of the Python that is first on the image's PATH."""
    facts = read(folder)
    assert facts is not None
    paths = _site_packages(folder / ROOT, facts["variables"])
    versions = {
        normal(distribution.metadata["Name"]): distribution.version
        for distribution in distributions(path=[str(path) for path in paths])
        if distribution.metadata["Name"]
    }
    return "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))


def remove(folder: Path) -> None:
    """Remove the folder, even where it has no write bits."""

    def make_writable(act: Callable[..., Any], path: str, _: Any) -> None:
        try:
            os.chmod(os.path.dirname(path), 0o700)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
            act(path)
        except OSError:
            pass  # the next build removes the rest

    if folder.exists():
        shutil.rmtree(folder, onerror=make_writable)


def _site_packages(root: Path, variables: Mapping[str, str]) -> list[Path]:
    for name in variables.get("PATH", "").split(":"):
        programs = root / name.lstrip("/")
        if name and any(os.path.lexists(programs / program) for program in ("python3", "python")):
            library = programs.parent / "lib"
            return [
                *library.glob("python3*/site-packages"),
                *library.glob("python3*/dist-packages"),
                *library.glob("python3/dist-packages"),
            ]
    return []
