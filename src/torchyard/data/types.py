"""The nouns of this room."""

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


@dataclass(frozen=True)
class Datastore:
    """A place for files, behind an fsspec URL.

    `kind` is a key of `kinds.KINDS`; `url` ends without a slash; `options` go to fsspec as they
    are and may hold secrets: they never leave the server. `document` is what was asked, without
    its credentials.
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


@dataclass(frozen=True)
class DataAsset:
    """One version of a data asset. `uri` is where it lies; `job` made it, if one did."""

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
    """Reads of URLs that begin with `prefix` go to `target`, a datastore URI."""

    workspace: str
    prefix: str
    target: str
    created_at: datetime


@dataclass(frozen=True)
class Pinned:
    """A path that will mean the same tomorrow, and what the user should know of it."""

    path: str
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """One file. `mark` changes when its bytes do, as far as its place can tell; may be empty.
    `modified_at` is None where the place does not tell.
    """

    path: str
    size_bytes: int
    mark: str
    modified_at: datetime | None = None


@dataclass(frozen=True)
class DataFile:
    """One file of an asset; `sha256` is empty where nobody knows it."""

    path: str
    size_bytes: int
    sha256: str = ""


class Files(Protocol):
    """The files below one place; paths are relative to it, with forward slashes.

    Raises:
        NotFound: what is asked for is not there.
        Unreachable: the place does not answer, or refuses.
    """

    def entry(self, path: str) -> Entry | None:
        """The file at `path`; None when there is none, or a folder."""
        ...

    def is_folder(self, path: str) -> bool:
        """Is there a folder at `path`, as far as the place has folders?"""
        ...

    def walk(self, prefix: str) -> Iterator[Entry]:
        """Every file below the folder `prefix`, sorted; paths are relative to it."""
        ...

    def fetch(self, wanted: Sequence[tuple[str, Path]]) -> None:
        """Copy files to this machine; the folders of the targets exist."""
        ...

    def read(self, path: str, start: int = 0, most: int | None = None) -> Iterator[bytes]:
        """The bytes of a file from `start` on, at the most so many, a MiB or so at a time.

        The file is opened by the call, not by the first chunk.
        """
        ...

    def writing(self, path: str) -> AbstractContextManager[Writing]:
        """Open `path` for writing; it appears when the block ends well."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file, or everything below a folder; nothing when it is not there."""
        ...

    def local(self, path: str) -> Path | None:
        """Where `path` lies on this machine's disk, None when it lies elsewhere."""
        ...
