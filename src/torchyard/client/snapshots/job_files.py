"""Find the local things that a job document names, and put snapshots in their place.

Owns: which keys of which kind of job name something on this machine: `code`, `inputs.<n>.path`,
`environment`, `component` and `trial`, which may be files with such keys of their own, and the
`jobs` of a pipeline; `code` that names a git repository, which this machine clones.
Leaves: paths and errors to local_paths.py, an environment's files to environment_files.py, what
stands beside the code to code_includes.py; every other key to the server, which alone says what
is valid.
Always: paths are relative to the folder of the file that names them; an error carries the place in
the document (`at`); finding reads no file's content but those of environments and components.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torchyard.base.documents.faults import joined, without
from torchyard.base.errors import InvalidInput, InvalidSpec, TorchyardError
from torchyard.client.snapshots import code_includes, environment_files, git, snapshot
from torchyard.client.snapshots.code_includes import Include
from torchyard.client.snapshots.local_paths import (
    At,
    KnownFiles,
    LocalPath,
    Places,
    check_kind,
    existing,
    is_elsewhere,
    located,
    positioned,
    read_yaml,
)
from torchyard.client.snapshots.walk import CODE_LIMITS, Found, LeftOut, Limits

LEFT_OUT = "torchyard.left_out"
_MOST_LEFT_OUT = 4000
PIPELINE = "pipeline"
# The keys of each kind that are looked at; the paths of other kinds may mean anything.
_KEYS: dict[str, tuple[str, ...]] = {
    "command": ("component", "code", "inputs", "environment"),
    "sweep": ("trial", "inputs"),
    PIPELINE: ("component", "inputs", "jobs"),
}
# A trial's inputs are the sweep's.
_TRIAL_KEYS = ("code", "environment")
# What of a component's or a job's file a trial has.
_OF_TRIAL_FILE = (
    *("command", "code", "environment", "environment_variables", "distribution", "resources"),
    code_includes.KEY,
)
_MOST_LEVELS = 20
_STEPS_OF_A_LEVEL = 3  # jobs.<name>.component


@dataclass(frozen=True)
class Clone:
    """Code behind a git URL, and what stands beside it."""

    url: str
    includes: tuple[Include, ...] = ()


@dataclass(frozen=True)
class JobFiles:
    """A job document whose local things are placeholders, `local:<path>`, and what they stand for.

    `document` can be validated by the server before anything is read or uploaded; `clones` are the
    places of code that is in git repositories; `places` has the position of each value that was
    read from a file which the document names: `conda.yml:7:3`. What git says of `recorded_at`, a
    code, or of `recorded_folder`, a pipeline's, is recorded with the job; `left_out` is Python code
    that ignore rules leave out.
    """

    document: dict[str, Any]
    paths: tuple[LocalPath, ...]
    clones: Mapping[At, Clone] = field(default_factory=dict)
    left_out: LeftOut = field(default_factory=dict)
    places: Mapping[At, str] = field(default_factory=dict)
    recorded_at: At = ()
    recorded_folder: Path | None = None

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Errors in the block about such a value begin with its position."""
        try:
            yield
        except TorchyardError as error:
            located_error = positioned(error, self.places)
            located_error.add_others([positioned(other, self.places) for other in error.others])
            if located_error is error:
                raise
            raise located_error from error

    @contextmanager
    def with_code(self, limits: Limits = CODE_LIMITS) -> Iterator[JobFiles]:
        """The same with `code` on this disk and what git says of it among the properties."""
        left_out = dict(self.left_out)
        checkouts: dict[str, git.Checkout] = {}
        codes: list[LocalPath] = []
        with ExitStack() as stack:
            for at, clone in self.clones.items():
                with located(at):
                    if clone.url not in checkouts:
                        checkouts[clone.url] = stack.enter_context(git.cloned(clone.url))
                    folder = checkouts[clone.url].folder
                    excluded = left_out if at == self.recorded_at else None
                    files = snapshot.find(folder, limits, ignore=True, left_out=excluded)
                    name = git.without_password(clone.url)
                    combined = code_includes.combined(name, folder, files, clone.includes, limits)
                codes.append(LocalPath(at, folder, combined[0], True, combined[1]))
            recorded = {**self._git_properties(checkouts), **_left_out_property(left_out)}
            yield self._described(recorded, (*codes, *self.paths))

    def _git_properties(self, checkouts: Mapping[str, git.Checkout]) -> dict[str, str]:
        if self.recorded_at in self.clones:
            return checkouts[self.clones[self.recorded_at].url].properties
        folder = self.recorded_folder
        return git.properties(folder) if folder is not None and folder.is_dir() else {}

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


