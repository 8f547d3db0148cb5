"""The built environments on the server's disk.

Owns: finding, listing and removing them, locks of shells that use one, noticing a changed one.
Leaves: what a folder holds to builder.py, building it again to builds.py.
Always: a folder that exists is complete; one with a shell in it is not removed.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Connection

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.environments.build import sealed
from torchyard.environments.build.builder import EnvironmentPaths
from torchyard.environments.build.image_environments import Images
from torchyard.environments.images import image_folder
from torchyard.environments.packages import python_choice
from torchyard.environments.types import BuildCanceled, EnvironmentSpec
from torchyard.shared import locks
from torchyard.worker.system import mounts
from torchyard.worker.system.mounts import Mount

_SHELLS = ".shells"


class BuiltFolders:
    """The folders of `built`, one for each hash, and what is known of each, in `root`.

    Args:
        wheel_folder: see wheel_folder.py.
    """

    def __init__(
        self,
        root: Path,
        built: Path,
        db: Database,
        clock: Clock,
        images: Images,
        wheel_folder: Path | None = None,
    ) -> None:
        self.wheel_folder = wheel_folder
        self.root = root
        self.built = built
        self._db = db
        self._clock = clock
        self._images = images

    def paths(self, hash: str) -> EnvironmentPaths:
        return EnvironmentPaths(self.root, hash, self.built, self.wheel_folder)

    def log_path(self, hash: str) -> Path:
        """The build log. A later build of the same environment is added at its end."""
        return self.paths(hash).log

    def find(self, spec: EnvironmentSpec) -> Path | None:
        """The folder, or None when it is not built. Costs one access to the disk."""
        paths = self.paths(spec.hash)
        return paths.folder if paths.is_whole() else None

    def settled(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """The spec as it is built here, with a notice where that took another Python."""
        if not python_choice.is_free(spec):
            return spec
        if spec.is_any_python and not self.paths(spec.hash).lock.exists():
            # It names what is tried first: where that is built, nothing has to be chosen.
            resolved = python_choice.with_python(spec, spec.python)
            if self.find(resolved) is not None:
                return resolved
        taken = self.taken_python(spec)
        if taken is None:
            return spec
        return replace(spec, notices=(*spec.notices, taken.notice))

    def taken_python(self, spec: EnvironmentSpec) -> python_choice.Taken | None:
        """The Python that its build took in place of the one tried first, if it did."""
        if not python_choice.is_free(spec):
            return None
        # An image holds its Python as an environment of its own.
        inner = replace(spec, image=None) if spec.image is not None else spec
        return python_choice.in_lock(read_text(self.paths(inner.hash).lock))

    def python_of(self, spec: EnvironmentSpec) -> str:
        """The version of its Python, as far as that is known before the folder is opened."""
        taken = self.taken_python(spec)
        return taken.python if taken is not None else spec.python

    def all(self) -> Iterator[tuple[str, Path]]:
        """(hash, folder) of each that is built; a folder's mtime is the time of its last use."""
        for folder in sorted(self.built.glob("[0-9a-f]*")):
            if folder.is_dir():
                yield folder.name, folder

    def mark_used(self, folder: Path) -> None:
        """Set the time of its last use to now."""
        now = self._clock.now().timestamp()
        os.utime(folder, (now, now))

    @functools.cached_property
    def is_writable_by_jobs(self) -> bool:
        """Whether jobs run as root and nothing can be mounted read-only for them."""
        if os.geteuid() != 0:
            return False
        self.built.mkdir(parents=True, exist_ok=True)
        return bool(mounts.why_not([Mount(str(self.built), str(self.built))]))

    def is_changed(self, spec: EnvironmentSpec) -> bool:
        """Whether the files differ from those that the build wrote."""
        paths = self.paths(spec.hash)
        built_mark = read_text(paths.mark)
        return bool(built_mark) and sealed.mark(paths.folder) != built_mark

    def shells_file(self, spec: EnvironmentSpec) -> Path:
        """A shared lock on this file keeps the folder; it blocks nothing else."""
        file = self.root / f"{spec.hash}{_SHELLS}"
        file.touch(mode=0o600)
        return file

    def remove(self, hash: str, is_needed: Callable[[Connection], bool]) -> bool:
        """Remove a folder unless it is needed, being built, or a shell uses it.

        A later job builds it again.
        """
        paths = self.paths(hash)
        removed = self.built / f".removing-{hash}"
        if self._has_shells(hash):
            return False
        try:
            with locked(paths.mutex, lambda: True):
                image_folder.remove(removed)
                # No job can be added while this transaction is open; one added later builds.
                with self._db.write() as connection:
                    if is_needed(connection):
                        return False
                    paths.folder.rename(removed)
        except BuildCanceled:
            return False
        self._images.remove(removed)
        return True

    def _has_shells(self, hash: str) -> bool:
        file = self.root / f"{hash}{_SHELLS}"
        if not file.exists():
            return False
        with locks.held_if_free(file) as is_free:
            return not is_free


@contextmanager
def locked(file: Path, canceled: Callable[[], bool]) -> Iterator[None]:
    """Hold the file's lock; other processes, and other threads of this one, wait.

    Raises:
        BuildCanceled: `canceled` returned True while waiting.
    """
    with locks.hold(file, canceled) as is_held:
        if not is_held:
            raise BuildCanceled("the build was canceled")
        yield


def read_text(file: Path) -> str:
    """Empty when the file does not exist."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
