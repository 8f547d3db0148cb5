"""Environments that jobs of the workspace may name, over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from torchyard.base.errors import BuildFailed, InvalidInput
from torchyard.base.http import Transport
from torchyard.client import resources as read
from torchyard.client.assets import AssetDeletion, delete_asset
from torchyard.client.releases.verbs import EnvironmentReleases
from torchyard.client.resources import Json, Listing, Resource
from torchyard.client.times import Deadline

if TYPE_CHECKING:
    from torchyard.client.images.exported_image import ExportedImage
    from torchyard.client.images.installation import Installed
    from torchyard.client.images.steps import Steps
    from torchyard.client.snapshots.job_files import JobFiles
    from torchyard.client.snapshots.snapshots import Snapshots

_POLL_S = 0.3
# On a page, of the newest.
_MOST_REPORTS = 20
Paths = list[Path]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Environment(Resource):
    """One version of an environment that jobs may name.

    Args:
        python, torch, cuda: versions; empty where they are not known.
        packages: as `torch==2.13.0`: those of its build, else those that were asked for.
        status: `registered` or `curated`.
        build: `ready`, `not built` or the last build's state; empty in a list.
        notices: what takes the place of what.
        created_at: None for curated ones.
    """

    _making: ClassVar[str] = (
        """for one job write `command(environment={"pip_requirements": ["torch==2.13.0"]})`; """
        """`client.environments.create({"name": "mine", "pip_requirements": […]})` keeps it"""
    )

    name: str
    version: str
    description: str
    python: str
    torch: str
    cuda: str
    packages: tuple[str, ...]
    status: str
    build: str
    notices: tuple[str, ...]
    tags: Mapping[str, str]
    owner: str
    created_at: datetime | None
    archived: bool


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ResolvedEnvironment(Resource):
    """What a reference or an inline definition becomes here.

    Args:
        ref: its name and version; empty for an inline one.
        hash: sha256 of its content.
        build: `ready`, `not built` or the last build's state.
        packages: as `torch==2.13.0`: those of its build, else those that were asked for.
        refused: why no job may use it; empty where one may. `hint` says what to do.
    """

    ref: str
    hash: str
    python: str
    platform: str
    build: str
    packages: tuple[str, ...]
    notices: tuple[str, ...]
    refused: str
    hint: str

    _shown = ("ref", "python", "build")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ExportedEnvironment(Resource):
    """An environment as a file for elsewhere.

    Args:
        file: what the file is called.
        source: `lock` where every package has its version; `definition` for one never built.
        notices: what the file can't hold.
    """

    name: str
    file: str
    text: str
    source: str
    notices: tuple[str, ...]

    _shown = ("name", "file", "source")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EnvironmentDefinition(Resource):
    """What a named environment is made of; `definition` is what a job file may say inline."""

    name: str
    version: str
    definition: Mapping[str, Any]
    notices: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BuiltEnvironment(Resource):
    """Where a built environment lies on the server's machine; a shared lock on `lock` keeps it."""

    ref: str
    hash: str
    folder: Path
    lock: Path

    _shown = ("ref", "folder")


