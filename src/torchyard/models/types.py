"""The nouns of this room."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class ModelFile:
    """One file of a model; `path` is relative to the model."""

    path: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class Model:
    """One version. `job` is the job that made it, empty for an upload; `folder` is where its
    files lie in the default datastore. `single`: the model is one file, not a folder with one.
    """

    workspace: str
    name: str
    version: int
    type: str
    source: str
    folder: str
    job: str
    created_at: datetime
    owner: str
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    files: tuple[ModelFile, ...] = ()
    single: bool = False
    archived: bool = False


@dataclass(frozen=True)
class Source:
    """Files to register, as (path in the model, file on the server's disk).

    `single` when the path named one file, not a folder.
    """

    files: tuple[tuple[str, Path], ...]
    job: str = ""
    single: bool = False


class FindSource(Protocol):
    """From a model's `path` to the files it names; the server wires it to jobs, snapshots and data.

    The files are there until the block ends.

    Raises:
        NotFound: there is nothing at that path.
    """

    def __call__(self, workspace: str, path: str) -> AbstractContextManager[Source]: ...
