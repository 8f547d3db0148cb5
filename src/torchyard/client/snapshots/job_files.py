"""Find the local things that a job document names, and put snapshots in their place.

Owns: which keys of a job may name something on this machine: `code`, `inputs.<n>.path`,
`environment.conda_file`, `environment.pip_requirements`, `environment.build.path`,
`environment: file:…`, all but inputs below `trial` in a sweep, whose `trial` may itself be a file;
and `code` that names a git repository, which this machine clones.
Leaves: every other key to the server, which alone says what is valid.
Always: paths are relative to the folder of the document; an error carries the place in the
document (`at`); finding reads no file's content but the environment's.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement

from torchyard.base.errors import InvalidInput, InvalidSpec, TorchyardError
from torchyard.client.snapshots import git, snapshot
from torchyard.client.snapshots.snapshot import Snapshot
from torchyard.client.snapshots.walk import CODE_LIMITS, Found, LeftOut, Limits

At = tuple[str | int, ...]
Places = dict[At, str]

_ELSEWHERE = re.compile(r"^(azureml:|snapshot:|runs:/|git\+|git@|[a-z][a-z0-9+.-]+://)", re.I)
# Keys of jobs of other types, where `type` is left out.
_OTHER_KINDS = frozenset({"jobs", "trial", "search_space", "task"})
_INLINE_LIMIT_BYTES = 1 << 20
LEFT_OUT = "torchyard.left_out"
_MOST_LEFT_OUT = 4000
_SWEEP = "sweep"
# What of a component's or a job's file a trial has; its inputs are the sweep's.
_OF_TRIAL_FILE = (
    *("command", "code", "environment", "environment_variables", "distribution", "resources"),
)


@dataclass(frozen=True)
class LocalPath:
    """Something on this machine at `at` of the document."""

    at: At
    place: Path
    entries: list[Found]
    passing: bool = False
    """Gone after the upload, so that its hashes are not worth remembering."""

    def take(self, index_folder: Path | None) -> Snapshot:
        with _located(self.at):
            return snapshot.take(self.place, self.entries, None if self.passing else index_folder)


@dataclass(frozen=True)
class JobFiles:
    """A job document whose local things are placeholders, `local:<path>`, and what they stand for.

    `document` can be validated by the server before anything is read or uploaded; `clones` is the
    git URL of its code, if that is one; `left_out` is Python code that ignore rules leave out.
    `places` has the position of each value that was read from a file which the document names:
    `conda.yml:7:3`.
    """

    document: dict[str, Any]
    paths: tuple[LocalPath, ...]
    clones: str = ""
    code_at: At = ("code",)
    left_out: LeftOut = field(default_factory=dict)
    places: Mapping[At, str] = field(default_factory=dict)

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Errors in the block about such a value begin with its position."""
        try:
            yield
        except TorchyardError as error:
            located = self._located(error)
            located.add_others([self._located(other) for other in error.others])
            if located is error:
                raise
            raise located from error

    def _located(self, error: TorchyardError) -> TorchyardError:
        at = error.at
        while at and at not in self.places:
            at = at[:-1]
        if not at or error.is_located:
            return error
        message = f"{self.places[at]}: {error.message}"
        located = type(error)(message, error.hint, code=error.code, at=error.at)
        located.is_located = True
        return located

    @contextmanager
    def with_code(self, limits: Limits = CODE_LIMITS) -> Iterator[JobFiles]:
        """The same with `code` on this disk and what git says of it among the properties."""
        if self.clones:
            with git.cloned(self.clones) as checkout, _located(self.code_at):
                left_out: LeftOut = {}
                files = snapshot.find(checkout.folder, limits, ignore=True, left_out=left_out)
                code = LocalPath(self.code_at, checkout.folder, files, passing=True)
                recorded = {**checkout.properties, **_left_out_property(left_out)}
                yield self._described(recorded, (code, *self.paths))
            return
        code_folder = next((path.place for path in self.paths if path.at == self.code_at), None)
        git_properties = git.properties(code_folder) if code_folder and code_folder.is_dir() else {}
        recorded = {**git_properties, **_left_out_property(self.left_out)}
        yield self._described(recorded, self.paths)

    def _described(self, recorded: dict[str, str], paths: tuple[LocalPath, ...]) -> JobFiles:
        properties = self.document.get("properties")
        if not recorded or not (properties is None or isinstance(properties, dict)):
            return replace(self, paths=paths)
        # What the user wrote stands.
        document = {**self.document, "properties": {**recorded, **(properties or {})}}
        return replace(self, document=document, paths=paths)

    def with_snapshots(self, snapshot_id: Callable[[LocalPath], str]) -> dict[str, Any]:
        """The document with each placeholder replaced by `snapshot:<id>`."""
        document = copy.deepcopy(self.document)
        for path in self.paths:
            parent: Any = document
            for step in path.at[:-1]:
                parent = parent[step]
            parent[path.at[-1]] = f"snapshot:{snapshot_id(path)}"
        return document


