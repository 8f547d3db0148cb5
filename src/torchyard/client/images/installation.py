"""Put an environment into a folder of a machine without torchyard, from the layers of its image.

Owns: the folder, the interpreter's place in it, the links and settings that name that place.
Leaves: which layers there are, and their content, to the server; the plan to image_export.py.
Always: the folder appears complete under its name or not at all; nothing outside it is written,
whatever a layer names; the machine's own libraries are used, as are its drivers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from torchyard.base.errors import BuildFailed, Conflict, InvalidInput
from torchyard.base.http import Transport
from torchyard.client.images import image_export
from torchyard.client.images.image_export import ImageRequest
from torchyard.client.images.steps import Steps
from torchyard.shared.archives import BoundedTarInfo
from torchyard.shared.sizes import size_text

INTERPRETER = ".python"
"""The folder below the prefix that has the interpreter's files, by their paths on the server."""
_PYTHON, _PACKAGES = "python", "packages"
_MOVABLE = "/opt/torchyard/env"
_DISTRUST = "no environment of torchyard's has such an entry: don't install from this server"
_ASK = (
    "import importlib.metadata, json, platform, ssl, sys; "
    "print(json.dumps([platform.python_version(), sorted({"
    "one.metadata['Name'] for one in importlib.metadata.distributions()})]))"
)

Json = dict[str, Any]


@dataclass(frozen=True)
class Installed:
    """`distributions` are the names that the environment's own Python finds there."""

    name: str
    version: str
    prefix: Path
    python: str
    distributions: tuple[str, ...]
    size_bytes: int

    def to_json(self) -> Json:
        names = list(self.distributions)
        return {**vars(self), "prefix": str(self.prefix), "distributions": names}


def install(
    transport: Transport,
    path: str,
    environment: str,
    prefix: Path,
    build: Callable[[Json], None],
    steps: Steps,
) -> Installed:
    """Install an environment into `prefix`, which does not exist or is empty.

    Args:
        path: the server's path of environments.
        build: builds what the body of a request names.

    Raises:
        Conflict: the folder has files.
        InvalidInput: the environment can't be moved, or the folder is not one.
        BuildFailed: its Python does not run on this machine; nothing is left of it.
    """
    prefix = prefix.absolute()
    if prefix.exists() and (not prefix.is_dir() or any(prefix.iterdir())):
        raise Conflict(f"`{prefix}` exists and is not an empty folder", "name another folder")
    request = ImageRequest(environment)
    with closing(transport.twin(image_export.SILENCE_S)) as reading:
        plan = image_export.plan_of(reading, path, request, build)
        _refuse_immovable(plan)
        prefix.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(prefix=f".{prefix.name}.installing-", dir=prefix.parent)
        top = Path(folder).resolve()
        try:
            top.chmod(0o755)
            size_bytes = 0
            for part in (_PYTHON, _PACKAGES):
                body = {**request.body, "hash": plan["hash"], "layer": part}
                with reading.stream(f"{path}/image/layer", body=body) as answer:
                    count = int(answer.headers.get("X-Torchyard-Files-Bytes") or 0)
                    steps.begin(f"layer {part}", count)
                    _unpack(answer, top, part, steps.add)
                size_bytes += count
                steps.end(f"layer {part}: {size_text(count)}")
            _name_interpreter(top, prefix)
            # Its Python finds itself by the path in `pyvenv.cfg`, which is the final one.
            if prefix.exists():
                prefix.rmdir()
            top.rename(prefix)
        except BaseException:
            shutil.rmtree(top, ignore_errors=True)
            raise
    python, names = _try_python(environment, prefix)
    return Installed(plan["name"], plan["version"], prefix, python, tuple(names), size_bytes)


def _try_python(environment: str, prefix: Path) -> tuple[str, list[str]]:
    """What an installed Python says of itself.

    Raises:
        BuildFailed: it does not run; nothing is left of it.
    """
    done = subprocess.run(
        [prefix / "bin" / "python", "-I", "-c", _ASK], capture_output=True, text=True
    )
    if done.returncode:
        shutil.rmtree(prefix, ignore_errors=True)
        line = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BuildFailed(
            f"the Python of `{environment}` does not run on this machine: {line}",
            "install the library that it names, or export the environment as an image, which "
            "brings its libraries: `yard environment export --image`",
        )
    python, names = json.loads(done.stdout)
    return python, names


