"""Ray's own environments: a Python and Ray, made by uv when they are first needed.

Owns: their folders, making one once however many ask.
Leaves: which version a cluster runs to executor.py, the machine's package configuration to callers.
Always: neither `yard` nor the server imports Ray; an environment is complete or is made again, for
its stamp is written last, and uv ends with a killed server or keeps the lock.
"""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torchyard.base import package_sources
from torchyard.base.errors import BuildFailed
from torchyard.executors.ray.programs import OwnPrograms, RayPrograms
from torchyard.shared import locks

TESTED_VERSION = "2.60.0"
"""The newest Ray that the tests run."""
_VERSION = re.compile(r"\d+(\.\d+){1,3}([a-z]+\d+)?")
_PYTHON = re.compile(r"3\.\d+\.\d+([a-z]+\d+)?")
_EXTRA = re.compile(r"[a-z][a-z0-9-]*")
_STAMP = "torchyard-complete"
_LIMIT_S = 1800.0


@dataclass(frozen=True)
class RayVersion:
    """Ray, the Python it runs on, and Ray's optional parts; Ray lets only equal ones connect.

    Raises:
        ValueError: one of them is not a version number, or not a name.
    """

    ray: str = TESTED_VERSION
    python: str = ""
    extras: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.python:
            object.__setattr__(self, "python", platform.python_version())
        if not _VERSION.fullmatch(self.ray):
            raise ValueError(f"`{self.ray}` is not a version of Ray, such as {TESTED_VERSION}")
        if not _PYTHON.fullmatch(self.python):
            raise ValueError(f"`{self.python}` is not a version of Python, such as 3.11.7")
        if not all(_EXTRA.fullmatch(extra) for extra in self.extras):
            raise ValueError(f"`{', '.join(self.extras)}` are not extras of Ray")

    @property
    def folder(self) -> str:
        """The name of its environment's folder."""
        return "-".join([f"ray-{self.ray}-py{self.python}", *self.extras])

    @property
    def requirement(self) -> str:
        """As a package installer reads it."""
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"ray{extras}=={self.ray}"


@dataclass(frozen=True)
class RayEnvironment:
    """A complete environment."""

    folder: Path
    version: RayVersion

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def ray(self) -> str:
        """The `ray` command."""
        return str(self.folder / "bin" / "ray")


class RayEnvironments:
    """
    Args:
        home: keeps the locks; without `programs`, environments are made in its folder `engines`.
        uv: the program; base/home/uv.py finds it.
        variables: the machine's own; uv gets them with pip's package sources, certificates and
            proxy.
        programs: as whom uv runs, in whose folder environments are made.
    """

    def __init__(
        self,
        home: Path,
        uv: str,
        variables: Mapping[str, str],
        programs: RayPrograms | None = None,
    ) -> None:
        self._locks = home / "engines"
        self._programs = programs or OwnPrograms(home)
        self._uv = uv
        self._variables = dict(variables)

    def complete(self, version: RayVersion) -> RayEnvironment | None:
        """The environment if it is there; makes nothing."""
        folder = self._programs.folder / version.folder
        is_complete = self._programs.exists(folder / _STAMP)
        return RayEnvironment(folder, version) if is_complete else None

    def get(self, version: RayVersion) -> RayEnvironment:
        """The environment, made if it is not there: seconds from warm caches, else minutes.

        Raises:
            BuildFailed: it can't be had, with the reason.
            EngineUnreachable: the runner can't be asked.
        """
        environment = self.complete(version)
        if environment is not None:
            return environment
        self._locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = locks.open_lock(self._locks / f".{version.folder}.lock")
        try:
            locks.lock(lock)
            return self.complete(version) or self._make(version, lock)
        finally:
            os.close(lock)

    def _make(self, version: RayVersion, lock: int) -> RayEnvironment:
        folder = self._programs.folder / version.folder
        self._programs.remove(folder)
        self._run(["venv", "--no-project", "--python", version.python, str(folder)], version, lock)
        environment = RayEnvironment(folder, version)
        self._run(["pip", "install", "-p", environment.python, version.requirement], version, lock)
        if not self._programs.exists(Path(environment.ray)):
            raise BuildFailed(f"{version.requirement} brought no `ray` command")
        self._programs.touch(folder / _STAMP)
        return environment

    def _run(self, arguments: list[str], version: RayVersion, lock: int) -> None:
        sources = package_sources.uv_variables(self._variables)
        variables = {**sources, "NO_COLOR": "1", "UV_NO_PROGRESS": "1"}
        try:
            words = [self._uv, "--quiet", *arguments]
            ended = self._programs.run(words, variables, _LIMIT_S, lock)
        except TimeoutError:
            raise _failed(version, f"uv did not end within {_LIMIT_S / 60:.0f} minutes") from None
        except OSError as error:
            raise BuildFailed(f"`{self._uv}` can't be run: {error.strerror}") from error
        if ended.code:
            raise _failed(version, " ".join(ended.said.split())[:400])


def _failed(version: RayVersion, reason: str) -> BuildFailed:
    return BuildFailed(
        f"Ray {version.ray} on Python {version.python} can't be installed on "
        f"`{socket.gethostname()}`: {reason}",
        "check the two versions, and that this machine has this Python and reaches its package "
        "index: `uv` and `pip` take it, certificates and a proxy from pip's configuration, too",
    )
