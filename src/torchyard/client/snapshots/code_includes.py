"""Put `additional_includes` beside a job's code.

Owns: which files an include brings and under which path; clashes between them; the list in
`<component file's stem>.additional_includes`.
Leaves: the code itself to job_files.py, which files of a folder count to walk.py.
Always: an include stands at the root of the snapshot under its own name; no file takes the place
of another.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from torchyard.base.errors import InvalidSpec
from torchyard.client.snapshots import snapshot, walk
from torchyard.client.snapshots.local_paths import (
    At,
    Places,
    existing,
    is_elsewhere,
    local_path,
    located,
    read_text,
    shown,
)
from torchyard.client.snapshots.walk import Found, LeftOut, Limits

KEY = "additional_includes"


@dataclass(frozen=True)
class Include:
    """The files of one include: their paths in the snapshot, and where each is."""

    text: str
    at: At
    entries: list[Found]
    places: dict[str, str]


def find(entry: Any, folder: Path, at: At, limits: Limits, left_out: LeftOut | None) -> Include:
    """
    Args:
        entry: one of the list, of a file in `folder`.
        left_out: what is added to.

    Raises:
        InvalidSpec: it is not a file or folder on this machine.
        TorchyardError: it can't be part of a snapshot.
    """
    if not isinstance(entry, str) or not entry.strip() or is_elsewhere(entry):
        kind = entry.get("type") if isinstance(entry, dict) else entry
        raise InvalidSpec(
            f"the include `{kind}` is not a path on this machine",
            "fetch it first, and name the file or folder",
            at=at,
        )
    _refuse_zipped(entry, local_path(entry, folder), at)
    place = Path(os.path.abspath(existing(entry, folder, at)))
    if not place.is_dir():
        with located(at):
            entries = snapshot.find(place, limits)
        return Include(entry, at, entries, {place.name: str(place)})
    if not place.name:
        raise InvalidSpec(f"the include `{entry}` has no name", "name a folder in it", at=at)
    excluded: LeftOut | None = None if left_out is None else {}
    with located(at):
        inner = snapshot.find(place, limits, ignore=True, left_out=excluded)
    if left_out is not None:
        for path, rule in (excluded or {}).items():
            left_out[f"{place.name}/{path}"] = f"{place.name}/{rule}"
    return Include(
        entry,
        at,
        [(f"{place.name}/{entry[0]}", *entry[1:]) for entry in inner],
        {f"{place.name}/{path}": os.path.join(place, path) for path, *_ in inner},
    )


def _refuse_zipped(text: str, place: Path, at: At) -> None:
    if place.suffix.lower() != ".zip" or os.path.exists(place):
        return
    if os.path.isdir(place.with_suffix("")):
        raise InvalidSpec(
            f"the include `{text}` means a folder to be zipped, which is not supported",
            f"name the folder, `{text[: -len('.zip')]}`",
            at=at,
        )


def combined(
    code: str, folder: Path, entries: list[Found], includes: Sequence[Include], limits: Limits
) -> tuple[list[Found], dict[str, str]]:
    """The files of the code and its includes, sorted, and where those of the includes are.

    Args:
        code: what messages call it.

    Raises:
        InvalidSpec: two of them have files at one path.
        LimitExceeded: together they are too much.
    """
    if not includes:
        return entries, {}
    owners = {path: code for path, *_ in entries}
    folders = {parent: code for path in owners for parent in _parents(path)}
    everything = list(entries)
    places: dict[str, str] = {}
    for include in includes:
        for path, *_ in include.entries:
            taken = [each for each in (path, *_parents(path)) if each in owners][:1]
            owner = owners[taken[0]] if taken else folders.get(path)
            if owner is not None:
                raise InvalidSpec(
                    f"`{owner}` and the include `{include.text}` both bring "
                    f"`{taken[0] if taken else path}`",
                    "rename one of them; each include is in the code folder under its own name",
                    at=include.at,
                )
        owners |= {path: include.text for path, *_ in include.entries}
        folders |= {
            parent: include.text for path, *_ in include.entries for parent in _parents(path)
        }
        everything += include.entries
        places |= include.places
    everything.sort()
    walk.check_limits(folder, everything, limits)
    return everything, places


def _parents(path: str) -> list[str]:
    return [str(parent) for parent in PurePosixPath(path).parents][:-1]


def add_listed(component: dict[str, Any], file: Path, at: At, positions: Places) -> None:
    """Add what the old form lists: a file beside the component's, one path a line.

    Args:
        file: the component's, which stands at `at`.
        positions: gets the position of each path.

    Raises:
        InvalidSpec: the list can't be read.
    """
    listing = file.with_suffix(f".{KEY}")
    written = component.get(KEY) or []
    if not os.path.exists(listing) or not isinstance(written, list):
        return
    here = (*at, KEY)
    paths = [*written]
    for number, line in enumerate(read_text(listing, here).splitlines(), 1):
        if line.strip():
            positions[(*here, len(paths))] = f"{shown(listing)}:{number}:1"
            paths.append(line.strip())
    component[KEY] = paths
