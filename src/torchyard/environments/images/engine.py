"""Container engines, as builders of images.

Owns: the protocol, podman and docker behind it, reading their errors.
Leaves: choosing one to containers.py, what is built to build/image_builder.py, running jobs to the
worker.
Always: an engine builds, unpacks and removes images; it never runs jobs. No process of it outlives
its command: an ordinary user's podman would leave one that pauses.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torchyard.base import leash
from torchyard.base.errors import BuildFailed
from torchyard.environments.images import dockerfile
from torchyard.environments.packages.uv import Outcome, Uv, is_full, no_space

_ASK_S = 60.0
# Gigabytes of small files on a busy disk.
_REMOVE_S = 600.0
# By these names, images and containers of a killed build are found again.
FROM_NAME = "localhost/torchyard-from:{}-{}"
_CONTAINER = "torchyard-{}"
_NAME = re.compile(
    r"(?:[\w.-]+(?::\d+)?/)?[a-z0-9][\w.-]*(?:/[a-z0-9][\w.-]*)*(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?",
    re.ASCII,
)


@dataclass(frozen=True)
class ImageFacts:
    """What an engine knows about an image. `variables` are those that it sets."""

    id: str
    digest: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    user: str = ""
    size_bytes: int = 0


@dataclass(frozen=True)
class MachineFiles:
    """Files and folders of this machine that are mounted in a build and kept in no image.

    `by_target` maps paths in the build to paths on this machine.
    """

    by_target: Mapping[str, Path]


class Engine(Protocol):
    """Builds and unpacks images. `log` is the log of the build in progress."""

    @property
    def name(self) -> str: ...

    def facts(self, image: str) -> ImageFacts | None:
        """None when the image is not on this machine."""
        ...

    def pull(self, image: str, log: Uv) -> None:
        """
        Raises:
            BuildFailed: names the image and its registry.
        """
        ...

    def build(
        self, file: Path, context: Path, tag: str, machine: MachineFiles, log: Uv, shown: str
    ) -> None:
        """
        Raises:
            BuildFailed: names the step, and the package if one is missing.
        """
        ...

    def unpack(self, image: str, folder: Path, mark: str, log: Uv) -> None:
        """Unpack the image's files into `folder`, which exists and is empty."""
        ...

    def tag(self, image: str, name: str) -> None:
        """Give the image another name."""
        ...

    def sweep(self, mark: str) -> None:
        """Remove containers of killed builds with this mark, and its `FROM_NAME`s."""
        ...

    def remove(self, images: Sequence[str]) -> None:
        """Remove those images that exist and that nothing else needs."""
        ...


class Command:
    """podman, or docker with the same arguments.

    Args:
        program: its absolute path.
        is_podman: it supports mounts in builds, and builds without a runtime.
        variables: the process environment.
    """

    def __init__(self, program: str, is_podman: bool, variables: Mapping[str, str]) -> None:
        self._program = program
        self._is_podman = is_podman
        self._variables = dict(variables)

    @property
    def name(self) -> str:
        return "podman" if self._is_podman else "docker"

    def facts(self, image: str) -> ImageFacts | None:
        outcome = self._ask("image", "inspect", image)
        return None if outcome.returncode else _facts(json.loads(outcome.stdout)[0])

    def pull(self, image: str, log: Uv) -> None:
        outcome = self._run(["pull", image], Path("/"), log, f"{self.name} pull {image}")
        if outcome.code:
            raise not_pulled(self.name, image, outcome.words)

    def build(
        self, file: Path, context: Path, tag: str, machine: MachineFiles, log: Uv, shown: str
    ) -> None:
        words = ["build", "--network", "host", "--tag", tag, "--file", str(file)]
        if self._is_podman:
            # Needs no runtime and no cgroup; the build's processes end with it.
            words += ["--isolation", "chroot"]
            for target, source in machine.by_target.items():
                words += ["--volume", f"{source}:{target}:ro"]
        else:
            # Docker sets these variables itself, and keeps them out of the image's history.
            for variable in ("http_proxy", "https_proxy", "no_proxy"):
                for name in (variable, variable.upper()):
                    words += ["--build-arg", name] if name in self._variables else []
        outcome = self._run([*words, str(context)], context, log, f"{self.name} build {shown}")
        if outcome.code:
            raise _build_failure(self.name, outcome)

    def tag(self, image: str, name: str) -> None:
        self._ask("tag", image, name)

    def sweep(self, mark: str) -> None:
        self._ask("rm", "--force", _CONTAINER.format(mark))
        names = FROM_NAME.format(mark, "")
        if self._is_podman:
            # A killed build leaves the container of its last step.
            left = self._ask("ps", "--all", "--external", "--format", "{{.ID}} {{.Image}}").stdout
            rows = (line.split() for line in left.splitlines())
            ids = [row[0] for row in rows if len(row) > 1 and row[1].startswith(names)]
            if ids:
                self._ask("rm", "--force", *ids)
        there = self._ask("images", "--format", "{{.Repository}}:{{.Tag}}").stdout
        self.remove([name for name in there.split() if name.startswith(names)])

    def unpack(self, image: str, folder: Path, mark: str, log: Uv) -> None:
        container = _CONTAINER.format(mark)
        self._ask("rm", "--force", container)
        made = self._ask("create", "--name", container, image, "/bin/sh")
        if made.returncode:
            raise BuildFailed(
                f"{self.name} can't open image `{image}`: {_last(made.stderr)}",
                f"inspect it with `{self.name} image inspect {image}`",
            )
        try:
            owner = "--same-owner" if os.geteuid() == 0 else "--no-same-owner"
            script = f'"$0" export "$1" | tar --extract --numeric-owner {owner} --exclude "dev/*"'
            words = [*self._isolated(), "/bin/sh", "-c", script, self._program, container]
            outcome = log.run_program(words, folder, f"{self.name} export {image}")
        finally:
            self._ask("rm", "--force", container)
        if is_full(outcome.words):
            raise no_space()
        if outcome.code or not any(folder.iterdir()):
            raise BuildFailed(
                f"the files of image `{image}` can't be unpacked: {_last(outcome.words)}",
                "see the build log",
            )

    def remove(self, images: Sequence[str]) -> None:
        for image in images:
            self._ask("image", "rm", image, timeout_s=_REMOVE_S)

    def _run(self, words: Sequence[str], folder: Path, log: Uv, shown: str) -> Outcome:
        # All its output belongs in the log; `exec` lets a signal reach it.
        script = ["/bin/sh", "-c", 'exec "$0" "$@" 1>&2', self._program]
        return log.run_program([*self._isolated(), *script, *words], folder, shown)

    def _isolated(self) -> list[str]:
        """A command that runs it in namespaces, so that its steps and mounts end with it."""
        unshare = shutil.which("unshare", path=self._variables.get("PATH"))
        if not self._is_podman or os.geteuid() != 0 or unshare is None:
            return []
        return [unshare, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]

    def _ask(self, *words: str, timeout_s: float = _ASK_S) -> subprocess.CompletedProcess[str]:
        try:
            return leash.run([self._program, *words], timeout_s, self._variables)
        except subprocess.TimeoutExpired:
            message = f"no answer after {timeout_s:.0f} s"
            return subprocess.CompletedProcess(words, 124, "", message)


