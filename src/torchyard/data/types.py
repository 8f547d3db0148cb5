"""The nouns of this room."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class Datastore:
    """A place for files, behind an fsspec URL.

    `kind` is one of `kinds.KINDS`; `url` ends without a slash; `options` go to fsspec as they
    are and may hold secrets: they never leave the server.
    """

    workspace: str
    name: str
    kind: str
    url: str
    created_at: datetime
    options: dict[str, str] = field(default_factory=dict)
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
    job: str = ""
    archived: bool = False


@dataclass(frozen=True)
class UrlMap:
    """Reads of URLs that begin with `prefix` go to `target`, a datastore URI."""

    workspace: str
    prefix: str
    target: str
