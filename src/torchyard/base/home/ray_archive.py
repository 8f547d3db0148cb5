"""Ray's environment of this machine as an archive, for machines that reach no package index.

Owns: what is in the archive: the environment, and the Python that it is made of.
Leaves: unpacking, and the paths that change by it, to node_agent/carried_ray.py.
Always: the archive is made once, however many machines ask, and is gone with this program; the
system's own Python is not carried.
"""

from __future__ import annotations

import tarfile
import tempfile
import threading
from pathlib import Path
from typing import IO

_STAMP = "torchyard-complete"
_SYSTEM = (Path("/"), Path("/usr"), Path("/usr/local"))
_LEFT_OUT = ("__pycache__", "test", "tests", "idlelib", "ensurepip", "share")


class RayArchives:
    """
    Args:
        home: environments are in its folder `engines`; see executors/ray/ray_environment.py.
    """

    def __init__(self, home: Path) -> None:
        self._engines = home / "engines"
        self._lock = threading.Lock()
        self._made: dict[str, IO[bytes]] = {}

    def __enter__(self) -> RayArchives:
        return self

    def __exit__(self, *error: object) -> None:
        for archive in self._made.values():
            archive.close()
        self._made.clear()

    def get(self, version: str, python: str) -> Path | None:
        """The archive; None where this machine has no such environment to carry."""
        environment = self._engines / f"ray-{version}-py{python}"
        if not (environment / _STAMP).exists():
            return None
        base = (environment / "bin" / "python").resolve().parent.parent
        if base in _SYSTEM:
            return None
        with self._lock:
            archive = self._made.get(environment.name)
            if archive is None:
                archive = tempfile.NamedTemporaryFile(prefix="ty-ray-")
                write(environment.resolve(), base, archive)
                self._made[environment.name] = archive
        return Path(archive.name)


def write(environment: Path, base: Path, file: IO[bytes]) -> None:
    """Write an archive with the folders `environment` and `python`."""
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
        archive.add(environment, "environment", filter=_without_its_python)
        for name in ("bin", "lib"):
            archive.add(base / name, f"python/{name}", filter=_of_python)
    file.flush()


def _without_its_python(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if entry.name.startswith("environment/bin/python") or entry.name == f"environment/{_STAMP}":
        return None
    return None if "__pycache__" in entry.name.split("/") else entry


def _of_python(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """The standard library without its tests; no packages and no programs but Python."""
    parts = entry.name.split("/")
    if "site-packages" in parts or entry.name.endswith(".a") or set(parts) & set(_LEFT_OUT):
        return None
    if parts[1] == "bin" and len(parts) > 2 and not parts[2].startswith("python"):
        return None
    return entry
