"""The folder of an environment that is an image: its files and variables.

Owns: `rootfs/` and `image.json` in it; which Python packages it holds; removing it.
Leaves: making it to build/image_builder.py, running in it to the worker.
Always: reading it needs no engine; no link, `PATH` or special file of an image leads a reader out
of it, or lets it wait.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from torchyard.environments.images.engine import ImageFacts
from torchyard.environments.packages.requirements import normal
from torchyard.shared.plan import ImagePlan

ROOT = "rootfs"
_FILE = "image.json"
_NAME = re.compile(r"^Name: *(\S+)", re.M)
_VERSION = re.compile(r"^Version: *(\S+)", re.M)
_MOST_LINKS = 40
_HEAD_BYTES = 1 << 20


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
    root = folder / ROOT
    versions: dict[str, str] = {}
    for packages in _site_packages(root, facts["variables"]):
        for information in sorted(packages.glob("*.*-info")):
            name, version = _identity(root, information)
            if name and version:
                versions.setdefault(normal(name), version)
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
        programs = _inside(root, name)
        if name and any(os.path.lexists(programs / program) for program in ("python3", "python")):
            library = _inside(root, str((programs.parent / "lib").relative_to(root)))
            found = (
                *library.glob("python3*/site-packages"),
                *library.glob("python3*/dist-packages"),
                *library.glob("python3/dist-packages"),
            )
            return [_inside(root, str(folder.relative_to(root))) for folder in found]
    return []


def _inside(root: Path, name: str) -> Path:
    """What a path means in the image: its links and its `..` end at the image's own root."""
    here, links = root, 0
    left = [part for part in name.split("/") if part not in ("", ".")][::-1]
    while left:
        part = left.pop()
        if part == "..":
            here = here.parent if here != root else root
            continue
        path = here / part
        if not path.is_symlink():
            here = path
            continue
        links += 1
        if links > _MOST_LINKS:
            return root
        target = os.readlink(path)
        here = root if target.startswith("/") else here
        left += [part for part in target.split("/") if part not in ("", ".")][::-1]
    return here


def _identity(root: Path, information: Path) -> tuple[str, str]:
    """Name and version of a package by its folder of metadata, or the file of an old one."""
    here = _inside(root, str(information.relative_to(root)))
    files = (here / "METADATA", here / "PKG-INFO") if here.is_dir() else (here,)
    for file in files:
        text = _head(_inside(root, str(file.relative_to(root))))
        name, version = _NAME.search(text), _VERSION.search(text)
        if name and version:
            return name[1], version[1]
    return "", ""


def _head(file: Path) -> str:
    """The beginning of a regular file; empty for anything else, such as a FIFO."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return os.read(descriptor, _HEAD_BYTES).decode("utf-8", "replace").partition("\n\n")[0]
    finally:
        os.close(descriptor)
