"""The nouns of this room."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Component:
    """One version. `definition` is its document without what is only said of it; `hash` is the
    sha256 of it. `anonymous` ones belong to one job and stand in no list.
    """

    workspace: str
    name: str
    version: str
    type: str
    definition: dict[str, Any]
    hash: str
    created_at: datetime
    owner: str
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    anonymous: bool = False
    archived: bool = False
