"""Wheels that builds share, by the SHA-256 of their content.

Owns: what is in the store, putting there what a build fetched, laying it out for the next one.
Leaves: fetching and installing to kept_wheels.py; wheels that outlive an index to wheel_folder.py.
Always: this process writes it, builds only read it; a file is under the hash of its own content,
computed here, so that a build can add to it and change nothing in it. A lock names what it gets by
hash, and uv compares it again.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion

_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})\b")
_BLOCK = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def lay_out(store: Path, lines: Mapping[str, str], folder: Path) -> set[str]:
    """Link the wheels of a lock that the store has into `folder`; the packages that it has.

    Args:
        lines: by package its lines of the lock.
    """
    names = set()
    for name, line in lines.items():
        for digest in _HASH.findall(line):
            wheel = _wheel(store / digest)
            if wheel is not None:
                folder.mkdir(exist_ok=True)
                with suppress(FileExistsError):
                    (folder / wheel.name).symlink_to(wheel)
                names.add(name)
                break
    return names


def add(store: Path, fetched: Path) -> int:
    """Copy the wheels of a folder that others wrote into the store; how many were new.

    Raises:
        OSError: the store can't be written.
    """
    count = 0
    try:
        folder = os.open(fetched, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        for name in sorted(os.listdir(folder)):
            try:
                parse_wheel_filename(name)
                descriptor = os.open(name, _READ, dir_fd=folder)
            except (InvalidWheelFilename, InvalidVersion, OSError):
                continue  # links into the store are among them
            try:
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    count += _put(store, name, descriptor)
            finally:
                os.close(descriptor)
    finally:
        os.close(folder)
    return count


def _wheel(folder: Path) -> Path | None:
    """The one in the folder of a hash. The store can't be listed by builds, its folders can."""
    try:
        return next((folder / name for name in os.listdir(folder) if name.endswith(".whl")), None)
    except OSError:
        return None


def _put(store: Path, name: str, descriptor: int) -> bool:
    draft = store / f".{secrets.token_hex(8)}"
    try:
        digest = _copy(descriptor, draft)
        target = store / digest
        if target.is_dir():
            return False
        # The folder appears with its file: a build never finds one without the other.
        whole = store / f".{secrets.token_hex(8)}"
        whole.mkdir()
        draft.chmod(0o444)
        draft.rename(whole / name)
        whole.chmod(0o755)
        try:
            whole.rename(target)
        except OSError:  # another build was quicker
            (whole / name).unlink()
            whole.rmdir()
            return False
        return True
    finally:
        draft.unlink(missing_ok=True)


def _copy(descriptor: int, draft: Path) -> str:
    digest = hashlib.sha256()
    with open(draft, "xb") as file:
        while block := os.read(descriptor, _BLOCK):
            digest.update(block)
            file.write(block)
    return digest.hexdigest()