def _refuse_immovable(plan: Json) -> None:
    """
    Raises:
        InvalidInput: it is an image, or holds conda packages.
    """
    if _PACKAGES not in plan["layers"]:
        raise InvalidInput(
            f"environment `{plan['name']}` is an image, which a folder can't hold",
            "export it, and run it by podman: `yard environment export --image FILE.tar`",
        )
    if f"VIRTUAL_ENV={_MOVABLE}" not in plan["config"]["Env"]:
        raise InvalidInput(
            f"environment `{plan['name']}` holds conda packages, which can't be moved",
            "export it as an image, or as a file for conda: `yard environment export --format "
            "conda`",
        )


def _unpack(layer: Any, top: Path, part: str, progress: Callable[[int], None]) -> None:
    """Write a layer's entries: packages to the top, the interpreter below it.

    Raises:
        InvalidInput: an entry leads out of the folder.
    """
    with tarfile.open(fileobj=layer, mode="r|", tarinfo=BoundedTarInfo) as archive:
        for member in archive:
            inside = _inside(member.name, part)
            if inside is None:
                continue
            target = top / inside
            if not target.parent.resolve().is_relative_to(top):
                raise InvalidInput(f"`{member.name}` leads out of the folder", _DISTRUST)
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if member.issym():
                os.symlink(_link(member.linkname, target, top), target)
                continue
            source = archive.extractfile(member)
            if source is None:
                raise InvalidInput(f"`{member.name}` is not a file", _DISTRUST)
            with source, open(target, "xb") as file:
                _copy(source, file, progress)
            target.chmod(member.mode & 0o755)


def _copy(source: IO[bytes], file: IO[bytes], progress: Callable[[int], None]) -> None:
    while block := source.read(1 << 20):
        file.write(block)
        progress(len(block))


def _inside(name: str, part: str) -> str | None:
    """The path below the prefix; None for the folders above an environment.

    Raises:
        InvalidInput: the path leads out of the layer.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise InvalidInput(f"`{name}` leads out of its layer", _DISTRUST)
    if part == _PYTHON:
        return f"{INTERPRETER}/{path}"
    top = PurePosixPath(_MOVABLE.lstrip("/"))
    return str(path.relative_to(top)) if path.is_relative_to(top) and path != top else None


def _link(link: str, target: Path, top: Path) -> str:
    """A link's text: one to a file of the interpreter names it where it is now."""
    moved = top / INTERPRETER / link.lstrip("/")
    if os.path.isabs(link) and os.path.lexists(moved):
        return os.path.relpath(moved, target.parent)
    return link


def _name_interpreter(top: Path, prefix: Path) -> None:
    """Write the interpreter's place into `pyvenv.cfg`, and its library's into the interpreter."""
    configuration = top / "pyvenv.cfg"
    lines = []
    for line in configuration.read_text(encoding="utf-8").splitlines():
        key, mark, value = line.partition("=")
        moved = top / INTERPRETER / value.strip().lstrip("/")
        if value.strip().startswith("/") and moved.exists():
            line = f"{key}{mark} {prefix / INTERPRETER}{value.strip()}"
            if key.strip() == "home":
                _name_library(moved, value.strip())
        lines.append(line)
    configuration.write_text("\n".join([*lines, ""]), encoding="utf-8")


def _name_library(programs: Path, home: str) -> None:
    """Where an interpreter looks for its own library by a path, make that relative to itself.

    The path is one string of the file; the new one is shorter, and the rest of it stays zero.
    """
    old = f"{Path(home).parent}/lib".encode()
    new = b"$ORIGIN/../lib"
    for program in programs.glob("python3*"):
        if program.is_symlink() or len(new) > len(old):
            continue
        content = program.read_bytes()
        field = b"\0" + old + b"\0"
        if content.startswith(b"\x7fELF") and content.count(field) == 1:
            filled = b"\0" + new + bytes(len(old) - len(new)) + b"\0"
            program.write_bytes(content.replace(field, filled))
