"""Find the unfinished files that killed programs left in the server's folders.

Owns: where drafts of builds, fetches, uploads and removals lie, whether one is still in use.
Leaves: how old a draft must be to reclaiming.py.
Always: a draft is removed only under the lock of its writer, where there is one; only names that
torchyard itself gives are considered.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from torchyard.base import files
from torchyard.base.home.node_folder import NodeFolder
from torchyard.executors import launch_files
from torchyard.shared import locks

_BUILD = re.compile(r"\.building-([0-9a-f]+)-\d+\Z")
_UPLOADS = ".uploads"
REMOVING = ".removing-"
"""How names of folders begin that are being removed; nothing reads them any more."""


@dataclass(frozen=True)
class StaleFile:
    """`what` is text for users; its writer holds `lock`."""

    path: Path
    what: str
    lock: Path | None = None

    @property
    def touched_at_s(self) -> float:
        """When anything in it was last written."""
        return touched_at_s(self.path)

    def remove(self, before_s: float) -> bool:
        """Remove it, unless it is in use, or was written after `before_s`."""
        free = nullcontext(True) if self.lock is None else locks.held_if_free(self.lock)
        with free as is_free:
            if not is_free or self.touched_at_s > before_s:
                return False
            if self.path.is_dir() and not self.path.is_symlink():
                _open_up(self.path)
                shutil.rmtree(self.path, ignore_errors=True)
            else:
                self.path.unlink(missing_ok=True)
        return not self.path.exists()


def touched_at_s(path: Path) -> float:
    """When anything in a folder was last written, or the folder itself."""
    return max(_times(path), default=0.0)


def find(home: Path, node: NodeFolder) -> Iterator[StaleFile]:
    """Every draft there is, in use or not."""
    environments, data = node.environments, node.data
    records = home / "environments"
    for path in _children(environments):
        build = _BUILD.match(path.name)
        if build is not None:
            yield StaleFile(path, "a build", records / f"{build[1]}.lock")
        elif path.name.startswith(REMOVING):
            of = path.name.removeprefix(REMOVING)
            yield StaleFile(path, "a removal", records / f"{of}.lock")
    for path in _children(data):
        if path.name.endswith(".part"):
            yield StaleFile(path, "a fetch", data / "locks" / path.name.removesuffix(".part"))
    for path in _children(node.cache):
        if path.name.startswith(REMOVING):
            yield StaleFile(path, "a removal")
    for path in _children(home / launch_files.FOLDER):
        if files.is_draft(path.name):
            yield StaleFile(path, "a plan")
    for path in _children(home / "uploads"):
        yield StaleFile(path, "an upload in blocks")
    for path in sorted(home.glob(f"datastores/*/*/{REMOVING}*")):
        yield StaleFile(path, "a removal")
    for folder in ("blobs", "datastores", "logs"):
        yield from _drafts(home / folder)


def _drafts(top: Path) -> Iterator[StaleFile]:
    for current, folders, names in os.walk(top):
        if _UPLOADS in folders:
            folders.remove(_UPLOADS)
            for path in _children(Path(current, _UPLOADS)):
                yield StaleFile(path, "an upload in parts")
        for name in names:
            if files.is_draft(name):
                yield StaleFile(Path(current, name), "an upload")


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _times(path: Path) -> Iterator[float]:
    try:
        yield os.lstat(path).st_mtime
    except FileNotFoundError:
        return
    for current, folders, names in os.walk(path):
        for name in [*folders, *names]:
            try:
                yield os.lstat(os.path.join(current, name)).st_mtime
            except FileNotFoundError:
                continue


def _open_up(top: Path) -> None:
    """Make folders writable: copies of inputs are sealed against changes."""
    for current, _, _ in os.walk(top):
        os.chmod(current, 0o700)
