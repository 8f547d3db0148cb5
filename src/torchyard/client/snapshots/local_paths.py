"""What a document names on this machine: paths, and the files behind them.

Owns: which texts are paths here; that a path exists and is of the right kind; reading a file that
a document names; the place of an error.
Leaves: which keys name something to job_files.py and environment_files.py.
Always: an error carries the place in the document (`at`); of a file that can't be a document no
more than its limit is read.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from torchyard.base.errors import InvalidInput, InvalidSpec, TorchyardError
from torchyard.client.snapshots import snapshot
from torchyard.client.snapshots.snapshot import Hashing, Snapshot
from torchyard.client.snapshots.walk import Found

if TYPE_CHECKING:
    from torchyard.base.documents.yaml_files import YamlFile

At = tuple[str | int, ...]
Places = dict[At, str]
"""The position of each value that was read from a file which the document names."""

KnownFiles = dict[Path, "YamlFile"]

_ELSEWHERE = re.compile(
    r"^(azureml:|/subscriptions/|snapshot:|runs:/|git\+|git@|\$\{\{|[a-z][a-z0-9+.-]+://)", re.I
)
_INLINE_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True)
class LocalPath:
    """Something on this machine at `at` of the document."""

    at: At
    place: Path
    entries: list[Found]
    passing: bool = False
    """Gone after the upload, so that its hashes are not worth remembering."""
    outside: Mapping[str, str] = field(default_factory=dict)
    """Where those of the entries are that don't lie below `place`."""

    def take(self, index_folder: Path | None, hashing: Hashing | None = None) -> Snapshot:
        index = None if self.passing else index_folder
        with located(self.at):
            return snapshot.take(self.place, self.entries, index, self.outside, hashing)


@contextmanager
def located(at: At) -> Iterator[None]:
    """Errors in the block get the place `at` when they have none."""
    try:
        yield
    except TorchyardError as error:
        error.at = error.at or at
        raise


def positioned(error: TorchyardError, places: Mapping[At, str]) -> TorchyardError:
    """The error with the position of its place in front; the same one where there is none."""
    at = error.at
    while at and at not in places:
        at = at[:-1]
    if not at or error.is_located:
        return error
    message = f"{places[at]}: {error.message}"
    positioned_error = type(error)(message, error.hint, code=error.code, at=error.at)
    positioned_error.is_located = True
    return positioned_error


def is_elsewhere(path: str) -> bool:
    """Whether `path` is a reference, an expression or a URL, not a path on this machine."""
    return bool(_ELSEWHERE.match(path)) and not path.lower().startswith("file:")


def local_path(text: str, folder: Path) -> Path:
    """The file or folder that `text` names, `file:` forms included."""
    if text.lower().startswith("file://"):
        text = unquote(urlsplit(text).path)
    elif text.lower().startswith("file:"):
        text = text[5:]
    return folder / Path(text).expanduser()


def existing(text: str, folder: Path, at: At) -> Path:
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


def read_yaml(
    file: Path, at: At, positions: Places, known: KnownFiles | None = None
) -> dict[str, Any]:
    """The mapping in `file`, which stands at `at`; the caller's own.

    Args:
        positions: gets the position of each value.
        known: files that were read before; gets this one.

    Raises:
        InvalidInput: it can't be read, or is not one mapping in YAML.
    """
    from torchyard.base.documents import yaml_files

    content = known.get(file) if known is not None else None
    if content is None:
        _check_regular(file, at)
        try:
            content = yaml_files.read(file, shown(file))
        except InvalidInput as error:
            error.at, error.is_located = at, isinstance(error, InvalidSpec)
            raise
        if known is not None:
            known[file] = content
    positions.update({(*at, *inner): position for inner, position in content.places.items()})
    return copy.deepcopy(content.value)


def shown(file: Path) -> str:
    """The file as a person in this folder would name it."""
    try:
        return str(file.resolve().relative_to(Path.cwd().resolve()))
    except ValueError:
        return str(file)


def _check_regular(file: Path, at: At) -> None:
    """Opening a pipe waits for who writes to it."""
    if not file.is_file() and not file.is_dir():
        raise InvalidSpec(
            f"`{shown(file)}` is neither a file nor a folder", "name a file with text", at=at
        )


def read_text(file: Path, at: At) -> str:
    """A short text in UTF-8."""
    _check_regular(file, at)
    try:
        if file.stat().st_size > _INLINE_LIMIT_BYTES:
            raise InvalidSpec(f"`{file}` is larger than 1 MB", "name a list, not data", at=at)
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpec(
            f"`{file}` can't be read as text ({error})", "name a UTF-8 text file", at=at
        ) from error
