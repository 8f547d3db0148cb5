"""A built environment as an OCI image: what the image says, and its layers as streams.

Owns: which layers there are, where an environment is in them, the image's configuration and labels.
Leaves: files and bytes of a layer to images/, digests, compression, files and registries to the
client.
Always: only a built environment is exported, and it is kept while a layer of it is read; no engine
is used; the same environment on the same machine gives the same layers.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.environments import bases
from torchyard.environments.assembly import Environments
from torchyard.environments.images import image_folder, layer_tar, system_files
from torchyard.environments.images.engine import is_name
from torchyard.environments.images.layer_tar import Entry
from torchyard.environments.packages import lock
from torchyard.environments.types import EnvironmentSpec, ImageSpec
from torchyard.shared import locks

ENVIRONMENT = "/opt/torchyard/env"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SYSTEM, _PYTHON, _PACKAGES, _FILES = "system", "python", "packages", "files"
# As Go names them, which OCI's images do.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# What NVIDIA's container toolkit reads.
_CUDA = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
_NO_COMPILER = (
    "the image has no C compiler, which torch.compile and Triton need; `--base IMAGE` takes a base "
    "of your own"
)


@dataclass(frozen=True)
class _Built:
    """A built environment to export; `name` is the one it was asked for by."""

    spec: EnvironmentSpec
    folder: Path
    name: str
    version: str


@dataclass(frozen=True)
class LayerStream:
    """`size_bytes` is that of its files; the tar in `blocks` is a little larger."""

    size_bytes: int
    blocks: Generator[bytes, None, None]


def spec_of(
    environments: Environments, workspace: str, environment: Any, base: str = ""
) -> EnvironmentSpec:
    """What the environment is, put over the image `base` if there is one.

    Raises:
        InvalidInput: `base` is not an image's name, or the environment is an image already.
    """
    spec = environments.resolver.resolve(environment, workspace)
    if not base:
        return spec
    if not is_name(base):
        raise InvalidInput(f"`{base}` is not a valid image name", "write it as `debian:12-slim`")
    if spec.image is not None:
        raise InvalidInput(
            f"environment `{spec.ref or 'inline'}` is an image already, with a base of its own",
            "export it without `--base`",
        )
    return replace(spec, image=ImageSpec(name=base))


def plan(environments: Environments, workspace: str, environment: Any, base: str) -> dict[str, Any]:
    """What the image will be; without a build, only that there is none, by `is_built`."""
    spec = spec_of(environments, workspace, environment, base)
    built = _find(environments, spec, environment)
    if built is None:
        return {"is_built": False, "hash": spec.hash, "name": _name(spec, environment)[0]}
    return {
        "is_built": True,
        "hash": spec.hash,
        "name": built.name,
        "version": built.version,
        "architecture": _architecture(),
        "config": _config(environments, built),
        "layers": _layers(built),
        "notices": _notices(built),
    }


def layer(
    environments: Environments, workspace: str, environment: Any, base: str, hash: str, name: str
) -> LayerStream:
    """The tar of one layer; all that can be refused is refused before its first byte.

    Raises:
        Conflict: the name means another environment than when the plan was made.
        InvalidInput: a file of it can't be stored in an image.
        NotFound: it is not built any more, or has no such layer.
    """
    spec = spec_of(environments, workspace, environment, base)
    if spec.hash != hash:
        raise Conflict(
            f"`{spec.ref or 'inline'}` became another environment while it was exported",
            "export it again",
        )
    missing = NotFound(
        f"environment `{spec.ref or 'inline'}` was removed while it was exported",
        "export it again",
    )
    if environments.folders.find(spec) is None:
        raise missing
    # It is closed with the last block, or with the generator where nobody asks for one.
    keeper = open(environments.folders.shells_file(spec), "rb")
    try:
        locks.lock(keeper, shared=True)
        built = _find(environments, spec, environment)
        if built is None:
            raise missing
        if name not in _layers(built):
            raise NotFound(f"an image of it has no layer `{name[:80]}`")
        if name == _PACKAGES:
            _wait_for_modules(environments, spec.hash)
        entries = list(_entries(built, name))
    except BaseException:
        keeper.close()
        raise
    size_bytes = sum(entry.size_bytes for entry in entries)
    return LayerStream(size_bytes, _close_after(keeper, layer_tar.stream(entries)))


def _wait_for_modules(environments: Environments, hash: str) -> None:
    """
    Raises:
        ServerBusy: they are being compiled; the client asks again.
    """
    if not environments.compiler.is_ready(hash, _COMPILING_S):
        raise ServerBusy("the modules of the environment are being compiled", "it goes on by itself")


def _close_after(keeper: IO[bytes], blocks: Iterator[bytes]) -> Generator[bytes, None, None]:
    """The blocks; the lock is given back after the last one."""
    with keeper:
        yield from blocks


def _find(environments: Environments, spec: EnvironmentSpec, environment: Any) -> _Built | None:
    folder = environments.builds.use(spec)
    return None if folder is None else _Built(spec, folder, *_name(spec, environment))


def _name(spec: EnvironmentSpec, environment: Any) -> tuple[str, str]:
    if spec.ref:
        name, _, version = spec.ref.rpartition(":")
        return name, version
    reference = environment.get("name") if isinstance(environment, Mapping) else ""
    return str(reference or "inline"), spec.hash[:12]


def _layers(built: _Built) -> list[str]:
    return [_FILES] if built.spec.image is not None else [_SYSTEM, _PYTHON, _PACKAGES]


def _entries(built: _Built, name: str) -> Iterator[Entry]:
    if name == _FILES:
        yield from layer_tar.of_root(built.folder / image_folder.ROOT, owned=os.geteuid() == 0)
        return
    if name == _PACKAGES:
        yield from _packages(built)
        return
    python = system_files.of_python(built.folder)
    system = system_files.of_system([*python.sources(), built.folder])
    yield from system.sorted() if name == _SYSTEM else python.sorted(without=system.entries)


def _packages(built: _Built) -> Iterator[Entry]:
    target = _target(built).lstrip("/")
    parents = target.split("/")[:-1]
    for count in range(1, len(parents) + 1):
        yield layer_tar.folder("/".join(parents[:count]))
    yield from layer_tar.of_environment(built.folder, target)


def _target(built: _Built) -> str:
    """Where the environment is in the image; conda's can't be moved."""
    return str(built.folder) if built.spec.conda else ENVIRONMENT


def _config(environments: Environments, built: _Built) -> dict[str, Any]:
    """The part of an image's configuration that says how to run it."""
    facts = image_folder.read(built.folder)
    if facts is None:
        target = _target(built)
        variables = {"PATH": f"{target}/bin:{_PATH}", "LANG": "C.UTF-8", "VIRTUAL_ENV": target}
        folder, user = "/", ""
    else:
        variables = {"PATH": _PATH, **facts["variables"]}
        folder, user = facts["folder"] or "/", facts["user"]
    variables |= dict(built.spec.variables)
    if built.spec.platform.endswith("-cuda"):
        variables = {**_CUDA, **variables}
    config: dict[str, Any] = {
        "Env": [f"{name}={value}" for name, value in variables.items()],
        "Cmd": ["python"] if facts is None else ["/bin/sh"],
        "WorkingDir": folder,
        "Labels": _labels(environments, built),
    }
    return {**config, "User": user} if user else config


