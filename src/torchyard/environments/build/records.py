"""The record of builds.

Owns: what is written down when a build begins and ends, and what its status means later.
Leaves: SQL to environments/store.py, when to write to builds.py.
Always: a build whose server ended before it did reads as canceled until another one begins.
"""

from __future__ import annotations

from dataclasses import replace

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.environments import store
from torchyard.environments.build.folders import BuiltFolders
from torchyard.environments.types import Build, BuildStatus, EnvironmentSpec
from torchyard.shared import locks


class BuildRecords:
    """The last build of each environment."""

    def __init__(self, db: Database, clock: Clock, folders: BuiltFolders) -> None:
        self._db = db
        self._clock = clock
        self._folders = folders

    def row(self, hash: str) -> Build | None:
        """The last build as it was written down."""
        with self._db.read() as connection:
            return store.get(connection, hash)

    def last(self, hash: str) -> Build | None:
        """The last build. One that was interrupted by the end of its server is `canceled`."""
        build = self.row(hash)
        if build is None or build.status != "building":
            return build
        self._folders.root.mkdir(parents=True, exist_ok=True)
        with locks.held_if_free(self._folders.paths(hash).mutex) as is_free:
            if not is_free:
                return build
            build = self.row(hash)
        if build is None or build.status != "building":
            return build
        return replace(build, status="canceled")

    def all(self) -> list[Build]:
        """The last build of each environment, newest first."""
        with self._db.read() as connection:
            return store.all_builds(connection)

    def begin(self, spec: EnvironmentSpec) -> None:
        with self._db.write() as connection:
            store.begin(connection, spec, self._clock.now())

    def end(
        self, spec: EnvironmentSpec, status: BuildStatus, error: str = "", hint: str = ""
    ) -> None:
        """Write down that a build failed or was canceled."""
        with self._db.write() as connection:
            now = self._clock.now()
            store.end(connection, spec.hash, status, now, error=error, hint=hint)

    def end_ready(self, spec: EnvironmentSpec, lock: str) -> None:
        """Write down that it is built, also where the record of its beginning is missing."""
        with self._db.write() as connection:
            now = self._clock.now()
            if store.get(connection, spec.hash) is None:
                store.begin(connection, spec, now)
            store.end(connection, spec.hash, "ready", now, lock=lock)
