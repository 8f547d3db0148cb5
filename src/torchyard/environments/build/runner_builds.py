"""Have environments built, modules compiled and wheels fetched by the build user, by the runner.

Owns: the folder of such a build, its output, its end, what is believed of its result.
Leaves: the steps of the build to build_program.py, checking the files to handover.py, what builds
share to shared_wheels.py, keeping them apart to the runner.
Always: no code of strangers runs as the server's user, or as the one who owns environments; when
the server goes away, so does the build.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import selectors
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from torchyard.base.errors import BuildFailed
from torchyard.base.home.node_folder import NodeFolder
from torchyard.environments.build import (
    build_program,
    builder,
    bytecode,
    handover,
    kept_wheels,
    shared_wheels,
)
from torchyard.environments.build.build_program import REQUEST, RESULT, Result
from torchyard.environments.build.builder import EnvironmentPaths
from torchyard.environments.build.bytecode import Modules
from torchyard.environments.images import image_folder
from torchyard.environments.packages import caches, pythons
from torchyard.environments.packages.uv import DISK_FULL, Uv, find_uv, no_space
from torchyard.environments.types import BuildCanceled, EnvironmentSpec
from torchyard.executors.runner_client import RunnerClient, RunnerUnreachable

_MOST_RESULT_BYTES = 8 << 20
_POLL_S = 0.25
# The build user's, as runner/builds.py has it.
_PATH = "/usr/local/bin:/usr/bin:/bin"
# What a build needs of the server's variables; the rest may be anything.
_PASSED = re.compile(
    r"(UV_|PIP_|CONDA_|MAMBA_|RATTLER_|SSL_CERT_|REQUESTS_CA_BUNDLE\Z|CURL_CA_BUNDLE\Z|LANG\Z|LC_)"
    r"|(https?|all|no)_proxy\Z",
    re.IGNORECASE,
)
# In a URL, and in one of conda's channels; the names of variables that hold one alone.
_USER = re.compile(r"(?<=://)[^/\s@]+@")
_TOKEN = re.compile(r"/t/[^/\s]+/")
_CREDENTIAL = re.compile(r"(USERNAME|PASSWORD|TOKEN|_NETRC|CREDENTIALS?)\Z", re.IGNORECASE)
# What another try can't change.
_FINAL = ("build_refused", "no_build_user")
# How folders of compiles are named, and when none is at work any more.
_COMPILES, _OLD_S = "modules-", 3600.0
# Folders of the server's own user, which the build user can't enter.
_OWN_FOLDERS = ("UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR", "PIP_CACHE_DIR", "RATTLER_CACHE_DIR")


class RunnerBuilds:
    """
    Args:
        node: its `builds/` holds a folder for each build that runs.
    """

    is_for_strangers = True
    # Of the build user, for whom a build of another server may wait.
    limit_s: float | None = 60.0

    def __init__(self, runner: RunnerClient, node: NodeFolder) -> None:
        self._runner = runner
        self._node = node

    def run(self, spec: EnvironmentSpec, paths: EnvironmentPaths, known_lock: str, uv: Uv) -> str:
        """As `builder.run`; the caller holds the environment's lock.

        Raises:
            BuildFailed: as there, or the result can't be taken over.
            BuildCanceled: the build was canceled.
            RunnerUnreachable, RunnerRefused: the runner can't be asked, or has no build user.
        """
        builder.remove_stale_folders(paths)
        builds = self._node.builds
        for stale in builds.glob(f"{spec.hash}-*"):
            self._remove(stale)
        self._provide_python(spec, uv)
        passed = self._passed(uv)
        public = _without_passwords(passed)
        if passed != public and not any("--no-binary" in line for line in spec.options):
            try:
                return self._attempt(spec, paths, known_lock, uv, passed, builds_nothing=True)
            except BuildFailed as error:
                if error.code in (DISK_FULL, *_FINAL):
                    raise
            # A package's own code could read and send them.
            uv.say("packages have to be built: passwords of indexes are left out")
        return self._attempt(spec, paths, known_lock, uv, public, builds_nothing=False)

    def _attempt(
        self,
        spec: EnvironmentSpec,
        paths: EnvironmentPaths,
        known_lock: str,
        uv: Uv,
        variables: Mapping[str, str],
        builds_nothing: bool,
    ) -> str:
        """The lock of the environment, built and taken over."""
        folder = self._node.builds / f"{spec.hash}-{secrets.token_hex(4)}"
        working = paths.built / f".building-{spec.hash}-{os.getpid()}"
        try:
            request = build_program.build_request(
                spec, paths.folder, known_lock, self._node.wheels, builds_nothing
            )
            self._make_folder(folder, request)
            kept_wheels.lay_out(
                paths.kept_wheels, paths.blobs, folder / "work", known_lock, paths.wheel_folder
            )
            with caches.in_use(self._node.wheels):
                self._node.wheels.chmod(0o711)  # it may have been removed to save space
                result = self._build(folder, variables, uv)
                shared_wheels.add(self._node.wheels, folder / "work" / kept_wheels.FETCHED)
            working.mkdir()
            handover.copy(folder / "work" / "venv", working / "venv")
            builder.publish(working, paths, result.lock)
        finally:
            image_folder.remove(working)
            with suppress(RunnerUnreachable):  # then the next build of it does
                self._remove(folder)
        return result.lock

    def fetch(self, text: str, python: str, working: Path, uv: Uv) -> None:
        """As `kept_wheels.fetch`; what was fetched is copied, and not believed.

        Raises:
            BuildFailed, BuildCanceled, RunnerUnreachable, RunnerRefused: as `run`.
        """
        folder = self._node.builds / f"wheels-{secrets.token_hex(8)}"
        try:
            self._make_folder(folder, build_program.fetch_request(text, python))
            self._build(folder, self._passed(uv), uv)
            fetched = kept_wheels.FETCHED
            handover.copy(folder / "work" / fetched, working / fetched)
        finally:
            with suppress(RunnerUnreachable):
                self._remove(folder)

    def fetch_again(self, text: str, python: str, working: Path, uv: Uv) -> None:
        """Take the wheels that the build fetched for all; what it could not get has none."""
        _, lines = kept_wheels.parts(text)
        shared_wheels.lay_out(self._node.wheels, lines, working / kept_wheels.FETCHED)

    @contextmanager
    def compile(self, modules: Modules, request: Path) -> Iterator[Compile]:
        """As `compiling.Compiler` has it: a build of its own, in which no package's code runs.

        Raises:
            RunnerUnreachable, RunnerRefused, BuildFailed: as `run`.
        """
        self._remove_old_compiles()
        folder = self._node.builds / f"{_COMPILES}{secrets.token_hex(8)}"
        try:
            self._make_folder(folder, request.read_text("ascii"))
            words = bytecode.compile_command(modules, folder / REQUEST)
            readable, writable = os.pipe()
            with os.fdopen(readable, "rb") as output:
                try:
                    running = self._runner.start(
                        "build", [writable], command=words, build=folder.name, environment={}
                    )
                finally:
                    os.close(writable)
                with running:
                    yield Compile(output, lambda: int(running.answer()["exit_code"]))
        finally:
            with suppress(RunnerUnreachable, RunnerRefused):
                self._remove(folder)

    def _remove_old_compiles(self) -> None:
        """Those of servers that were killed."""
        for folder in self._node.builds.glob(f"{_COMPILES}*"):
            with suppress(FileNotFoundError):
                if time.time() - folder.stat().st_mtime > _OLD_S:
                    self._remove(folder)

    def _provide_python(self, spec: EnvironmentSpec, uv: Uv) -> None:
        """Download a Python that the machine lacks; the build user's own could be changed by the
        next build."""
        if spec.conda or pythons.is_here(spec.python):
            return
        variables = {"UV_PYTHON_INSTALL_DIR": str(self._node.pythons), "PATH": _PATH}
        find = [find_uv(), "python", "find", spec.python]
        folder = self._node.pythons
        if uv.run_program(find, folder, f"uv python find {spec.python}", variables).code != 0:
            install = [find_uv(), "python", "install", spec.python]
            uv.run_program(install, folder, f"uv python install {spec.python}", variables)

    def _make_folder(self, folder: Path, request: str) -> None:
        name = str(self._runner.call("hello").get("build_user") or "")
        if not name:
            raise BuildFailed(
                "the runner has no build user, and nobody else may run code of packages",
                "name one as `build_user` in /etc/torchyard/runner.json, then restart "
                "torchyard-runner",
                code="no_build_user",
            )
        (folder / "work").mkdir(parents=True)
        # The runner lets the build user enter, as long as the build runs.
        (folder / REQUEST).write_text(request)
        (folder / REQUEST).chmod(0o644)

    def _build(self, folder: Path, variables: Mapping[str, str], uv: Uv) -> Result:
        code = self._run(folder.name, variables, uv)
        try:
            result = _result(folder / "work" / RESULT)
        except (OSError, ValueError, TypeError) as error:
            raise BuildFailed(
                f"the build ended with {code} and left no result", "see the build log"
            ) from error
        if result.code == "disk_full":
            raise no_space()
        if result.error or code != 0:
            raise BuildFailed(uv.clean(result.error), uv.clean(result.hint))
        return result

    def _passed(self, uv: Uv) -> dict[str, str]:
        """The variables of a build."""
        passed = {
            name: value
            for name, value in uv.config.variables.items()
            if _PASSED.match(name) and name not in _OWN_FOLDERS
        }
        passed |= {"UV_PYTHON_INSTALL_DIR": str(self._node.pythons), "NO_COLOR": "1"}
        # The build user can't write there: `_provide_python` has downloaded what was named.
        return {**passed, "UV_PYTHON_DOWNLOADS": "never"}

    def _run(self, build: str, variables: Mapping[str, str], uv: Uv) -> int:
        """Run the program as a build user, its output in the build's log; its exit code."""
        words = [sys.executable, "-I", "-m", build_program.__name__]
        readable, writable = os.pipe()
        with os.fdopen(readable, "rb") as output:
            try:
                running = self._runner.start(
                    "build", [writable], command=words, build=build, environment=dict(variables)
                )
            finally:
                os.close(writable)
            with running:
                with selectors.DefaultSelector() as waiting:
                    waiting.register(output, selectors.EVENT_READ)
                    waiting.register(running.connection, selectors.EVENT_READ)
                    ends = output.fileno(), running.connection.fileno()
                    self._follow(waiting, *ends, uv, uv.is_canceled)
                return int(running.answer()["exit_code"])

    def _follow(
        self,
        waiting: selectors.BaseSelector,
        output: int,
        connection: int,
        uv: Uv,
        canceled: Callable[[], bool],
    ) -> None:
        """Write the program's lines to the log until the runner answers."""
        rest = b""
        while True:
            ready = {key.fd for key, _ in waiting.select(_POLL_S)}
            if canceled():
                uv.say("canceled")
                raise BuildCanceled("the build was canceled")
            if output in ready:
                data = os.read(output, 65536)
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    uv.say(line.decode("utf-8", "replace"))
                if data:
                    continue
                waiting.unregister(output)
            if connection in ready:
                if rest:
                    uv.say(rest.decode("utf-8", "replace"))
                return

    def _remove(self, folder: Path) -> None:
        """The files of a build user can be removed by the runner alone."""
        if folder.exists():
            self._runner.call("remove_build", build=folder.name)


def _without_passwords(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables as code of packages may see them; a proxy's address stays as it is."""
    return {
        name: value if name.lower().endswith("_proxy") else _TOKEN.sub("/", _USER.sub("", value))
        for name, value in variables.items()
        if not _CREDENTIAL.search(name)
    }


def _result(file: Path) -> Result:
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as opened:
        body = json.loads(opened.read(_MOST_RESULT_BYTES))
    if not isinstance(body, dict) or not all(isinstance(text, str) for text in body.values()):
        raise ValueError("the result has another form")
    return Result(**body)