def is_name(image: str) -> bool:
    """Whether it is a valid image name, with registry, tag and digest."""
    return bool(_NAME.fullmatch(image))


def not_pulled(engine: str, image: str, words: str) -> BuildFailed:
    """The error for an image that an engine could not pull, with the engine's reason."""
    registry = registry_of(image)
    return BuildFailed(
        f"image `{image}` could not be pulled from {registry}: {_reason(words)}",
        f"check that this machine reaches {registry} and that the image exists; or bring it here "
        f"under that name: `{engine} load`, or `{engine} import <rootfs.tar> {image}`",
        code="image_not_pulled",
    )


def registry_of(image: str) -> str:
    first, slash, _ = image.partition("/")
    return (
        first if slash and ("." in first or ":" in first or first == "localhost") else "docker.io"
    )


_NOT_PULLED = re.compile(
    r"(?:initializing source docker://|pinging container registry|short-name|pull access denied|"
    r"failed to resolve source metadata for|error getting credentials|manifest unknown)"
)
_PULLED_FROM = re.compile(
    r"(?:docker://|Trying to pull |source metadata for |pull access denied for )"
    r"([^\s:,]+(?::[\w.-]+)?)"
)


# Lines of the engine itself in the output of a build.
_ENGINES = re.compile(
    r"Error: (building|committing|while)|subprocess exited|STEP |Step |-->|WARNING|time=\"|\[notice"
)


def _build_failure(engine: str, outcome: Outcome) -> BuildFailed:
    words = outcome.words
    if is_full(words):
        return no_space()
    if _NOT_PULLED.search(words):
        images = _PULLED_FROM.findall(words)
        if images:
            return not_pulled(engine, images[-1].rstrip("."), words)
    step = dockerfile.failed_step(words)
    package = dockerfile.missing_package(words)
    where = f"the Dockerfile's step `{step[:300]}`" if step else "the Dockerfile"
    if package:
        return BuildFailed(
            f"{where} failed: package `{package}` can't be installed",
            f"check the name and version of `{package}`; the build log has the whole output",
        )
    return BuildFailed(
        f"{where} failed: {_error_line(words)}", "its output is at the end of the build log"
    )


def _facts(body: dict[str, Any]) -> ImageFacts:
    config = body.get("Config") or {}
    pairs = (line.partition("=") for line in config.get("Env") or [])
    digests = body.get("RepoDigests") or []
    return ImageFacts(
        id=str(body.get("Id", "")).removeprefix("sha256:"),
        digest=digests[0].partition("@")[2] if digests else str(body.get("Digest") or ""),
        variables={name: value for name, _, value in pairs},
        folder=str(config.get("WorkingDir") or ""),
        user=str(config.get("User") or ""),
        size_bytes=int(body.get("Size") or 0),
    )


def _reason(words: str) -> str:
    """The innermost of an engine's nested messages."""
    last = _last(words).removeprefix("Error: ")
    for sign in ("no such host", "connection refused", "i/o timeout", "manifest unknown",
                 "unauthorized", "denied", "certificate"):  # fmt: skip
        if sign in last:
            return sign
    return last[-200:]


def _error_line(words: str) -> str:
    """The error line of the failed program, rather than that of the engine."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    program_lines = [line for line in lines if not _ENGINES.match(line)]
    errors = [line for line in program_lines if re.match(r"(?i)(fatal )?error\b|e: ", line)]
    return ([*program_lines, *errors][-1] if program_lines else _last(words))[:400]


def _last(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return lines[-1][:400] if lines else "it printed nothing"
