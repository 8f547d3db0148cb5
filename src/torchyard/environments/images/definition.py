"""Images and Dockerfiles of a job file or an asset, turned into a spec.

Owns: the keys of `build`, what FROM lines mean, an image with packages added.
Leaves: names of environments to the caller, Dockerfiles' grammar to dockerfile.py.
Always: a build context is a snapshot, named by its content; no engine is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torchyard.base.documents.checks import TEXT, At, By
from torchyard.base.documents.models import Document, declared, rule
from torchyard.base.errors import InvalidSpec, NotFound, TorchyardError
from torchyard.environments.images import dockerfile
from torchyard.environments.images.containers import DEFAULT_OS_IMAGE
from torchyard.environments.images.engine import is_name
from torchyard.environments.names import image_names
from torchyard.environments.types import EnvironmentSpec, ImageSpec

_SNAPSHOT, _LOCAL = "snapshot:", "local:"
_HINT = "write `build: {path: <folder>}`, with a `Dockerfile` in the folder"


def _dockerfile(value: Any, at: At) -> str:
    if value and not isinstance(value, str):
        raise InvalidSpec("`dockerfile_path` is not a string", _HINT, at=at)
    return value or "Dockerfile"


class BuildFile(Document):
    subject: ClassVar[str] = "`build`"
    example: ClassVar[str] = "{path: ./docker}"

    path: Any = declared(None, "the build context: a folder")
    dockerfile_path: str = declared(
        "Dockerfile", "`Dockerfile` when absent", By(_dockerfile, else_=TEXT)
    )

    @rule("path")
    def _path(self) -> None:
        if not isinstance(self.path, str) or not self.path.startswith((_SNAPSHOT, _LOCAL)):
            raise InvalidSpec(
                f"`{self.path}` is not a build context" if self.path else "`build` has no path",
                _HINT,
                at=("path",),
            )


@dataclass(frozen=True)
class Sources:
    """How a Dockerfile is read, and the base of environments in its FROM lines.

    `text` returns a file of a snapshot; both are called only when a Dockerfile is read.
    """

    text: Callable[[str, str], str]
    os_image: Callable[[], str] = lambda: DEFAULT_OS_IMAGE


def no_snapshot(snapshot: str, path: str) -> str:
    raise NotFound(f"snapshot `{snapshot[:12]}…` does not exist", "upload the folder again")


NOTHING = Sources(no_snapshot)


def put_into(image: str, spec: EnvironmentSpec, at: At) -> EnvironmentSpec:
    """The image with the environment `spec` in it, or the image alone when that is empty.

    Raises:
        InvalidSpec: `image` is not a valid image name.
    """
    if not is_name(image):
        raise InvalidSpec(
            f"`{image}` is not a valid image name", "write it as `ubuntu:22.04`", at=(*at, "image")
        )
    return replace(spec, image=ImageSpec(name=image))


def of_build(
    build: BuildFile,
    empty: EnvironmentSpec,
    resolve: Callable[[str, At], EnvironmentSpec],
    sources: Sources,
    at: At,
) -> EnvironmentSpec:
    """The spec of the image that a Dockerfile builds.

    Args:
        empty: an empty spec on the platform to build for.
        resolve: the spec of the environment that a FROM line names, from its name and place.

    Raises:
        InvalidSpec: its Dockerfile is missing, or has no FROM line.
        NotFound: the snapshot was deleted, or a FROM line names an environment without substitute.
    """
    at = (*at, "build")
    path, file = build.path, build.dockerfile_path
    if path.startswith(_LOCAL):
        # The document is only checked: its context is not uploaded yet.
        return replace(empty, image=ImageSpec(context=path, dockerfile=file))
    return _read(path.removeprefix(_SNAPSHOT), file, empty, resolve, sources, at)


def _read(
    snapshot: str,
    file: str,
    empty: EnvironmentSpec,
    resolve: Callable[[str, At], EnvironmentSpec],
    sources: Sources,
    at: At,
) -> EnvironmentSpec:
    here = (*at, "dockerfile_path")
    try:
        text = sources.text(snapshot, file)
    except TorchyardError as error:
        error.at = error.at or here
        raise
    lines = dockerfile.images(text)
    if not lines and "from" not in text.lower():
        raise InvalidSpec(f"`{file}` has no FROM line", "begin it with `FROM <image>`", at=here)
    os_image = ""
    bases: dict[str, EnvironmentSpec] = {}
    notices: list[str] = []
    for line in lines:
        name = image_names.published_in(line.name)
        if name and line.name not in bases:
            bases[line.name] = based = resolve(name, here)
            notices += based.notices
            subject = f"`FROM {line.name}` is {based.ref or name}"
            if based.image is not None:
                notices.append(f"{subject}, an image itself")
                continue
            os_image = os_image or sources.os_image()
            notices.append(f"{subject} over {os_image}")
    image = ImageSpec(
        context=snapshot,
        dockerfile=file,
        bases=tuple((name, replace(spec, notices=())) for name, spec in bases.items()),
        os_image=os_image,
        base=dockerfile.final_base(text),
    )
    return replace(empty, image=image, notices=tuple(notices))
