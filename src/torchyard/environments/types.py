"""The types of this package.

Owns: the spec, its hash, its JSON form; the platform an environment is built for; its versions.
Leaves: reading a job file to definition.py, building to build/builder.py.
Always: the hash covers everything that decides the content, and nothing else: never a name.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform as machine
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from torchyard.base.errors import BuildFailed

Accelerator = Literal["cpu", "cuda", "rocm"]

REQUESTED = "torchyard.requested"
"""The property of a released version that holds the definition which was resolved for it."""
WHEELS, WHEELS_BYTES = "torchyard.wheels", "torchyard.wheels_bytes"
"""The properties of a released version that name its kept wheels, and say how large they are."""
WHEELS_FOLDER = "torchyard.wheels_folder"
"""The property that names the folder in which they are kept, where that is not the home."""
# Raise it when the builder makes another content of the same spec.
BUILDER_FORMAT = 1


@dataclass(frozen=True)
class Platform:
    """The kind of machine that an environment runs on.

    `pythons` are the versions that are installed on it, as `3.7`.
    """

    system: str
    machine: str
    accelerator: Accelerator
    pythons: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.system}-{self.machine}-{self.accelerator}"


def this_platform(accelerator: Accelerator, pythons: Iterable[str] = ()) -> Platform:
    """The platform of this machine, whose accelerator and other Pythons the caller knows."""
    system, architecture = machine.system().lower(), machine.machine().lower()
    return Platform(system, architecture, accelerator, tuple(pythons))


def platform_python() -> str:
    """The version of the platform's own Python, as `3.11`."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class ImageSpec:
    """A root filesystem: that of the image `name`, or the result of a Dockerfile.

    `context` is the snapshot that holds the `dockerfile`. `bases` are the environments that its
    FROM lines name, by those names; `os_image` is the base of those that are not images themselves.
    `base` is the name of the one that the image as a whole starts from, if it is an environment.
    """

    name: str = ""
    context: str = ""
    dockerfile: str = ""
    bases: tuple[tuple[str, EnvironmentSpec], ...] = ()
    os_image: str = ""
    base: str = ""

    @property
    def content(self) -> list[Any]:
        """What decides the image's content."""
        based = [[name, spec.hash] for name, spec in self.bases]
        return [self.name, self.context, self.dockerfile, based, self.os_image if based else ""]

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "bases": [[name, spec.to_json()] for name, spec in self.bases]}


@dataclass(frozen=True)
class EnvironmentSpec:
    """What an environment holds, on one platform.

    `python` is a version (`3.11`, `3.6.2`) or a range (`>=3.9,<3.12`), never empty.
    With `is_any_python` nothing names a version that can be had: `python` is the one that is tried
    first, and the build takes another where packages have no wheels for it.
    `requirements` are lines as pip reads them: first the options that the user wrote
    (`--extra-index-url …`), then the packages in order of name.
    `layers` are packages of torchyard's own in place of others; `layers_mark` is a hash of their
    content.
    `variables` are set when its Python starts, unless they have a value.
    `resolution` sets one that is resolved again apart from the same request resolved before.
    `conda` are conda's specs of packages from `channels`, in their order.
    With an `image` it is a root filesystem: then `python` is empty where nothing is added to it.
    `notices` name substitutes, `ref` is the named environment that it is, with its version,
    `requested` is the name that was written where that is another's, `job_variables` are set for
    jobs that request it by the name they used; none of them belongs to the content.
    """

    python: str
    requirements: tuple[str, ...]
    platform: str
    notices: tuple[str, ...] = ()
    ref: str = ""
    requested: str = ""
    layers: tuple[str, ...] = ()
    layers_mark: str = ""
    conda: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    image: ImageSpec | None = None
    variables: tuple[tuple[str, str], ...] = ()
    job_variables: tuple[tuple[str, str], ...] = ()
    resolution: str = ""
    is_any_python: bool = False

    @functools.cached_property
    def hash(self) -> str:
        """sha256 over the content, in hexadecimal."""
        content: list[Any] = [
            *(BUILDER_FORMAT, self.platform, self.python, list(self.requirements))
        ]
        if self.layers:
            content += [list(self.layers), self.layers_mark]
        if self.conda:
            content += ["conda", list(self.conda), list(self.channels)]
        if self.image:
            content += ["image", self.image.content]
        if self.variables:
            content += ["variables", [list(variable) for variable in self.variables]]
        if self.resolution:
            content += ["resolution", self.resolution]
        if self.is_any_python:
            content += ["any python"]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(line for line in self.requirements if line.startswith("-"))

    @property
    def packages(self) -> tuple[str, ...]:
        return tuple(line for line in self.requirements if not line.startswith("-"))

    def to_json(self) -> dict[str, Any]:
        """An object that `from_json` reads back."""
        return {
            "python": self.python,
            "requirements": list(self.requirements),
            "platform": self.platform,
            "notices": list(self.notices),
            "ref": self.ref,
            "requested": self.requested,
            "layers": list(self.layers),
            "layers_mark": self.layers_mark,
            "conda": list(self.conda),
            "channels": list(self.channels),
            "image": self.image.to_json() if self.image else None,
            "variables": [list(variable) for variable in self.variables],
            "resolution": self.resolution,
            "is_any_python": self.is_any_python,
        }


def from_json(body: Mapping[str, Any]) -> EnvironmentSpec:
    return EnvironmentSpec(
        python=body["python"],
        requirements=tuple(body["requirements"]),
        platform=body["platform"],
        notices=tuple(body.get("notices", ())),
        ref=body.get("ref", ""),
        requested=body.get("requested", ""),
        layers=tuple(body.get("layers", ())),
        layers_mark=body.get("layers_mark", ""),
        conda=tuple(body.get("conda", ())),
        channels=tuple(body.get("channels", ())),
        image=_image(body["image"]) if body.get("image") else None,
        variables=tuple((name, value) for name, value in body.get("variables", ())),
        resolution=body.get("resolution", ""),
        is_any_python=body.get("is_any_python", False),
    )


def _image(body: Mapping[str, Any]) -> ImageSpec:
    bases = tuple((name, from_json(spec)) for name, spec in body["bases"])
    return ImageSpec(**{**body, "bases": bases})


@dataclass(frozen=True)
class EnvironmentAsset:
    """One version of a named environment. `definition` is its inline form in a job file."""

    workspace: str
    name: str
    version: str
    definition: dict[str, Any]
    created_at: datetime
    owner: str
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    archived: bool = False

    @property
    def is_release(self) -> bool:
        """Whether `yard environment release` registered it."""
        return REQUESTED in self.properties


class BuildCanceled(BuildFailed):
    """The build was canceled by its caller."""

    code = "build_canceled"


BuildStatus = Literal["building", "ready", "failed", "canceled"]


@dataclass(frozen=True)
class Build:
    """An environment's last build; `lock` is what the resolver chose."""

    hash: str
    spec: EnvironmentSpec
    status: BuildStatus
    number: int
    lock: str
    error: str
    hint: str