def find(
    document: Mapping[str, Any],
    folder: Path,
    limits: Limits = CODE_LIMITS,
    file: Path | None = None,
) -> JobFiles:
    """Check the local things that `document` names.

    Args:
        folder: what relative paths are relative to.
        limits: for a code folder.
        file: where the document stands, if it is a file.

    Raises:
        InvalidSpec: a path does not exist or is of the wrong kind; carries the others.
        TorchyardError: a folder can't be a snapshot.
    """
    files, errors = find_all(document, folder, limits, file)
    if errors:
        raise joined(errors, None, ())
    return files


def find_all(
    document: Mapping[str, Any],
    folder: Path,
    limits: Limits = CODE_LIMITS,
    file: Path | None = None,
) -> tuple[JobFiles, list[TorchyardError]]:
    """The same, and what is wrong with things that are left out of its document."""
    body: dict[str, Any] = _unshared(document)
    is_pipeline = kind_of(body) == PIPELINE
    finder = _Finder(limits, None if is_pipeline else {})
    with finder.reporting():
        if file is not None and not is_pipeline:
            code_includes.add_listed(body, file, (), finder.places)
        files = () if file is None else (Path(os.path.realpath(file)),)
        finder.visit(_Part(body, (), folder, files), _KEYS.get(kind_of(body), ()))
    if finder.errors:
        body = without(body, [error.at for error in finder.errors])
    codes = [*finder.clones, *(path.at for path in finder.paths if path.at[-1:] == ("code",))]
    code_at = codes[0] if codes and not is_pipeline else ()
    here = next((path.place for path in finder.paths if path.at == code_at), None)
    found = JobFiles(
        body,
        tuple(finder.paths),
        finder.clones,
        finder.left_out or {},
        finder.places,
        recorded_at=code_at,
        recorded_folder=folder if is_pipeline else here,
    )
    return found, [positioned(error, finder.places) for error in finder.errors]


def find_environment(
    document: Mapping[str, Any], folder: Path, limits: Limits = CODE_LIMITS
) -> JobFiles:
    """Check the local things that an environment's document names, as `find` does for a job.

    Args:
        limits: for a build context.
    """
    positions: Places = {}
    files = environment_files.read(document, folder, (), positions)
    body, paths = environment_files.with_context(files, folder, (), limits)
    return JobFiles(body, tuple(paths), places=positions)


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


def _unshared(value: Any) -> Any:
    """A copy in which nothing stands twice, as one mapping may in what Python code builds."""
    if isinstance(value, Mapping):
        return {key: _unshared(inner) for key, inner in value.items()}
    return [_unshared(inner) for inner in value] if isinstance(value, list) else value


def kind_of(document: Mapping[str, Any]) -> str:
    """The type of a job or component, guessed from its keys where it is left out."""
    kind = document.get("type")
    if isinstance(kind, str) and kind.strip():
        return kind.strip().lower()
    if "command" in document:
        return "command"
    if {"trial", "search_space"} & set(document):
        return "sweep"
    return PIPELINE if "jobs" in document else "" if "task" in document else "command"


def _is_component_file(text: str) -> bool:
    """Whether it is a path: `prep` and `prep:1` are names."""
    return not is_elsewhere(text) and (
        text.lower().startswith("file:")
        or any(separator in text for separator in ("/", os.sep))
        or text.lower().endswith((".yml", ".yaml"))
    )


@dataclass(frozen=True)
class _Part:
    """A job or component of the document at `at`, and the files that name each other up to it."""

    body: dict[str, Any]
    at: At
    folder: Path
    files: tuple[Path, ...]


