"""Have environments built and wheels fetched by the build user, through the runner.

Owns: the folder of such a build, its output, its end, what is believed of its result.
Leaves: the steps of the build to build_program.py, checking the files to handover.py.
Always: no code of strangers runs as the server's user, or as the one who owns environments; when
the server goes away, so does the build.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import secrets
import selectors
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from torchyard.base.errors import BuildFailed
from torchyard.base.home import access_lists
from torchyard.base.home.node_folder import NodeFolder
from torchyard.environments.build import build_program, builder, handover, kept_wheels
from torchyard.environments.build.build_program import REQUEST, RESULT, Result
from torchyard.environments.build.builder import EnvironmentPaths
from torchyard.environments.images import image_folder
from torchyard.environments.packages import pythons
from torchyard.environments.packages.uv import Uv, find_uv, no_space
from torchyard.environments.types import BuildCanceled, EnvironmentSpec
from torchyard.executors.runner_client import RunnerClient

_MOST_RESULT_BYTES = 8 << 20
_POLL_S = 0.25
_REMOVE = "/bin/rm"
# Of a command line: strangers' code names the files.
_MOST_WORDS = 1000
# The build user's, as runner/builds.py has it.
_PATH = "/usr/local/bin:/usr/bin:/bin"
# What a build needs of the server's variables; the rest may be anything.
_PASSED = re.compile(
    r"(UV_|PIP_|CONDA_|MAMBA_|RATTLER_|SSL_CERT_|REQUESTS_CA_BUNDLE\Z|CURL_CA_BUNDLE\Z|LANG\Z|LC_)"
    r"|(https?|all|no)_proxy\Z",
    re.IGNORECASE,
)
# Folders of the server's own user, which the build user can't enter.
_OWN_FOLDERS = ("UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR", "PIP_CACHE_DIR", "RATTLER_CACHE_DIR")


class RunnerBuilds:
    """
    Args:
        node: its `builds/` holds a folder for each build that runs.
    """

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
            self._remove(stale, uv)
        folder = builds / f"{spec.hash}-{secrets.token_hex(4)}"
        working = paths.built / f".building-{spec.hash}-{os.getpid()}"
        try:
            self._provide_python(spec, uv)
            self._make_folder(folder, build_program.build_request(spec, paths.folder, known_lock))
            kept_wheels.lay_out(
                paths.kept_wheels, paths.blobs, folder / "work", known_lock, paths.wheel_folder
            )
            result = self._build(folder / "work", uv)
            working.mkdir()
            handover.copy(folder / "work" / "venv", working / "venv")
            builder.publish(working, paths, result.lock)
        finally:
            image_folder.remove(working)
            self._remove(folder, uv)
        return result.lock

    def fetch(self, text: str, python: str, working: Path, uv: Uv) -> None:
        """As `kept_wheels.fetch`; what was fetched is copied, and not believed.

        Raises:
            BuildFailed, BuildCanceled, RunnerUnreachable, RunnerRefused: as `run`.
        """
        folder = self._node.builds / f"wheels-{secrets.token_hex(8)}"
        try:
            self._make_folder(folder, build_program.fetch_request(text, python))
            self._build(folder / "work", uv)
            handover.copy(folder / "work" / kept_wheels.FOLDER, working / kept_wheels.FOLDER)
        finally:
            self._remove(folder, uv)

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
        user = pwd.getpwnam(name).pw_uid
        work = folder / "work"
        work.mkdir(parents=True)
        (folder / REQUEST).write_text(request)
        (folder / REQUEST).chmod(0o644)
        access_lists.let_read(folder, [user])
        access_lists.let_write(work, [user])

    def _build(self, work: Path, uv: Uv) -> Result:
        words = [sys.executable, "-I", "-m", build_program.__name__]
        code = self._ask(words, work, uv.config.variables, uv, uv.is_canceled)
        try:
            result = _result(work / RESULT)
        except (OSError, ValueError, TypeError) as error:
            raise BuildFailed(
                f"the build ended with {code} and left no result", "see the build log"
            ) from error
        if result.code == "disk_full":
            raise no_space()
        if result.error or code != 0:
            raise BuildFailed(uv.clean(result.error), uv.clean(result.hint))
        return result

    def _ask(
        self,
        words: list[str],
        folder: Path,
        variables: Mapping[str, str],
        uv: Uv,
        canceled: Callable[[], bool] = lambda: False,
    ) -> int:
        """Run a program as the build user, its output in the build's log; its exit code."""
        passed = {
            name: value
            for name, value in variables.items()
            if _PASSED.match(name) and name not in _OWN_FOLDERS
        }
        passed |= {"UV_PYTHON_INSTALL_DIR": str(self._node.pythons), "NO_COLOR": "1"}
        # The build user can't write there: `_provide_python` has downloaded what was named.
        passed["UV_PYTHON_DOWNLOADS"] = "never"
        readable, writable = os.pipe()
        with os.fdopen(readable, "rb") as output:
            try:
                running = self._runner.start(
                    "build", [writable], command=words, folder=str(folder), environment=passed
                )
            finally:
                os.close(writable)
            with running:
                with selectors.DefaultSelector() as waiting:
                    waiting.register(output, selectors.EVENT_READ)
                    waiting.register(running.connection, selectors.EVENT_READ)
                    ends = output.fileno(), running.connection.fileno()
                    self._follow(waiting, *ends, uv, canceled)
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

    def _remove(self, folder: Path, uv: Uv) -> None:
        """The build user's own files can be removed by that user alone."""
        work = folder / "work"
        if work.exists():
            names = [str(path) for path in work.iterdir()]
            for start in range(0, len(names), _MOST_WORDS):
                words = [_REMOVE, "-rf", "--", *names[start : start + _MOST_WORDS]]
                self._ask(words, work, {}, uv)
        shutil.rmtree(folder, ignore_errors=True)


def _result(file: Path) -> Result:
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as opened:
        body = json.loads(opened.read(_MOST_RESULT_BYTES))
    if not isinstance(body, dict) or not all(isinstance(text, str) for text in body.values()):
        raise ValueError("the result has another form")
    return Result(**body)