def find(document: Mapping[str, Any], folder: Path, limits: Limits = CODE_LIMITS) -> JobFiles:
    """Check the local things that `document` names.

    Args:
        folder: what relative paths are relative to.
        limits: for the code folder.

    Raises:
        InvalidSpec: a path does not exist or is of the wrong kind.
        TorchyardError: a folder can't be a snapshot.
    """
    body: dict[str, Any] = copy.deepcopy(dict(document))
    positions: Places = {}
    if _is_sweep(body):
        at, code_folder = _read_trial(body, folder, positions)
        part = body["trial"] if at else {}
    elif _is_command(body):
        at, code_folder, part = (), folder, body
    else:
        # Its paths may mean anything; the server says that its type is not served.
        return JobFiles(body, ())
    code_at = (*at, "code")
    left_out: LeftOut = {}
    paths, clones = _find_code(part, code_folder, code_at, limits, left_out)
    paths += _find_inputs(body, folder)
    if "environment" in part:
        here = (*at, "environment")
        part["environment"], context = _environment(
            part["environment"], code_folder, limits, here, positions
        )
        paths += context
    return JobFiles(body, tuple(paths), clones, code_at, left_out, positions)


def _left_out_property(left_out: LeftOut) -> dict[str, str]:
    """What the server explains a missing module by: the outermost paths, as far as they fit."""
    listed: LeftOut = {}
    size = 2
    for path in sorted(left_out, key=lambda path: (path.count("/"), path)):
        size += len(json.dumps({path: left_out[path]}))
        if size > _MOST_LEFT_OUT:
            break
        listed[path] = left_out[path]
    return {LEFT_OUT: json.dumps(listed)} if listed else {}


def _read_trial(sweep: dict[str, Any], folder: Path, positions: Places) -> tuple[At, Path]:
    """Put the trial's file in its place; where its keys are, and what they are relative to.

    The place is empty where the trial is on the server, or no mapping at all.
    """
    trial = sweep.get("trial")
    if isinstance(trial, str) and trial.strip() and not is_elsewhere(trial):
        file = _existing(trial, folder, ("trial",))
        trial, folder = _yaml(file, ("trial",), positions), file.parent
        sweep["trial"] = {key: value for key, value in trial.items() if key in _OF_TRIAL_FILE}
        return ("trial",), folder
    return (("trial",) if isinstance(trial, dict) else ()), folder


def _find_code(
    body: dict[str, Any], folder: Path, at: At, limits: Limits, left_out: LeftOut
) -> tuple[list[LocalPath], str]:
    """The code's placeholder, if it is here; and its URL, if it is a git repository."""
    code = body.get("code")
    if isinstance(code, str) and git.is_url(code):
        git.parse(code)
        body["code"] = f"local:{git.without_password(code)}"
        return [], code
    if not isinstance(code, str) or not code or is_elsewhere(code):
        return [], ""
    path = _existing(code, folder, at)
    with _located(at):
        files = snapshot.find(path, limits, ignore=True, left_out=left_out)
    body["code"] = f"local:{code}"
    return [LocalPath(at, path, files)], ""


