"""Build each environment once, however many jobs need it.

Owns: one build at a time over threads and processes, repairing a changed environment, where uv's
cache is.
Leaves: the steps of a build to builder.py and image_builder.py, its record to records.py.
Always: all callers that wait for a build get its outcome, a failure too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from torchyard.base import disk
from torchyard.base.errors import BuildFailed, DiskFull, TorchyardError
from torchyard.environments.build import builder, kept_wheels
from torchyard.environments.build.builder import EnvironmentPaths, Fetch
from torchyard.environments.build.compiling import BackgroundCompiler
from torchyard.environments.build.folders import BuiltFolders, locked, read_text
from torchyard.environments.build.image_environments import Images
from torchyard.environments.build.kept_wheels import KeptWheels
from torchyard.environments.build.records import BuildRecords
from torchyard.environments.packages import caches, layers, machine_config
from torchyard.environments.packages.pythons import Pythons
from torchyard.environments.packages.uv import Both, Log, Uv, no_space
from torchyard.environments.types import Build, BuildCanceled, EnvironmentSpec
from torchyard.executors.runner_client import RunnerUnreachable
from torchyard.shared import secret_values
from torchyard.shared.masking import Masker

_log = logging.getLogger(__name__)
# An open shell in the environment holds back its repair for as long as it is open.
_REPAIR_S = 300.0

Secrets = Callable[[], Mapping[str, int]]


class Maker(Protocol):
    """What runs code of packages, or reads what they wrote, in a process of its own."""

    def run(self, spec: EnvironmentSpec, paths: EnvironmentPaths, known_lock: str, uv: Uv) -> str:
        """As `builder.run`."""
        ...

    def fetch(self, text: str, python: str, working: Path, uv: Uv) -> None:
        """As `kept_wheels.fetch`."""
        ...

    def fetch_again(self, text: str, python: str, working: Path, uv: Uv) -> None:
        """As `fetch`, for a lock that was built a moment ago."""
        ...


class LocalMaker:
    """As this process's own user: for a server whose jobs are that user, too."""

    def run(self, spec: EnvironmentSpec, paths: EnvironmentPaths, known_lock: str, uv: Uv) -> str:
        return builder.run(spec, paths, known_lock, uv)

    def fetch(self, text: str, python: str, working: Path, uv: Uv) -> None:
        kept_wheels.fetch(text, python, working, uv)

    fetch_again = fetch