class _Finder:
    """Changes parts of a document, and collects what they name; nothing is read or walked twice."""

    def __init__(self, limits: Limits, left_out: LeftOut | None) -> None:
        self.paths: list[LocalPath] = []
        self.clones: dict[At, Clone] = {}
        self.places: Places = {}
        self.errors: list[TorchyardError] = []
        self.left_out = left_out
        self._limits = limits
        self._known: KnownFiles = {}
        self._walked: dict[tuple[Path, bool], list[Found]] = {}

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """An error in the block does not keep others from being found."""
        try:
            yield
        except InvalidInput as error:
            self.errors.append(error)

    def visit(self, part: _Part, keys: tuple[str, ...]) -> None:
        if len(part.at) > _MOST_LEVELS * _STEPS_OF_A_LEVEL:
            raise InvalidSpec(
                f"pipelines are nested more than {_MOST_LEVELS} levels deep",
                "put some of the inner steps into one pipeline",
                at=part.at,
            )
        for key in keys:
            if key == "code":
                self._find_code(part)
            elif key == "inputs":
                self._find_inputs(part)
            elif key == "environment":
                self._find_environment(part)
            elif key == "jobs":
                self._find_nodes(part)
            else:
                with self.reporting():
                    self._find_component(part, key)

    def _find_nodes(self, part: _Part) -> None:
        nodes = part.body.get("jobs")
        for name, node in nodes.items() if isinstance(nodes, dict) else ():
            if isinstance(node, dict):
                inner = _Part(node, (*part.at, "jobs", name), part.folder, part.files)
                with self.reporting():
                    self.visit(inner, _KEYS.get(kind_of(node), ()))

    def _find_component(self, part: _Part, key: str) -> None:
        """Put a component's file in its place, and what it names."""
        at, folder, files = (*part.at, key), part.folder, part.files
        component = part.body.get(key)
        if isinstance(component, str) and _is_component_file(component):
            file = existing(component, folder, at)
            folder, files = file.parent, (*files, Path(os.path.realpath(file)))
            _check_circle(files, at)
            component = read_yaml(file, at, self.places, self._known)
            code_includes.add_listed(component, file, at, self.places)
            component.pop("$schema", None)
            if key == "trial":
                component = {name: component[name] for name in component if name in _OF_TRIAL_FILE}
            part.body[key] = component
        if isinstance(component, dict):
            keys = _TRIAL_KEYS if key == "trial" else _KEYS.get(kind_of(component), ())
            self.visit(_Part(component, at, folder, files), keys)

    def _find_code(self, part: _Part) -> None:
        at, code = (*part.at, "code"), part.body.get("code")
        includes = self._includes(part)
        with self.reporting():
            if isinstance(code, str) and git.is_url(code):
                with located(at):
                    git.parse(code)
                self.clones[at] = Clone(code, includes)
                part.body["code"] = f"local:{git.without_password(code)}"
                return
            if isinstance(code, str) and code and not is_elsewhere(code):
                place = existing(code, part.folder, at)
                entries = self._walk(place, at, is_code=True)
            elif includes and not code:
                code, place, entries = ".", part.folder, []
            elif includes:
                raise InvalidSpec(
                    f"`{code}` is not on this machine, so that nothing can be put beside it",
                    f"name a local folder as `code`, or remove `{code_includes.KEY}`",
                    at=(*part.at, code_includes.KEY),
                )
            else:
                return
            with located(at):
                entries, outside = code_includes.combined(
                    code, place, entries, includes, self._limits
                )
            self.paths.append(LocalPath(at, place, entries, outside=outside))
            part.body["code"] = f"local:{code}"

    def _includes(self, part: _Part) -> tuple[Include, ...]:
        at, includes = (*part.at, code_includes.KEY), []
        written = part.body.pop(code_includes.KEY, None) or []
        with self.reporting():
            if not isinstance(written, list):
                raise InvalidSpec("the includes are not a list", "write `[../common]`", at=at)
            for number, entry in enumerate(written):
                with self.reporting():
                    here = (*at, number)
                    includes.append(
                        code_includes.find(entry, part.folder, here, self._limits, self.left_out)
                    )
        return tuple(includes)

    def _find_inputs(self, part: _Part) -> None:
        inputs = part.body.get("inputs")
        for name, value in inputs.items() if isinstance(inputs, dict) else ():
            path = value.get("path") if isinstance(value, dict) else None
            if not isinstance(path, str) or not path or is_elsewhere(path):
                continue
            at = (*part.at, "inputs", name, "path")
            with self.reporting():
                source = existing(path, part.folder, at)
                check_kind(value.get("type") or "uri_folder", source, path, at)
                self.paths.append(LocalPath(at, source, self._walk(source, at, is_code=False)))
                value["path"] = f"local:{path}"

    def _find_environment(self, part: _Part) -> None:
        at, environment = (*part.at, "environment"), part.body.get("environment")
        while environment is not None:
            try:
                part.body["environment"], contexts = environment_files.find(
                    environment, part.folder, self._limits, at, self.places, self._known
                )
                self.paths += contexts
                return
            except InvalidInput as error:
                self.errors.append(error)
                rest = without(environment, [error.at[len(at) :]])
                environment = rest if rest and rest != environment else None

    def _walk(self, place: Path, at: At, is_code: bool) -> list[Found]:
        if (place, is_code) not in self._walked:
            with located(at):
                self._walked[place, is_code] = (
                    snapshot.find(place, self._limits, ignore=True, left_out=self.left_out)
                    if is_code
                    else snapshot.find(place, Limits())
                )
        return self._walked[place, is_code]


def _check_circle(files: tuple[Path, ...], at: At) -> None:
    *around, file = files
    if file in around:
        through = " and ".join(f"`{each.name}`" for each in around[around.index(file) + 1 :])
        raise InvalidSpec(
            f"`{file.name}` names itself" + (f" through {through}" if through else ""),
            "name another component",
            at=at,
        )