class Environments(EnvironmentReleases):
    """Environments that jobs of the workspace may name.

    Example::

        client.environments.create({"name": "mine", "pip_requirements": ["torch==2.13.0"]})
        client.environments.build("mine@latest", print, timeout_s=600)
    """

    def __init__(self, transport: Transport, workspace_path: str, snapshots: Snapshots) -> None:
        super().__init__(transport, workspace_path, snapshots)
        self._path = f"{workspace_path}/environments"

    def create(self, document: Mapping[str, Any], folder: Path | None = None) -> Environment:
        """Register a version of `document["name"]`, the next one unless it names one.

        Args:
            document: name, and one of `image`, `image` with `conda_file`, `conda_file`,
                `pip_requirements`, `build`; files in it are relative to `folder`.
            folder: the current one when None.

        Raises:
            InvalidSpec: a key that can't be honoured.
            Conflict: the version it names exists with another content.
        """
        files = self._found(document, folder)
        with files.locating():
            return _environment(
                self._transport.post(self._path, self._snapshots.send_job_files(files))
            )

    def uploaded(self, document: Mapping[str, Any], folder: Path | None = None) -> dict[str, Any]:
        """The document with its files read into it, and its build context uploaded."""
        return self._snapshots.send_job_files(self._found(document, folder))

    def _found(self, document: Mapping[str, Any], folder: Path | None) -> JobFiles:
        from torchyard.client.snapshots.job_files import find_environment

        return find_environment(document, folder or Path.cwd(), self._snapshots.limits)

    def list(self, name: str = "", *, archived: bool = False) -> Listing[Environment]:
        """Curated ones and the workspace's own, the latest of each; with `name`, its versions."""
        query = {"name": name or None, "archived": "true" if archived else None}
        response = self._transport.get(self._path, query)
        return Listing(_environment(row) for row in response["value"])

    def get(self, name: str, version: str = "latest") -> Environment:
        """One version.

        Raises:
            NotFound: the environment does not exist, or not in this version.
        """
        return _environment(self._transport.get(self._version_path(name, version)))

    def page(self, name: str, version: str = "latest") -> str:
        """A version in Markdown: label, size, tests with figures, vulnerabilities by age, packages.

        Raises:
            NotFound: the environment does not exist, or not in this version.
        """
        from torchyard.client.releases.page import page

        shown = self.get(name, version)
        name, version = shown.name, shown.version
        base = f"{name}:{version}"
        listed = [
            *(each for each in self.releases(name, validations=True) if each.base == base),
            *(each for each in self.releases(name) if each.version == version),
        ]
        reports = [self.get_release(each.job).raw for each in listed[:_MOST_REPORTS]]
        exceptions = next(
            (
                each["request"].get("exceptions", ())
                for each in reports
                if each["kind"] == "release"
            ),
            (),
        )
        try:
            audit = self.audit(name, version, exceptions=exceptions).raw
        except InvalidInput as error:
            return page(shown.raw, reports, why_no_audit=error.message)
        return page(shown.raw, reports, audit)

    def archive(self, name: str, version: str = "") -> None:
        """Hide a version, or all of them, from lists; jobs that name it still find it."""
        self._transport.post(f"{self._container_path(name, version)}/archive")

    def restore(self, name: str, version: str = "") -> None:
        """Undo `archive`."""
        self._transport.post(f"{self._container_path(name, version)}/restore")

    def delete(
        self, name: str, version: str = "", *, force: bool = False, dry_run: bool = False
    ) -> AssetDeletion:
        """Delete a version, or all of them, for good; what was built stays until `yard gc`.

        Args:
            force: delete it although ended jobs or components name it; `breaks` says what
                no longer works.
            dry_run: check everything and delete nothing.

        Raises:
            NotFound: no such version exists.
            Conflict: something names it, or an unfinished job uses it; nothing was deleted.
        """
        path = self._container_path(name, version)
        return delete_asset(self._transport, path, force=force, dry_run=dry_run)

    def resolve(self, environment: str | Mapping[str, Any]) -> ResolvedEnvironment:
        """What a reference or an inline definition becomes here: packages, notices, its build.

        Raises:
            NotFound: the environment does not exist.
        """
        body = {"environment": environment}
        return _resolved(self._transport.post(f"{self._path}/resolve", body))

    def build(
        self,
        environment: str | Mapping[str, Any],
        log: Callable[[str], None] = lambda text: None,
        *,
        timeout_s: float | None = None,
    ) -> ResolvedEnvironment:
        """Build it now, unless it is there; returns when it is.

        Ctrl-C leaves the build running.

        Args:
            log: gets the build's log as it is written.
            timeout_s: how long to wait; None for as long as it takes.

        Raises:
            BuildFailed: names the package at fault.
            Timeout: it is not built in time; the build goes on.
        """
        hint = "the build goes on; call `build` again to wait for it"
        deadline = Deadline(timeout_s, "the environment is not built", hint)
        try:
            self._wait_until_ready({"environment": environment}, log, deadline)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(hint) from None
        return self.resolve(environment)

    def export(
        self, environment: str | Mapping[str, Any], format: str = "dockerfile"
    ) -> ExportedEnvironment:
        """The environment as a file for elsewhere.

        Args:
            format: `dockerfile`, `requirements` or `conda`.

        Raises:
            InvalidInput: no such format, or it can't hold what is in the environment.
        """
        body = {"environment": environment, "format": format}
        raw: Json = self._transport.post(f"{self._path}/export", body)
        return ExportedEnvironment(
            raw=raw,
            name=raw["name"],
            file=raw["file"],
            text=raw["text"],
            source=raw["source"],
            notices=read.texts(raw, "notices"),
        )

    def export_image(
        self,
        environment: str | Mapping[str, Any],
        target: Path | str | None = None,
        *,
        push: str = "",
        plain_http: bool = False,
        base: str = "",
        overwrite: bool = False,
        log: Callable[[str], None] = lambda text: None,
        steps: Steps | None = None,
    ) -> ExportedImage:
        """Write an OCI image of an environment, which runs without torchyard; built if necessary.

        Args:
            target: a file that ends in `.tar`, or a folder; None to push only.
            push: where skopeo brings it, as `registry.example.com/team/vision:3`; the
                environment's version is the default tag.
            plain_http: allow a registry without TLS; on this machine one is always allowed.
            base: an image that the server's container engine puts the environment over; without
                it, the image has the files of the server's machine that its programs need.
            overwrite: replace an image at `target`.
            log: gets the log of a build.
            steps: is told what is read and sent, and notices.

        Raises:
            BuildFailed: the environment, or `base`, can't be had.
            Conflict: `target` exists, and `overwrite` is false.
            InvalidInput: `target`, `push` or `base` is not one.
            UploadFailed: the registry does not take it; an image at `target` stays.

        Example::

            client.environments.export_image("vision:3", "vision.tar")
        """
        from torchyard.client.images import image_export
        from torchyard.client.images import steps as quiet

        def build(body: Json) -> None:
            deadline = Deadline(None, "the environment is not built", "")
            self._wait_until_ready(body, log, deadline)

        request = image_export.ImageRequest(
            environment,
            None if target is None else Path(target),
            push,
            plain_http,
            base,
            overwrite,
        )
        follow = steps or quiet.Steps()
        return image_export.make(self._transport, self._path, request, build, follow)

    def install(
        self,
        environment: str,
        prefix: Path | str,
        *,
        log: Callable[[str], None] = lambda text: None,
        steps: Steps | None = None,
    ) -> Installed:
        """Put an environment into a folder of this machine, where it runs without torchyard.

        Args:
            prefix: a folder that does not exist or is empty; it can't be moved afterwards.
            log: gets the log of a build.
            steps: is told what is read, and notices.

        Raises:
            BuildFailed: the environment can't be had, or its Python does not run here.
            Conflict: `prefix` has files.
            InvalidInput: the environment is an image, or holds conda packages.
        """
        from torchyard.client.images import installation
        from torchyard.client.images import steps as quiet

        def build(body: Json) -> None:
            deadline = Deadline(None, "the environment is not built", "")
            self._wait_until_ready(body, log, deadline)

        follow = steps or quiet.Steps()
        return installation.install(
            self._transport, self._path, environment, Path(prefix), build, follow
        )

    def definition(self, name: str) -> EnvironmentDefinition:
        """What a named environment is made of; curated ones have a definition, too.

        Raises:
            NotFound: no environment has the name.
        """
        raw: Json = self._transport.post(f"{self._path}/definition", {"environment": name})
        return EnvironmentDefinition(
            raw=raw,
            name=raw["name"],
            version=raw["version"],
            definition=raw["definition"],
            notices=read.texts(raw, "notices"),
        )

    def clone(self, name: str, new_name: str) -> Environment:
        """Register the next version of `new_name` with the content of the environment `name`.

        Raises:
            InvalidSpec: `new_name` is reserved for curated environments.
            NotFound: no environment has the name.
        """
        body = {"environment": name, "name": new_name}
        return _environment(self._transport.post(f"{self._path}/clone", body))

    def save_to_directory(
        self,
        name: str,
        directory: Path | str,
        *,
        overwrite: bool = False,
        say: Callable[[str], None] = lambda text: None,
    ) -> Paths:
        """Write the files that azureml-core's `Environment.load_from_directory` reads.

        Args:
            name: of the environment, maybe with its version, `vision:3`.
            say: gets a notice when another environment takes the place of a published one.

        Raises:
            Conflict: the directory is there, and `overwrite` is false.
            NotFound: no environment has the name.
        """
        from torchyard.client import environment_folders

        source = self.definition(name)
        for notice in source.notices:
            say(notice)
        return environment_folders.save(
            Path(directory), source.name, source.version, source.definition, overwrite
        )

    def load_from_directory(
        self, directory: Path | str, say: Callable[[str], None] = lambda text: None
    ) -> dict[str, Any]:
        """The document that `save_to_directory`, or azureml-core's, wrote: `create` takes it, and
        so does a job as its environment.

        Args:
            say: gets a notice for each thing in the files that an environment here can't hold.

        Raises:
            NotFound: the directory holds no environment.
        """
        from torchyard.client import environment_folders

        return environment_folders.load(Path(directory), say)

    def use(self, environment: str | Mapping[str, Any]) -> BuiltEnvironment:
        """Where a built environment lies on the server's machine, read-only.

        Raises:
            NotFound: it is not built.
        """
        raw: Json = self._transport.post(f"{self._path}/use", {"environment": environment})
        return BuiltEnvironment(
            raw=raw,
            ref=raw["ref"],
            hash=raw["hash"],
            folder=Path(raw["folder"]),
            lock=Path(raw["lock"]),
        )

    def _wait_until_ready(self, body: Json, log: Callable[[str], None], deadline: Deadline) -> None:
        """
        Args:
            body: names what to build.

        Raises:
            BuildFailed: names the package at fault.
        """
        build = self._built(body, log, deadline)
        if build["status"] != "ready":
            raise BuildFailed(build["error"] or "the build was interrupted", build["hint"])

    def _built(self, body: Json, log: Callable[[str], None], deadline: Deadline) -> Json:
        """The build, when it has ended."""
        build: Json = self._transport.post(f"{self._path}/build", body)
        while True:
            if build["log"]:
                log(build["log"])
            if build["status"] != "building" and not build["log"]:
                return build
            if build["status"] == "building":
                deadline.check()
                time.sleep(deadline.within(_POLL_S))
            query = {"offset": str(build["next_offset"])}
            build = self._transport.get(f"{self._path}/builds/{build['hash']}", query)

    def _container_path(self, name: str, version: str) -> str:
        if version:
            return self._version_path(name, version)
        return f"{self._path}/{quote(name, safe='')}"

    def _version_path(self, name: str, version: str) -> str:
        return f"{self._path}/{quote(name, safe='')}/versions/{quote(version, safe='')}"


def _environment(raw: Json) -> Environment:
    return Environment(
        raw=raw,
        name=raw["name"],
        version=read.text(raw, "version"),
        description=read.text(raw, "description"),
        python=read.text(raw, "python"),
        torch=read.text(raw, "torch"),
        cuda=read.text(raw, "cuda"),
        packages=read.texts(raw, "packages"),
        status=read.text(raw, "status"),
        build=read.text(raw, "build") if isinstance(raw.get("build"), str) else "",
        notices=read.texts(raw, "notices"),
        tags=read.mapping(raw, "tags"),
        owner=read.text(raw, "owner"),
        created_at=read.optional_moment(raw, "created_at"),
        archived=bool(raw.get("archived")),
    )


def _resolved(raw: Json) -> ResolvedEnvironment:
    return ResolvedEnvironment(
        raw=raw,
        ref=read.text(raw, "ref"),
        hash=raw["hash"],
        python=read.text(raw, "python"),
        platform=read.text(raw, "platform"),
        build=read.text(raw, "build"),
        packages=read.texts(raw, "packages"),
        notices=read.texts(raw, "notices"),
        refused=read.text(raw, "refused"),
        hint=read.text(raw, "hint"),
    )