class Builds:
    """
    Args:
        cache: uv's own, where the one of this machine's user is on another disk.
        compiler: compiles modules after a build.
        variables: the process environment; where pip's and uv's configuration is read from.
        maker: runs builds; as the build user where there is a runner.
    """

    def __init__(
        self,
        cache: Path,
        variables: Mapping[str, str],
        folders: BuiltFolders,
        records: BuildRecords,
        images: Images,
        pythons: Pythons,
        compiler: BackgroundCompiler,
        maker: Maker | None = None,
    ) -> None:
        self._maker = maker or LocalMaker()
        self._compiler = compiler
        self._own_cache = cache
        self._variables = variables
        self._folders = folders
        self._records = records
        self._images = images
        self._pythons = pythons

    def refuse_impossible(self, spec: EnvironmentSpec) -> None:
        """
        Raises:
            BuildFailed: it is not built, and this machine has nothing that could build it.
        """
        if self._folders.find(spec) is not None:
            return
        for refuse in (self._images.refuse, self._pythons.refuse, layers.refuse):
            refuse(spec)

    def use(self, spec: EnvironmentSpec) -> Path | None:
        """The folder for a job or a shell, or None when it is not built; marks it as used.

        Where jobs can write to environments, one that a job has changed is built again.

        Raises:
            BuildFailed: it was changed, and can't be built any more.
        """
        folder = self._folders.find(spec)
        if folder is not None:
            if self._folders.is_writable_by_jobs and self._folders.is_changed(spec):
                _log.warning("environment %s was changed and is built again", spec.hash[:12])
                self._repair(spec)
            self._folders.mark_used(folder)
        return folder

    def run(
        self,
        spec: EnvironmentSpec,
        canceled: Callable[[], bool] = lambda: False,
        secrets: Secrets = dict,
        also: Log | None = None,
    ) -> Path:
        """The folder, built now unless it exists; waits when it is being built already.

        Args:
            canceled: called a few times a second; when it returns True, uv is killed.
            secrets: called at each step: values that the log and the errors must not show, as
                `shared.secret_values.written` takes them.
            also: a log beside its own.

        Raises:
            BuildFailed: names the package at fault; the same error for all callers that waited.
            BuildCanceled: `canceled` returned True.
        """
        paths = self._folders.paths(spec.hash)
        # One that came with a copied folder, or beside an older database, is recorded below.
        if paths.is_whole() and self._records.row(spec.hash) is not None:
            return paths.folder
        for folder in (paths.root, paths.built):
            folder.mkdir(parents=True, exist_ok=True)
        before = self._records.row(spec.hash)
        with locked(paths.mutex, canceled):
            last = self._records.row(spec.hash)
            if paths.is_whole():
                if last is None or last.status != "ready":
                    self._records.end_ready(spec, read_text(paths.lock))
                return paths.folder
            if last is not None and last.status == "failed" and _is_newer(last, before):
                raise BuildFailed(last.error, last.hint)
            self._build(spec, paths, canceled, secrets, also)
        return paths.folder

    def keep_wheels(
        self,
        spec: EnvironmentSpec,
        text: str,
        canceled: Callable[[], bool] = lambda: False,
        secrets: Secrets = dict,
    ) -> KeptWheels:
        """Keep the wheels of a built environment; a later build takes them first.

        Args:
            text: its lock.
            canceled, secrets: see `run`.

        Raises:
            BuildFailed: they can't be had.
            BuildCanceled: `canceled` returned True.
        """
        paths = self._folders.paths(spec.hash)
        with (
            locked(paths.mutex, canceled),
            open(paths.log, "ab") as file,
            self._uv(file, None, canceled, secrets) as uv,
        ):
            return builder.keep_wheels(paths, text, uv, self._maker.fetch)

    def _repair(self, spec: EnvironmentSpec) -> None:
        paths, until = self._folders.paths(spec.hash), time.monotonic() + _REPAIR_S
        with locked(paths.mutex, lambda: time.monotonic() > until):
            if self._folders.is_changed(spec):
                self._build(spec, paths, lambda: False, dict)

    def _build(
        self,
        spec: EnvironmentSpec,
        paths: EnvironmentPaths,
        canceled: Callable[[], bool],
        secrets: Secrets,
        also: Log | None = None,
    ) -> None:
        """Build it now; the caller holds the environment's lock."""
        self._records.begin(spec)
        started = time.monotonic()
        with open(paths.log, "ab") as file, self._uv(file, also, canceled, secrets) as uv:
            uv.say(f"Building environment {spec.hash[:12]} for {spec.platform}")
            for line in spec.packages:
                uv.say(f"  {line}")
            with self._failure_recorded(spec, uv), self._compiler.building():
                if spec.image is None:
                    lock = self._maker.run(spec, paths, self._previous_lock(paths), uv)
                    if paths.wheel_folder is not None and spec.ref:
                        _keep_of_version(paths, lock, uv, self._maker.fetch_again)
                else:
                    run = partial(
                        self._run_compiled, canceled=canceled, secrets=secrets, also=uv.log
                    )
                    lock = self._images.build(spec, paths, run, uv)
            seconds = time.monotonic() - started
            uv.say(f"Environment {spec.hash[:12]} is ready after {seconds:.1f} s")
            if spec.image is None:
                uv.say("Its modules are compiled in the background: first imports may take longer")
        self._records.end_ready(spec, lock)
        self._compiler.wake()

    def _run_compiled(self, spec: EnvironmentSpec, **options: Any) -> Path:
        """As `run`, with all modules compiled: for an image, which can't be given them later."""
        folder = self.run(spec, **options)
        self._compiler.finish(spec.hash, options["canceled"])
        return folder

    @contextmanager
    def _uv(
        self, file: Log, also: Log | None, canceled: Callable[[], bool], secrets: Secrets
    ) -> Iterator[Uv]:
        config = machine_config.read(self._variables)
        # A package's build program sees the server's own variables.
        server_secrets = secret_values.of_environment(config.variables, ())
        cache = self._cache(config.variables)
        uv_cache = nullcontext() if cache is None else caches.in_use(cache)
        with uv_cache:
            yield Uv(
                config,
                file if also is None else Both(file, also),
                canceled,
                cache,
                lambda: Masker(secret_values.written({**server_secrets, **secrets()})),
                may_link=not self._folders.is_writable_by_jobs,
            )

    @contextmanager
    def _failure_recorded(self, spec: EnvironmentSpec, uv: Uv) -> Iterator[None]:
        """Write down, in the build's log and record, how the steps inside fail.

        Raises:
            BuildFailed: for any error that a user can do something about.
            RunnerUnreachable: it says nothing about the environment.
        """
        try:
            yield
        except (BuildCanceled, RunnerUnreachable):
            self._records.end(spec, "canceled")
            raise
        except TorchyardError as error:
            uv.say(f"error: {error.message}\nhint: {error.hint}")
            message, hint = uv.clean(error.message), uv.clean(error.hint)
            self._records.end(spec, "failed", message, hint)
            code = error.code if isinstance(error, (BuildFailed, DiskFull)) else ""
            raise BuildFailed(message, hint, code=code) from error
        except BaseException as error:
            if isinstance(disk.meaning(error), DiskFull):
                full = no_space()
                self._records.end(spec, "failed", full.message, full.hint)
                raise full from error
            uv.say(f"error: the builder failed: {error!r}")
            self._records.end(spec, "failed", uv.clean(f"the builder failed: {error!r}"))
            raise

    def _previous_lock(self, paths: EnvironmentPaths) -> str:
        """The lock of the environment's first build, empty when this is the first."""
        lock = read_text(paths.lock)
        if lock:
            return lock
        last = self._records.row(paths.hash)
        return last.lock if last else ""

    def _cache(self, variables: Mapping[str, str]) -> Path | None:
        """The server's own cache, where uv's is on another disk: hard links can't cross disks."""
        shared = Path(variables.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        if _device(shared) == _device(self._folders.built):
            return None
        return self._own_cache


def _keep_of_version(paths: EnvironmentPaths, lock: str, uv: Uv, fetch: Fetch) -> None:
    """Put the wheels of a version into the wheel store; the build is good without that."""
    try:
        wheels = builder.keep_wheels(paths, lock, uv, fetch)
    except BuildFailed as error:
        uv.say(f"its wheels are not kept: {error.message}")
        return
    without = f"; none of {', '.join(wheels.without[:5])}" if wheels.without else ""
    uv.say(f"kept wheels: {wheels.count} in `{wheels.folder}`{without}")


def _is_newer(last: Build, before: Build | None) -> bool:
    """Whether the build ended while its caller waited, so that its outcome is the caller's too."""
    return before is None or last.number > before.number or before.status == "building"


def _device(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return folder.stat().st_dev
