"""Make the folder of an environment that is an image.

Owns: the steps: base images, an environment put into one, the Dockerfile, unpacking, rename.
Leaves: images to an Engine, the environments that go into them to builds.py.
Always: the caller holds the environment's lock; the folder appears complete, by one rename; package
sources and certificates of this machine are mounted during a build and kept in none of its files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from torchyard.base.blobs import Blobs
from torchyard.base.errors import BuildFailed
from torchyard.environments.build.builder import EnvironmentPaths
from torchyard.environments.images import containers, dockerfile, image_folder, interpreter
from torchyard.environments.images.engine import (
    FROM_NAME,
    Engine,
    ImageFacts,
    MachineFiles,
    is_name,
    registry_of,
)
from torchyard.environments.packages.uv import Uv
from torchyard.environments.types import EnvironmentSpec, ImageSpec

PREFIX = "localhost/torchyard"
# The path of an environment in an image; conda environments can't be moved and keep theirs.
ENVIRONMENT = "/opt/torchyard/env"
_OVER = """\
FROM {base}
COPY . {target}
ENV PATH={target}/bin:{path}
RUN ldconfig && {target}/bin/python -c "import ctypes, hashlib, ssl, zlib"
"""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Builds an environment unless it exists; returns its folder.
Inner = Callable[[EnvironmentSpec], Path]


def run(
    spec: EnvironmentSpec,
    paths: EnvironmentPaths,
    engine: Engine,
    inner: Inner,
    blobs: Blobs,
    log: Uv,
) -> str:
    """Build, unpack, rename; returns what the image consists of, as a lock.

    Raises:
        BuildFailed: names the image, the step or the package at fault.
        BuildCanceled: the build was canceled.
    """
    assert spec.image is not None
    for folder in paths.built.glob(f".building-{spec.hash}-*"):
        image_folder.remove(folder)
    working = paths.built / f".building-{spec.hash}-{os.getpid()}"
    working.mkdir()
    mark = hashlib.sha256(f"{paths.built} {spec.hash}".encode()).hexdigest()[:24]
    machine = containers.machine_files(log.config, working)
    build = _ImageBuild(engine, inner, blobs, log, working, machine, mark)
    engine.sweep(mark)
    try:
        tag = build.of(spec)
        facts = engine.facts(tag)
        if facts is None:
            raise BuildFailed(f"image `{tag}` was removed meanwhile", "submit the job again")
        _unpack(tag, facts, build, paths)
    finally:
        engine.sweep(mark)
        image_folder.remove(working)
    return "".join(build.lock) + image_folder.packages_as_lock(paths.folder)


class _ImageBuild:
    """One build in progress; `lock` has a line for each image that it starts from."""

    def __init__(
        self,
        engine: Engine,
        inner: Inner,
        blobs: Blobs,
        log: Uv,
        working: Path,
        machine: MachineFiles,
        mark: str,
    ) -> None:
        self.mark = mark
        self._name_count = 0
        self.engine = engine
        self.log = log
        self.working = working
        self.machine = machine
        self.lock: list[str] = []
        self.tags: list[str] = []
        self._inner = inner
        self._blobs = blobs

    def of(self, spec: EnvironmentSpec) -> str:
        """The engine's name of the image that the environment is, built unless it is there."""
        assert spec.image is not None
        if spec.image.name:
            return self.of_image(spec, spec.image)
        return self.of_dockerfile(spec, spec.image)

    def of_image(self, spec: EnvironmentSpec, image: ImageSpec) -> str:
        name, facts = self._there(image.name)
        if not spec.python:
            return name
        return self._over(name, facts, replace(spec, image=None, ref=""))

    def of_dockerfile(self, spec: EnvironmentSpec, image: ImageSpec) -> str:
        others = {name: self._named_from(self._of_base(image, base)) for name, base in image.bases}
        context = self._put_context(image, spec.hash)
        text = (context / image.dockerfile).read_text(encoding="utf-8-sig")
        for line in dockerfile.images(text):
            if line.name and line.name not in others:
                others[line.name] = self._named_from(self._there(line.name)[0])
        file = self.working / "Dockerfile"
        file.write_text(dockerfile.with_images(text, others), encoding="utf-8")
        tag = f"{PREFIX}:{spec.hash[:24]}"
        self.engine.build(file, context, tag, self.machine, self.log, f"({image.dockerfile})")
        self.tags.append(tag)
        if not spec.python:
            return tag
        built = self.engine.facts(tag)
        assert built is not None
        return self._over(tag, built, replace(spec, image=None, ref=""))

    def _of_base(self, image: ImageSpec, base: EnvironmentSpec) -> str:
        """The image of an environment that a FROM line names."""
        subject = base.ref or f"environment {base.hash[:12]}"
        if base.image is None:
            os_image, facts = self._there(image.os_image)
            self._say_base(f"# base {subject} {base.hash} over {os_image}\n")
            return self._over(os_image, facts, base)
        self._say_base(f"# base {subject} {base.hash}\n")
        # The same that jobs in that environment have, unless the engine has lost it.
        tag = f"{PREFIX}:{base.hash[:24]}"
        is_there = not base.python and self.engine.facts(tag) is not None
        return tag if is_there else self.of(base)

    def _say_base(self, line: str) -> None:
        if line not in self.lock:
            self.log.say(line.removeprefix("# ").rstrip())
            self.lock.append(line)

    def _put_context(self, image: ImageSpec, hash: str) -> Path:
        context = self.working / f"context-{hash[:24]}"
        for context_file in self._blobs.snapshot(image.context).files:
            target = context / context_file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._blobs.path(context_file.sha256), target)
            target.chmod(int(context_file.mode, 8))
        for folder, _, _ in os.walk(context):
            os.chmod(folder, 0o755)  # as a checkout has it: the image may have users of its own
        return context

    def _there(self, image: str) -> tuple[str, ImageFacts]:
        """The image by the engine's name for it, pulled unless it is there."""
        if not is_name(image):
            raise BuildFailed(f"`{image}` is not a valid image name", "write `FROM <name>:<tag>`")
        facts = self.engine.facts(image)
        if facts is None:
            image = _with_registry(image)
            facts = self.engine.facts(image)
        if facts is None:
            self.engine.pull(image, self.log)
            self.tags.append(image)
            facts = self.engine.facts(image)
        if facts is None:
            raise BuildFailed(f"image `{image}` was pulled but is missing", "submit again")
        line = f"# image {image} {facts.digest or facts.id}\n"
        if line not in self.lock:
            self.log.say(f"starts from {image}, {facts.digest or facts.id}")
            self.lock.append(line)
        return image, facts

    def _named_from(self, image: str) -> str:
        """Give the image a name for FROM lines of this build alone."""
        self._name_count += 1
        name = FROM_NAME.format(self.mark, self._name_count)
        self.engine.tag(image, name)
        return name

    def _over(self, base: str, facts: ImageFacts, spec: EnvironmentSpec) -> str:
        """An image with the environment in it, first on its PATH."""
        folder = self._inner(spec)
        target = str(folder) if spec.conda else ENVIRONMENT
        mark = hashlib.sha256(f"{facts.id} {spec.hash}".encode()).hexdigest()[:24]
        tag = f"{PREFIX}-base:{mark}"
        self.tags.append(tag)
        if self.engine.facts(tag) is not None:
            return tag
        subject = spec.ref or f"environment {spec.hash[:12]}"
        python = self.working / "python"
        interpreter.copy(folder, python)
        file = self.working / "Dockerfile.python"
        file.write_text(f"FROM {self._named_from(base)}\nCOPY . /\n", encoding="utf-8")
        below = f"{tag}-python"
        nothing = MachineFiles({})
        self.engine.build(file, python, below, nothing, self.log, f"(Python of {subject})")
        shutil.rmtree(python)
        path = facts.variables.get("PATH") or _PATH
        text = _OVER.format(base=self._named_from(below), target=target, path=path)
        file.write_text(text, encoding="utf-8")
        try:
            self.engine.build(file, folder, tag, nothing, self.log, f"({subject} over {base})")
        except BuildFailed as error:
            if "ldconfig" not in error.message:
                raise
            raise BuildFailed(
                f"the Python of {subject} does not run on `{base}`: its C library may be older "
                "than this machine's, or a different one",
                "use a newer image; for FROM lines that name an environment, set `os_image` in "
                f"`{containers.FILE}` in the server's home folder",
            ) from error
        finally:
            self.engine.remove([below])
        return tag


