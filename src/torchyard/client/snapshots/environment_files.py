"""Read the files that an environment's document names, and find its build context.

Owns: `conda_file`, `pip_requirements`, `build.path`, `environment: file:…`.
Leaves: paths and reading to local_paths.py, what the values mean to the server.
Always: a requirement is never taken for a file, nor a mistyped path for a requirement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from torchyard.base.errors import InvalidSpec
from torchyard.client.snapshots import snapshot
from torchyard.client.snapshots.local_paths import (
    At,
    KnownFiles,
    LocalPath,
    Places,
    existing,
    is_elsewhere,
    located,
    read_text,
    read_yaml,
    shown,
)
from torchyard.client.snapshots.walk import Found, Limits


def find(
    environment: Any,
    folder: Path,
    limits: Limits,
    at: At,
    positions: Places,
    known: KnownFiles | None = None,
) -> tuple[Any, list[LocalPath]]:
    """An environment of a job with its files read into it, and its build context.

    Args:
        limits: for a build context.
        positions: gets the position of each value of those files.
        known: YAML files that were read before; gets those that are read.

    Raises:
        InvalidSpec: a file that is not there, or can't be read.
    """
    if isinstance(environment, str) and environment.lower().startswith("file:"):
        file = existing(environment, folder, at)
        environment = read_yaml(file, at, positions, known)
        folder = file.parent
    if not isinstance(environment, dict):
        return environment, []
    return with_context(read(environment, folder, at, positions, known), folder, at, limits)


def read(
    document: Mapping[str, Any],
    folder: Path,
    at: At = (),
    positions: Places | None = None,
    known: KnownFiles | None = None,
) -> dict[str, Any]:
    """An environment's document with the files that it names read into it.

    Args:
        at: its place in the document around it.
        positions: gets the position of each value of those files.
        known: YAML files that were read before; gets those that are read.

    Raises:
        InvalidSpec: a file that is not there, or can't be read.
    """
    body = dict(document)
    positions = {} if positions is None else positions
    conda = body.get("conda_file")
    if isinstance(conda, str):
        here = (*at, "conda_file")
        body["conda_file"] = read_yaml(existing(conda, folder, here), here, positions, known)
    pip = body.get("pip_requirements")
    # A text of several lines is not a path.
    if isinstance(pip, str) and "\n" not in pip.strip():
        here = (*at, "pip_requirements")
        file = _requirements_file(pip, folder, here)
        if file is not None:
            body["pip_requirements"] = _requirements(file, here, positions)
    return body


def with_context(
    environment: dict[str, Any], folder: Path, at: At, limits: Limits
) -> tuple[dict[str, Any], list[LocalPath]]:
    """The same with a placeholder for the build context, and the context if there is one."""
    build = environment.get("build")
    path = build.get("path") if isinstance(build, dict) else None
    if build is None or not isinstance(path, str) or not path or is_elsewhere(path):
        return environment, []
    here = (*at, "build", "path")
    source = existing(path, folder, here)
    if not source.is_dir():
        raise InvalidSpec(
            f"the build context `{path}` is a file",
            "name its folder, and the file by `dockerfile_path`",
            at=here,
        )
    with located(here):
        files = snapshot.find(source, limits, ignore=True)
    _check_dockerfile(build.get("dockerfile_path"), files, (*at, "build", "dockerfile_path"))
    changed = {**environment, "build": {**build, "path": f"local:{path}"}}
    return changed, [LocalPath(here, source, files)]


def _check_dockerfile(dockerfile: Any, files: list[Found], at: At) -> None:
    name = dockerfile or "Dockerfile"
    if isinstance(name, str) and name.removeprefix("./") not in {entry[0] for entry in files}:
        raise InvalidSpec(
            f"the build context holds no `{name}`",
            "name it in `dockerfile_path`, relative to the context's folder; "
            "`.amlignore` and `.gitignore` there leave files out",
            at=at,
        )


def _requirements_file(text: str, folder: Path, at: At) -> Path | None:
    """The file of that name; none for a requirement such as `torch==2.13.0`.

    A bare name is never one: a mistyped path would install whatever package has that name.

    Raises:
        InvalidSpec: it is neither.
    """
    try:
        return existing(text, folder, at)
    except InvalidSpec as error:
        with suppress(InvalidRequirement):
            requirement = Requirement(text)
            if str(requirement) != requirement.name:
                return None
            hint = f"{error.hint}; a package is written as a list, `[{text}]`"
            raise InvalidSpec(error.message, hint, at=at) from error
        raise


def _requirements(file: Path, at: At, positions: Places) -> list[str]:
    """The requirements in `file`, one a line, comments and continued lines resolved."""
    lines: list[str] = []
    for number, raw in _logical_lines(read_text(file, at)):
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        if not line:
            continue
        positions[(*at, len(lines))] = f"{shown(file)}:{number}:1"
        option = re.match(r"(-r|-c|--requirement|--constraint|-e|--editable)\b", line)
        if option:
            error = InvalidSpec(
                f"{shown(file)}:{number}:1: `{option[1]}` names another file, which does not "
                "travel along",
                "write the packages themselves into this file",
                at=at,
            )
            error.is_located = True
            raise error
        lines.append(line)
    return lines


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line with its number, continued lines as one."""
    first = 1
    parts: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        first = first if parts else number
        parts.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            yield first, " ".join(parts)
            parts = []
    if parts:
        yield first, " ".join(parts)