def _find_inputs(body: dict[str, Any], folder: Path) -> list[LocalPath]:
    paths = []
    inputs = body.get("inputs")
    for name, value in inputs.items() if isinstance(inputs, dict) else ():
        path = value.get("path") if isinstance(value, dict) else None
        if not isinstance(path, str) or not path or is_elsewhere(path):
            continue
        at = ("inputs", name, "path")
        source = _existing(path, folder, at)
        check_kind(value.get("type") or "uri_folder", source, path, at)
        with _located(at):
            files = snapshot.find(source, Limits())
        value["path"] = f"local:{path}"
        paths.append(LocalPath(at, source, files))
    return paths


def is_elsewhere(path: str) -> bool:
    """Whether `path` is a reference or a URL, not a path on this machine."""
    return bool(_ELSEWHERE.match(path)) and not path.lower().startswith("file:")


def local_path(text: str, folder: Path) -> Path:
    """The file or folder that `text` names, `file:` forms included."""
    if text.lower().startswith("file://"):
        text = unquote(urlsplit(text).path)
    elif text.lower().startswith("file:"):
        text = text[5:]
    return folder / Path(text).expanduser()


def _existing(text: str, folder: Path, at: At) -> Path:
    path = local_path(text, folder)
    try:
        path.stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, FileNotFoundError):
            reason = "does not exist"
        raise InvalidSpec(
            f"the path `{text}` {reason}"
            if reason == "does not exist"
            else f"the path `{text}` can't be read ({reason})",
            f"paths are relative to `{folder}`",
            at=at,
        ) from error
    return path


def check_kind(kind: Any, path: Path, text: str, at: At, noun: str = "input") -> None:
    """
    Raises:
        InvalidSpec: the type `kind` wants a file where there is a folder, or the other way round.
    """
    expected_type = str(kind).lower()
    if expected_type == "uri_file" and path.is_dir():
        raise InvalidSpec(
            f"the {noun}'s path `{text}` is a folder, its type is {expected_type}",
            "name a file, or write `type: uri_folder`",
            at=at,
        )
    if (
        expected_type in ("uri_folder", "mltable", "mlflow_model", "triton_model")
        and not path.is_dir()
    ):
        raise InvalidSpec(
            f"the {noun}'s path `{text}` is a file, its type is {expected_type}",
            "name a folder"
            + (", or write `type: uri_file`" if expected_type == "uri_folder" else ""),
            at=at,
        )


def environment_files(
    document: Mapping[str, Any], folder: Path, at: At = (), positions: Places | None = None
) -> dict[str, Any]:
    """An environment's document with the files that it names read into it.

    Args:
        at: its place in the document around it.
        positions: gets the position of each value of those files.

    Raises:
        InvalidSpec: a file that is not there, or can't be read.
    """
    body = dict(document)
    positions = {} if positions is None else positions
    conda = body.get("conda_file")
    if isinstance(conda, str):
        here = (*at, "conda_file")
        body["conda_file"] = _yaml(_existing(conda, folder, here), here, positions)
    pip = body.get("pip_requirements")
    # A text of several lines is not a path.
    if isinstance(pip, str) and "\n" not in pip.strip():
        here = (*at, "pip_requirements")
        file = _requirements_file(pip, folder, here)
        if file is not None:
            body["pip_requirements"] = _requirements(file, here, positions)
    return body


def _requirements_file(text: str, folder: Path, at: At) -> Path | None:
    """The file of that name; none for a requirement such as `torch==2.13.0`.

    A bare name is never one: a mistyped path would install whatever package has that name.

    Raises:
        InvalidSpec: it is neither.
    """
    try:
        return _existing(text, folder, at)
    except InvalidSpec as error:
        with suppress(InvalidRequirement):
            requirement = Requirement(text)
            if str(requirement) != requirement.name:
                return None
            hint = f"{error.hint}; a package is written as a list, `[{text}]`"
            raise InvalidSpec(error.message, hint, at=at) from error
        raise


