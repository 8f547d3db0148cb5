"""The types of this package."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Component:
    """One version. `definition` is its document without name, version, description, tags and
    properties; `hash` is the sha256 of it. `anonymous` ones belong to one job and are not listed.
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