def _unpack(tag: str, facts: ImageFacts, build: _ImageBuild, paths: EnvironmentPaths) -> None:
    ready = build.working / "ready"
    rootfs = ready / image_folder.ROOT
    rootfs.mkdir(parents=True)
    build.engine.unpack(tag, rootfs, build.mark, build.log)
    _remove_mount_points(rootfs, build.machine.by_target)
    image_folder.write(ready, facts, build.tags, build.engine.name)
    if facts.user not in ("", "root", "0"):
        build.log.say(f"the image's USER {facts.user} is ignored: jobs run as its root")
    if paths.folder.exists():
        paths.folder.rename(build.working / "old")
    ready.rename(paths.folder)


def _remove_mount_points(rootfs: Path, targets: Mapping[str, Path]) -> None:
    """Remove the empty files and folders at which machine files were mounted."""
    root = rootfs.resolve()
    for name in targets:
        path = rootfs / name.lstrip("/")
        # A link of the image may lead out of it.
        if path.is_symlink() or not path.parent.resolve().is_relative_to(root):
            continue
        is_empty_file = path.is_file() and not path.stat().st_size
        if not is_empty_file and not (path.is_dir() and not any(path.iterdir())):
            continue
        # An ordinary user removes nothing from a folder without write bits.
        mode = path.parent.stat().st_mode
        path.parent.chmod(mode | stat.S_IRWXU)
        if is_empty_file:
            path.unlink()
        else:
            path.rmdir()
        path.parent.chmod(mode)


def _with_registry(image: str) -> str:
    """The full name of a short one, as docker reads it."""
    if registry_of(image) != "docker.io" or image.startswith("docker.io/"):
        return image
    return f"docker.io/{image}" if "/" in image else f"docker.io/library/{image}"
