"""The types of this package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from torchyard.base.files import Writing

DATA_TYPES = ("uri_file", "uri_folder", "mltable")
MODEL_TYPES = ("custom_model", "mlflow_model", "triton_model")
ONNX_TYPE = "onnx_model"
"""torchyard's own type of an output: one ONNX file, registered as a `custom_model`."""


@dataclass(frozen=True)
class Datastore:
    """A place for files, behind an fsspec URL.

    `kind` is a key of `kinds.KINDS`; `url` ends without a slash; `options` go to fsspec as they
    are and may hold secrets: they never leave the server. `document` is the datastore's document
    with its credentials masked. `owner` is empty where nobody is known to have made it.
    """

    workspace: str
    name: str
    kind: str
    url: str
    created_at: datetime
    options: dict[str, Any] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    owner: str = ""


@dataclass(frozen=True)
class DataAsset:
    """One version of a data asset at `uri`; `job` is the one that made it, empty for none."""

    workspace: str
    name: str
    version: str
    type: str
    uri: str
    created_at: datetime
    owner: str
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    job: str = ""
    archived: bool = False


@dataclass(frozen=True)
class UrlMap:
    """URLs that begin with `prefix` are read from `target`, a datastore URI."""

    workspace: str
    prefix: str
    target: str
    created_at: datetime


@dataclass(frozen=True)
class Pinned:
    """A path whose meaning never changes, and notices about it for the user."""

    path: str
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checksum:
    """A file as the server wrote it: its sha256, and the mark that its datastore gave it.

    `job` is the one that wrote it, empty for none; `written_at` is None where nobody knows it.
    """

    sha256: str
    mark: str
    job: str = ""
    written_at: datetime | None = None


@dataclass(frozen=True)
class Entry:
    """One file. `mark` changes with its content, as far as its datastore can tell; may be empty.
    `modified_at` is None where it is unknown.
    """

    path: str
    size_bytes: int
    mark: str
    modified_at: datetime | None = None


@dataclass(frozen=True)
class DataFile:
    """One file of an asset; `sha256` is empty where it is unknown."""

    path: str
    size_bytes: int
    sha256: str = ""


class Files(Protocol):
    """The files below one place; paths are relative to it, with forward slashes.

    Raises:
        NotFound: there is nothing at the path.
        Unreachable: the place does not answer, or refuses.
    """

    def entry(self, path: str) -> Entry | None:
        """The file at `path`; None when there is none, or a folder."""
        ...

    def is_folder(self, path: str) -> bool:
        """Whether there is a folder at `path`, as far as the place has folders."""
        ...

    def walk(self, prefix: str) -> Iterator[Entry]:
        """Every file below the folder `prefix`, sorted; paths are relative to it."""
        ...

    def fetch(self, pairs: Sequence[tuple[str, Path]]) -> None:
        """Copy files to this machine; the folders of the targets exist."""
        ...

    def read(self, path: str, start: int = 0, limit: int | None = None) -> Iterator[bytes]:
        """The bytes of a file from `start` on, at most `limit`, a MiB or so at a time.

        The file is opened by the call, not by the first chunk.
        """
        ...

    def writing(self, path: str) -> AbstractContextManager[Writing]:
        """Open `path` for writing; it appears when the block ends without an error."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file, or everything below a folder; does nothing when it does not exist."""
        ...

    def local(self, path: str, person: str = "") -> Path | None:
        """Where a person's jobs on this machine find it; None for a remote file, and for one that
        they find in a copy. The server opens no file by it, except of its own datastores.
        """
        ...
