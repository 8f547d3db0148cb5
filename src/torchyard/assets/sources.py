"""The files that a version of an asset is made of, wherever its `path` says they are."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class Source:
    """Files to register, as (path in the model, file on the server's disk).

    `single` when the path named one file, not a folder; `uri` is the address of remote files;
    `environment` is that of `job` as a job file names it: a reference with its version, or an
    inline definition, without secrets.
    """

    files: tuple[tuple[str, Path], ...]
    job: str = ""
    single: bool = False
    uri: str = ""
    environment: str | dict[str, Any] = ""


class FindSource(Protocol):
    """From a model's `path` to the files it names, in jobs, snapshots and data.

    The files exist until the block ends.

    Raises:
        NotFound: there is nothing at that path.
    """

    def __call__(self, workspace: str, path: str) -> AbstractContextManager[Source]: ...
