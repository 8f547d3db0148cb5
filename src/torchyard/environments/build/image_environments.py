"""The room's verbs for environments that are images.

Owns: which engine is used, what the server's owner has set, what a job in an image sees.
Leaves: the steps of a build to image_builder.py, its lock and record to builds.py.
Always: a machine without an engine still runs what is built.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchyard.base.blobs import Blobs
from torchyard.base.errors import InvalidSpec, NotFound
from torchyard.environments.build import image_builder
from torchyard.environments.build.builder import EnvironmentPaths
from torchyard.environments.build.image_builder import Inner
from torchyard.environments.images import containers, image_folder
from torchyard.environments.images.containers import ContainerSettings, Found
from torchyard.environments.images.definition import Sources
from torchyard.environments.packages import machine_config
from torchyard.environments.packages.uv import Uv
from torchyard.environments.types import EnvironmentSpec, ImageSpec
from torchyard.shared.plan import ImagePlan

# For so long an answer on engines is good: an owner may install one while the server runs.
_GOOD_S = 30.0
_MOST_BYTES = 1 << 20
_SNAPSHOT, _DOCKERFILE = "snapshot:", "Dockerfile"

FindEngine = Callable[[ContainerSettings, Mapping[str, str]], Found]


class Images:
    """
    Args:
        home: the server's folder.
        variables: the process environment.
        find: looks for an engine.
    """

    def __init__(
        self, home: Path, variables: Mapping[str, str], find: FindEngine = containers.find
    ) -> None:
        self._home = home
        self._variables = variables
        self._find = find
        self._blobs = Blobs(home / "blobs")
        self._lock = threading.Lock()
        self._found: tuple[ContainerSettings, Found] | None = None
        self._looked_at = 0.0

    def sources(self) -> Sources:
        return Sources(self._text, lambda: containers.read(self._home).os_image)

    def context_of(self, dockerfile: str) -> str:
        """A build context, as documents write it, that holds nothing but this Dockerfile."""
        content = dockerfile.encode()
        file = {"path": _DOCKERFILE, "sha256": self._blobs.put_bytes(content), "size": len(content)}
        return f"{_SNAPSHOT}{self._blobs.put_snapshot({'files': [file]}).id}"

    def text_alone(self, context: str) -> str:
        """The Dockerfile of a build context that holds nothing else; empty for any other."""
        if not context.startswith(_SNAPSHOT):
            return ""
        id = context.removeprefix(_SNAPSHOT)
        files = self._blobs.snapshot(id).files
        return self._text(id, _DOCKERFILE) if [one.path for one in files] == [_DOCKERFILE] else ""

    def engine(self) -> Found:
        """What was found; asked anew now and then."""
        settings = containers.read(self._home)
        with self._lock:
            is_old = time.monotonic() > self._looked_at + _GOOD_S
            if self._found is None or is_old or self._found[0] != settings:
                self._found = settings, self._find(settings, self._variables)
                self._looked_at = time.monotonic()
            return self._found[1]

    def refuse(self, spec: EnvironmentSpec) -> None:
        """
        Raises:
            BuildFailed: it needs an engine, and none works here.
        """
        if spec.image is not None:
            found = self.engine()
            if found.engine is None:
                raise containers.missing(_what(spec), found)

    def build(self, spec: EnvironmentSpec, paths: EnvironmentPaths, inner: Inner, log: Uv) -> str:
        """As `image_build.run`, with the engine there is."""
        self.refuse(spec)
        engine = self.engine().engine
        assert engine is not None
        return image_builder.run(spec, paths, engine, inner, self._blobs, log)

    def remove(self, folder: Path) -> None:
        """The folder, and what an engine keeps for it."""
        known = image_folder.read(folder)
        engine = self.engine().engine if known and known["images"] else None
        if known is not None and engine is not None:
            engine.remove(known["images"])
        image_folder.remove(folder)

    def plan(self, folder: Path) -> ImagePlan | None:
        """What nodes are told of an environment that is an image; None for any other."""
        config = machine_config.read(self._variables)
        return image_folder.plan(folder, containers.package_folders(config))

    def shown(self, image: ImageSpec, folder: Path | None) -> dict[str, Any]:
        """What is told of one: what it starts from; when built, id, digest, size, by what."""
        asked = {"image": image.name} if image.name else {"dockerfile": image.dockerfile}
        known = image_folder.read(folder) if folder is not None else None
        if known is None:
            return asked
        names = {"id": "image_id", "digest": "image_digest", "size_bytes": "image_size_bytes"}
        asked |= {shown: known[name] for name, shown in names.items()}
        return {**asked, "built_by": known["engine"]}

    def _text(self, snapshot: str, path: str) -> str:
        for file in self._blobs.snapshot(snapshot).files:
            if file.path == path.removeprefix("./"):
                if file.size > _MOST_BYTES:
                    raise InvalidSpec(f"`{path}` is larger than 1 MB", "name a Dockerfile")
                return self._blobs.path(file.sha256).read_text("utf-8-sig", "replace")
        raise NotFound(
            f"the build context holds no `{path}`",
            "name it in `dockerfile_path`, relative to the context's folder; "
            "`.amlignore` and `.gitignore` there leave files out",
        )


def _what(spec: EnvironmentSpec) -> str:
    assert spec.image is not None
    if spec.image.name:
        return f"image `{spec.image.name}`"
    return f"an environment built from a Dockerfile (`{spec.image.dockerfile}`)"