def find_environment(
    document: Mapping[str, Any], folder: Path, limits: Limits = CODE_LIMITS
) -> JobFiles:
    """Check the local things that an environment's document names, as `find` does for a job.

    Args:
        limits: for a build context.
    """
    positions: Places = {}
    files = environment_files(document, folder, (), positions)
    body, paths = _with_context(files, folder, (), limits)
    return JobFiles(body, tuple(paths), places=positions)


def _with_context(
    environment: dict[str, Any], folder: Path, at: At, limits: Limits
) -> tuple[dict[str, Any], list[LocalPath]]:
    """The same with a placeholder for the build context, and the context if there is one."""
    build = environment.get("build")
    path = build.get("path") if isinstance(build, dict) else None
    if build is None or not isinstance(path, str) or not path or is_elsewhere(path):
        return environment, []
    here = (*at, "build", "path")
    source = _existing(path, folder, here)
    if not source.is_dir():
        raise InvalidSpec(
            f"the build context `{path}` is a file",
            "name its folder, and the file by `dockerfile_path`",
            at=here,
        )
    with _located(here):
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


def _environment(
    environment: Any, folder: Path, limits: Limits, at: At, positions: Places
) -> tuple[Any, list[LocalPath]]:
    if isinstance(environment, str) and environment.lower().startswith("file:"):
        file = _existing(environment, folder, at)
        environment = _yaml(file, at, positions)
        folder = file.parent
    if not isinstance(environment, dict):
        return environment, []
    return _with_context(environment_files(environment, folder, at, positions), folder, at, limits)


def _yaml(file: Path, at: At, positions: Places) -> dict[str, Any]:
    from torchyard.base.documents import yaml_files

    try:
        content = yaml_files.read(file, _shown(file))
    except InvalidInput as error:
        error.at, error.is_located = at, isinstance(error, InvalidSpec)
        raise
    positions.update({(*at, *inner): position for inner, position in content.places.items()})
    return content.value


def _shown(file: Path) -> str:
    """The file as a person in this folder would name it."""
    try:
        return str(file.resolve().relative_to(Path.cwd().resolve()))
    except ValueError:
        return str(file)


def _requirements(file: Path, at: At, positions: Places) -> list[str]:
    """The requirements in `file`, one a line, comments and continued lines resolved."""
    lines: list[str] = []
    for number, raw in _logical_lines(_text(file, at)):
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        if not line:
            continue
        positions[(*at, len(lines))] = f"{_shown(file)}:{number}:1"
        option = re.match(r"(-r|-c|--requirement|--constraint|-e|--editable)\b", line)
        if option:
            error = InvalidSpec(
                f"{_shown(file)}:{number}:1: `{option[1]}` names another file, which does not "
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


def _text(file: Path, at: At) -> str:
    try:
        if file.stat().st_size > _INLINE_LIMIT_BYTES:
            raise InvalidSpec(
                f"`{file}` is larger than 1 MB", "name a list of packages, not data", at=at
            )
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpec(
            f"`{file}` can't be read as text ({error})", "name a UTF-8 text file", at=at
        ) from error


class _located:
    """Errors in the block get the place `at` when they have none."""

    def __init__(self, at: At) -> None:
        self._at = at

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TorchyardError) and not error.at:
            error.at = self._at


def _is_sweep(document: Mapping[str, Any]) -> bool:
    kind = document.get("type")
    if isinstance(kind, str) and kind.strip():
        return kind.strip().lower() == _SWEEP
    return "command" not in document and bool({"trial", "search_space"} & set(document))


def _is_command(document: Mapping[str, Any]) -> bool:
    kind = document.get("type")
    if isinstance(kind, str) and kind.strip():
        return kind.strip().lower() == "command"
    return "command" in document or not _OTHER_KINDS.intersection(document)
