"""The room's verbs: resolve what a job asks for, build it once, say where it is.

Owns: single flight over threads and processes, the record of builds, where uv's cache is.
Leaves: the steps of a build to build/builder.py, definitions to definition.py.
Always: a build that was waited for is shared, its failure too; a folder that is there is whole.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from torchyard.base import disk
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import BuildFailed, DiskFull, TorchyardError
from torchyard.environments import assets, definition, store
from torchyard.environments.build import builder, sealed
from torchyard.environments.build.builder import Places
from torchyard.environments.build.image_environments import Images
from torchyard.environments.images import image_folder
from torchyard.environments.names import catalogue, substitutes
from torchyard.environments.names.substitutes import Judge
from torchyard.environments.packages import accelerators, caches, layers, machine_config
from torchyard.environments.packages.pythons import Pythons
from torchyard.environments.packages.uv import Both, Log, Uv, no_room
from torchyard.environments.types import (
    Build,
    BuildCanceled,
    BuildStatus,
    EnvironmentSpec,
    Platform,
    this_platform,
)
from torchyard.shared import locks, secret_values
from torchyard.shared.masking import Masker
from torchyard.shared.plan import ImagePlan
from torchyard.worker.system import mounts
from torchyard.worker.system.mounts import Mount
from torchyard.workspaces import actions as workspaces

_log = logging.getLogger(__name__)
_SHELLS = ".shells"
# Somebody's shell in the environment keeps it as it is for as long as it is open.
_REPAIR_S = 300.0


class Environments:
    """The environments of one server.

    Args:
        home: the server's folder; environments lie below `environments/`.
        variables: the process environment; where pip's and uv's configuration is read from.
        platform: what to build for; None asks this machine's tools, once.
        is_shared: others than its owner use the server: a workspace that says nothing of it
            takes no substitutes.
    """

    def __init__(
        self,
        home: Path,
        db: Database,
        clock: Clock,
        variables: Mapping[str, str],
        platform: Platform | None = None,
        is_shared: bool = False,
    ) -> None:
        self._is_shared = is_shared
        self._home = home
        self._root = home / "environments"
        self.db = db
        self._clock = clock
        self._platform = platform
        self._variables = dict(variables)
        self.images = Images(home, self._variables)
        self._pythons = Pythons(self._variables)

    @property
    def platform(self) -> Platform:
        if self._platform is None:
            self._platform = this_platform(accelerators.find())
        return self._platform

    def resolve(
        self, asked: Any, workspace: str = "", *, is_judged: bool = True
    ) -> EnvironmentSpec:
        """The spec of a job file's `environment`: a reference or an inline definition.

        Args:
            workspace: whose own environments may be named; none when empty.
            is_judged: whether a workspace that takes no substitutes refuses them.

        Raises:
            InvalidSpec: it can't be honoured; `at` says which part of it.
            NotFound: no environment has the name.
        """
        judge = self._judge(workspace) if workspace and is_judged else substitutes.taken
        owned = assets.owned(self.db, workspace) if workspace else catalogue.nobody
        found = definition.resolve(asked, self.platform, (), owned, judge, self.images.sources())
        return self._pythons.settled(found, judge)

    def refuse_impossible(self, spec: EnvironmentSpec) -> None:
        """
        Raises:
            BuildFailed: it is not built, and this machine has nothing that could build it.
        """
        if self.is_built(spec) is not None:
            return
        for refuse in (self.images.refuse, self._pythons.refuse, layers.refuse):
            refuse(spec)

    def _judge(self, workspace: str) -> Judge:
        allowed = workspaces.allows_substitutes(self.db, workspace)
        if allowed is None:
            allowed = not self._is_shared
        return substitutes.taken if allowed else substitutes.refused_in(workspace)

    def is_built(self, spec: EnvironmentSpec) -> Path | None:
        """The folder, when it is there. One look at the disk."""
        places = self._places(spec)
        return places.folder if places.is_whole() else None

    def use(self, spec: EnvironmentSpec) -> Path | None:
        """As `is_built`, and from now on it is not long unused.

        Where nothing holds root back from writing to it, it is compared with what it was, and
        built anew after a job has changed it.

        Raises:
            BuildFailed: it was changed, and can't be built any more.
        """
        folder = self.is_built(spec)
        if folder is not None:
            if self.is_open and self._is_changed(spec):
                _log.warning("environment %s was changed: it is built anew", spec.hash[:12])
                self._build_again(spec)
            now = self._clock.now().timestamp()
            os.utime(folder, (now, now))
        return folder

    def image_plan(self, folder: Path) -> ImagePlan | None:
        """What nodes are told of an environment that is an image; None for any other."""
        return self.images.plan(folder)

    def shells_file(self, spec: EnvironmentSpec) -> Path:
        """A shared lock of this file keeps the folder from being removed, and hinders nobody."""
        file = self._root / f"{spec.hash}{_SHELLS}"
        file.touch(mode=0o600)
        return file

    def _has_shells(self, hash: str) -> bool:
        file = self._root / f"{hash}{_SHELLS}"
        if not file.exists():
            return False
        with locks.held_if_free(file) as is_free:
            return not is_free

    @functools.cached_property
    def is_open(self) -> bool:
        """Whether a job can write to environments: it is root's, and may mount nothing."""
        if os.geteuid() != 0:
            return False
        self._root.mkdir(parents=True, exist_ok=True)
        return bool(mounts.why_not([Mount(str(self._root), str(self._root))]))

    def _is_changed(self, spec: EnvironmentSpec) -> bool:
        places = self._places(spec)
        said = _text(places.mark)
        return bool(said) and sealed.mark(places.folder) != said

    def _build_again(self, spec: EnvironmentSpec) -> None:
        places, until = self._places(spec), time.monotonic() + _REPAIR_S
        with _locked(places.mutex, lambda: time.monotonic() > until):
            if self._is_changed(spec):
                self._build_now(spec, places, lambda: False, dict)

    def folders(self) -> Iterator[tuple[str, Path]]:
        """(hash, folder) of each that is built; the folder's time is that of its last use."""
        for folder in sorted(self._root.glob("[0-9a-f]*")):
            if folder.is_dir():
                yield folder.name, folder

    def remove(self, hash: str, is_needed: Callable[[Connection], bool]) -> bool:
        """Remove one unless it is needed, being built, or somebody has a shell in it; a later job
        builds it anew.
        """
        places = Places(self._root, hash)
        gone = self._root / f".removing-{hash}"
        if self._has_shells(hash):
            return False
        try:
            with _locked(places.mutex, lambda: True):
                image_folder.remove(gone)
                # No job can come while this transaction is open; one that comes later builds.
                with self.db.write() as connection:
                    if is_needed(connection):
                        return False
                    places.folder.rename(gone)
        except BuildCanceled:
            return False
        self.images.remove(gone)
        return True

    def log_path(self, spec: EnvironmentSpec) -> Path:
        """The build log. A later build of the same environment is added at its end."""
        return self._places(spec).log

    def build(
        self,
        spec: EnvironmentSpec,
        cancelled: Callable[[], bool] = lambda: False,
        secrets: Callable[[], Mapping[str, int]] = dict,
        also: Log | None = None,
    ) -> Path:
        """The folder, built now unless it is there; waits when someone else builds it.

        `cancelled` is asked a few times a second; when it says yes, uv is killed. `secrets` are
        asked for at each step: values that the log and the errors must not show, as
        `worker.secret_values.written` takes them. `also` is a log beside its own.

        Raises:
            BuildFailed: names the package at fault; the same error for all who waited.
            BuildCanceled: `cancelled` said yes.
        """
        places = self._places(spec)
        if places.is_whole():
            return places.folder
        self._root.mkdir(parents=True, exist_ok=True)
        before = self._last(spec)
        with _locked(places.mutex, cancelled):
            last = self._last(spec)
            if places.is_whole():
                if last is None or last.status != "ready":
                    self._note_ready(spec, _text(places.lock))
                return places.folder
            if last is not None and last.status == "failed" and _is_news(last, before):
                raise BuildFailed(last.error, last.hint)
            self._build_now(spec, places, cancelled, secrets, also)
        return places.folder

    def last_build(self, spec: EnvironmentSpec) -> Build | None:
        """What is known of its last build."""
        return self.last_by_hash(spec.hash)

    def last_by_hash(self, hash: str) -> Build | None:
        """One that ended with its server, and that nobody has begun again, was broken off."""
        with self.db.read() as connection:
            last = store.get(connection, hash)
        if last is None or last.status != "building":
            return last
        self._root.mkdir(parents=True, exist_ok=True)
        with locks.held_if_free(Places(self._root, hash).mutex) as is_free:
            if not is_free:
                return last
            with self.db.read() as connection:
                last = store.get(connection, hash)
        if last is None or last.status != "building":
            return last
        return replace(last, status="canceled")

    def log_size(self, hash: str) -> int:
        """Bytes of its build log, over all its builds."""
        try:
            return Places(self._root, hash).log.stat().st_size
        except FileNotFoundError:
            return 0

    def log_from(self, hash: str, offset: int, most_bytes: int) -> bytes:
        """A piece of its build log."""
        try:
            with open(Places(self._root, hash).log, "rb") as log:
                log.seek(offset)
                return log.read(most_bytes)
        except FileNotFoundError:
            return b""

    def builds(self) -> list[Build]:
        """The last build of each environment, newest first."""
        with self.db.read() as connection:
            return store.all_builds(connection)

    def _build_now(
        self,
        spec: EnvironmentSpec,
        places: Places,
        cancelled: Callable[[], bool],
        secrets: Callable[[], Mapping[str, int]],
        also: Log | None = None,
    ) -> None:
        with self.db.write() as connection:
            store.begin(connection, spec, self._clock.now())
        last = self._last(spec)
        known = _text(places.lock) or (last.lock if last else "")
        config = machine_config.read(self._variables)
        started = time.monotonic()
        cache = self._cache(config.variables)
        with (
            open(places.log, "ab") as own_log,
            nullcontext() if cache is None else caches.in_use(self._home),
        ):
            log: Log = own_log if also is None else Both(own_log, also)
            # A package's build program sees this server's own variables.
            own = secret_values.of_environment(config.variables, ())
            uv = Uv(
                config,
                log,
                cancelled,
                cache,
                lambda: Masker(secret_values.written({**own, **secrets()})),
                may_link=not self.is_open,
            )
            uv.say(f"Building environment {spec.hash[:12]} for {spec.platform}")
            for line in spec.packages:
                uv.say(f"  {line}")
            try:
                if spec.image is None:
                    text = builder.run(spec, places, known, uv)
                else:
                    inner = partial(self.build, cancelled=cancelled, secrets=secrets, also=log)
                    text = self.images.build(spec, places, inner, uv)
            except BuildCanceled:
                self._note(spec, "canceled")
                raise
            except TorchyardError as error:
                uv.say(f"error: {error.message}\nhint: {error.hint}")
                message, hint = uv.clean(error.message), uv.clean(error.hint)
                self._note(spec, "failed", message, hint)
                is_ours = isinstance(error, (BuildFailed, DiskFull))
                code = error.code if is_ours else ""
                raise BuildFailed(message, hint, code=code) from error
            except BaseException as error:
                if isinstance(disk.meaning(error), DiskFull):
                    full = no_room()
                    self._note(spec, "failed", full.message, full.hint)
                    raise full from error
                uv.say(f"error: the builder failed: {error!r}")
                self._note(spec, "failed", uv.clean(f"the builder failed: {error!r}"))
                raise
            uv.say(
                f"Environment {spec.hash[:12]} is ready after {time.monotonic() - started:.1f} s"
            )
        self._note_ready(spec, text)

    def _places(self, spec: EnvironmentSpec) -> Places:
        return Places(self._root, spec.hash)

    def _last(self, spec: EnvironmentSpec) -> Build | None:
        with self.db.read() as connection:
            return store.get(connection, spec.hash)

    def _note(
        self, spec: EnvironmentSpec, status: BuildStatus, error: str = "", hint: str = ""
    ) -> None:
        with self.db.write() as connection:
            now = self._clock.now()
            store.end(connection, spec.hash, status, now, error=error, hint=hint)

    def _note_ready(self, spec: EnvironmentSpec, text: str) -> None:
        with self.db.write() as connection:
            now = self._clock.now()
            if store.get(connection, spec.hash) is None:
                store.begin(connection, spec, now)
            store.end(connection, spec.hash, "ready", now, lock=text)

    def _cache(self, variables: Mapping[str, str]) -> Path | None:
        """A cache of our own, where uv's lies on another disk: hard links can't cross disks."""
        shared = variables.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        return None if _disk(Path(shared)) == _disk(self._root) else caches.folder(self._home)


@contextmanager
def _locked(file: Path, cancelled: Callable[[], bool]) -> Iterator[None]:
    """Hold the file's lock; other processes, and other threads of this one, wait."""
    with locks.held(file, cancelled) as is_held:
        if not is_held:
            raise BuildCanceled("the build was cancelled")
        yield


def _is_news(last: Build, before: Build | None) -> bool:
    """Whether the failure came while we waited: then it is the answer to us, too."""
    return before is None or last.number > before.number or before.status == "building"


def _disk(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return folder.stat().st_dev


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