def _labels(environments: Environments, built: _Built) -> dict[str, str]:
    last = environments.records.last(built.spec.hash)
    pins = lock.pins(last.lock) if last else {}
    written = "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))
    base = built.spec.image.name if built.spec.image else ""
    labels = {
        "org.opencontainers.image.title": built.name,
        "org.opencontainers.image.version": built.version,
        "org.opencontainers.image.base.name": base,
        "torchyard.environment": f"{built.name}:{built.version}",
        "torchyard.environment.hash": built.spec.hash,
        "torchyard.base": bases.one_line(built.spec),
        "torchyard.packages": f"sha256:{hashlib.sha256(written.encode()).hexdigest()}",
        "torchyard.platform": built.spec.platform,
    }
    return {key: value for key, value in sorted(labels.items()) if value}


def _architecture() -> str:
    machine = platform.machine().lower()
    return _ARCHITECTURES.get(machine, machine)


def _notices(built: _Built) -> list[str]:
    notices = []
    if built.spec.image is None:
        notices.append(_NO_COMPILER)
    if built.spec.platform.endswith("-cuda"):
        notices.append(
            "NVIDIA's driver is not in the image: run it with NVIDIA's container toolkit"
        )
    if built.spec.conda:
        notices.append(f"conda packages can't be moved: in the image they are at {built.folder}")
    return notices
