"""A folder of wheels that the server's owner names, so that they outlive index and home.

Owns: which wheels of a lock it has, putting wheels there.
Leaves: getting and installing them to kept_wheels.py, when that is done to builds.py.
Always: a wheel is taken by its hash, whatever its name says; none is ever removed; the files are
plain ones, so that the folder is one for `--find-links`, too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from torchyard.base import files
from torchyard.base.errors import BuildFailed, InvalidInput


def check(folder: Path) -> None:
    """
    Raises:
        InvalidInput: it is not a folder that the server can write to.
    """
    if not folder.is_dir():
        raise InvalidInput(
            f"`{folder}`, where wheels are to be kept, is not a folder",
            f"make it: `mkdir -p {folder}`, or mount it before the server starts",
        )
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise InvalidInput(
            f"the server can't write to `{folder}`, where wheels are to be kept",
            "give its user the folder, or name another one",
        )


def find(folder: Path, lines: Mapping[str, str], versions: Mapping[str, str]) -> dict[str, Path]:
    """The wheels that it has of a lock, by package.

    Args:
        lines: by package its lines of the lock, with hashes.
        versions: by package the version of the lock, or a URL.
    """
    wheels: dict[str, Path] = {}
    for file in sorted(folder.rglob("*.whl")):
        try:
            name, version, _, _ = parse_wheel_filename(file.name)
        except (InvalidWheelFilename, InvalidVersion):
            continue
        is_meant = name in lines and name not in wheels and _is(version, versions.get(name, ""))
        if is_meant and f"--hash=sha256:{sha256_of(file)}" in lines[name]:
            wheels[canonicalize_name(name)] = file
    return wheels


def put(folder: Path, wheel: Path) -> None:
    """Put a wheel there, unless it has it.

    Raises:
        BuildFailed: it can't be written.
    """
    sha256 = sha256_of(wheel)
    try:
        target = folder / wheel.name
        if target.exists() and sha256_of(target) != sha256:
            target = folder / sha256 / wheel.name  # another index's build of the same name
        if target.exists():
            return
        with open(wheel, "rb") as opened, files.write_atomically(target, 0o644) as writing:
            shutil.copyfileobj(opened, writing, 1 << 20)
    except OSError as error:
        raise BuildFailed(
            f"`{wheel.name}` can't be put into `{folder}`: {error.strerror or error}",
            "see that the folder is mounted, and that the server can write to it",
        ) from error


def sha256_of(file: Path) -> str:
    """In hexadecimal."""
    digest = hashlib.sha256()
    with open(file, "rb") as opened:
        while block := opened.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _is(version: Version, expected: str) -> bool:
    if "/" in expected:
        return True
    try:
        return version == Version(expected)
    except InvalidVersion:
        return False
