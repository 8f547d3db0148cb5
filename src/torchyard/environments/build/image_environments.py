"""Environments that are images.

Owns: choosing the engine, the owner's container settings, the plan of a job in an image.
Leaves: the steps of a build to image_builder.py, its lock and record to builds.py.
Always: a machine without an engine still runs images that are built.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torchyard.base.blob_folders import BlobFolders
from torchyard.base.errors import InvalidSpec, NotFound
from torchyard.environments.build import image_builder
from torchyard.environments.build.builder import EnvironmentPaths
from torchyard.environments.build.image_builder import Inner
from torchyard.environments.images import containers, image_folder
from torchyard.environments.images.containers import ContainerSettings, EngineSearch
from torchyard.environments.images.definition import Sources, no_snapshot
from torchyard.environments.packages import machine_config
from torchyard.environments.packages.uv import Uv
from torchyard.environments.types import EnvironmentSpec, ImageSpec
from torchyard.shared.plan import ImagePlan

# The owner may install an engine while the server runs.
_ENGINE_CACHE_S = 30.0
_MOST_BYTES = 1 << 20
_SNAPSHOT, _DOCKERFILE = "snapshot:", "Dockerfile"

FindEngine = Callable[[ContainerSettings, Mapping[str, str]], EngineSearch]


class Images:
    """
    Args:
        home: the server's folder.
        variables: the process environment.
        find: finds an engine.
        has_build_user: a runner has environments built by another user, which an engine can't.
    """

    def __init__(
        self,
        home: Path,
        variables: Mapping[str, str],
        find: FindEngine = containers.find,
        has_build_user: bool = False,
    ) -> None:
        self._home = home
        self._variables = variables
        self._find = find
        self._has_build_user = has_build_user
        self._blobs = BlobFolders(home / "blobs")
        self._lock = threading.Lock()
        self._search: tuple[ContainerSettings, EngineSearch] | None = None
        self._searched_at = 0.0

    def sources(self, workspace: str) -> Sources:
        """Of Dockerfiles in what the workspace has; what is read can be built from.

        Args:
            workspace: none has any when it is empty.
        """
        text = partial(self._text, workspace) if workspace else no_snapshot
        return Sources(text, lambda: containers.read(self._home).os_image)

    def context_of(self, workspace: str, dockerfile: str) -> str:
        """The path of a build context that holds only this Dockerfile."""
        blobs, content = self._blobs.of(workspace), dockerfile.encode()
        file = {"path": _DOCKERFILE, "sha256": blobs.put_bytes(content), "size": len(content)}
        return f"{_SNAPSHOT}{blobs.put_snapshot({'files': [file]}).id}"

    def text_alone(self, workspace: str, context: str) -> str:
        """The Dockerfile of a build context that holds only it; empty for any other."""
        if not context.startswith(_SNAPSHOT):
            return ""
        id = context.removeprefix(_SNAPSHOT)
        files = self._blobs.of(workspace).snapshot(id).files
        return (
            self._text(workspace, id, _DOCKERFILE)
            if [file.path for file in files] == [_DOCKERFILE]
            else ""
        )

    def engine(self) -> EngineSearch:
        """The engine of this machine; searched again now and then."""
        settings = containers.read(self._home)
        with self._lock:
            is_old = time.monotonic() > self._searched_at + _ENGINE_CACHE_S
            if self._search is None or is_old or self._search[0] != settings:
                self._search = settings, self._find(settings, self._variables)
                self._searched_at = time.monotonic()
            return self._search[1]

    def refuse(self, spec: EnvironmentSpec) -> None:
        """
        Raises:
            BuildFailed: it needs an engine, and none works on this machine, or would as a user of
                its own.
        """
        if spec.image is not None:
            if self._has_build_user and not containers.read(self._home).builds_as_server_user:
                raise containers.only_as_server_user(_describe_image(spec))
            search = self.engine()
            if search.engine is None:
                raise containers.missing(_describe_image(spec), search)

    def build(self, spec: EnvironmentSpec, paths: EnvironmentPaths, inner: Inner, log: Uv) -> str:
        """Run `image_builder.run` with this machine's engine."""
        self.refuse(spec)
        engine = self.engine().engine
        assert engine is not None
        return image_builder.run(spec, paths, engine, inner, self._blobs.of_builds, log)

    def remove(self, folder: Path) -> None:
        """Remove the folder, and the engine's images for it."""
        facts = image_folder.read(folder)
        engine = self.engine().engine if facts and facts["images"] else None
        if facts is not None and engine is not None:
            engine.remove(facts["images"])
        image_folder.remove(folder)

    def plan(self, folder: Path) -> ImagePlan | None:
        """The plan for nodes of an environment that is an image; None for any other."""
        config = machine_config.read(self._variables)
        return image_folder.plan(folder, containers.package_folders(config))

    def to_json(self, image: ImageSpec, folder: Path | None) -> dict[str, Any]:
        """The base of an image; for a built one also id, digest, size and engine."""
        body = {"image": image.name} if image.name else {"dockerfile": image.dockerfile}
        facts = image_folder.read(folder) if folder is not None else None
        if facts is None:
            return body
        names = {"id": "image_id", "digest": "image_digest", "size_bytes": "image_size_bytes"}
        body |= {key: facts[name] for name, key in names.items()}
        return {**body, "built_by": facts["engine"]}

    def _text(self, workspace: str, snapshot: str, path: str) -> str:
        self._blobs.lend(workspace, snapshot)
        blobs = self._blobs.of(workspace)
        for file in blobs.snapshot(snapshot).files:
            if file.path == path.removeprefix("./"):
                if file.size > _MOST_BYTES:
                    raise InvalidSpec(f"`{path}` is larger than 1 MB", "name a Dockerfile")
                return blobs.path(file.sha256).read_text("utf-8-sig", "replace")
        raise NotFound(
            f"the build context has no file `{path}`",
            "name it in `dockerfile_path`, relative to the context's folder; "
            "`.amlignore` and `.gitignore` there exclude files",
        )


def _describe_image(spec: EnvironmentSpec) -> str:
    assert spec.image is not None
    if spec.image.name:
        return f"image `{spec.image.name}`"
    return f"an environment built from a Dockerfile (`{spec.image.dockerfile}`)"
