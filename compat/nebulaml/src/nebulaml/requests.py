"""What a rank and the process that writes its checkpoints say to each other.

Owns: the messages.
Leaves: their framing to torchyard.train.
Always: each names the version that it is about.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nebulaml.versions import Version


@dataclass(frozen=True)
class Configure:
    """The first message, and again after another `init`."""

    rank: int
    interval_s: float
    retention: int
    history: Path


@dataclass(frozen=True)
class Begin:
    """A version that is due goes to storage at once, another one stays in memory at first."""

    version: Version
    is_due: bool
    started_at: float


@dataclass(frozen=True)
class Put:
    """An object, whose copy's file descriptor goes with this message."""

    version: Version
    number: int
    name: str
    size_bytes: int
    blocked_s: float


@dataclass(frozen=True)
class Release:
    """Nothing more will be put into the version."""

    version: Version


@dataclass(frozen=True)
class Flush:
    """Write everything that is in memory, then say so."""

    number: int


@dataclass(frozen=True)
class Freed:
    """The copy of an object is not needed any more; the disk may have refused it."""

    number: int
    has_failed: bool = False


@dataclass(frozen=True)
class Finished:
    """A version that was released is in storage, or was replaced by newer ones in memory."""

    version: Version


@dataclass(frozen=True)
class Flushed:
    number: int


@dataclass(frozen=True)
class Told:
    """Something that people should know, such as a full disk."""

    text: str
