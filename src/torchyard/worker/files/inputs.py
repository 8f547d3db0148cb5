"""The inputs of a node, put where the ranks find them.

Owns: copies and mounts of inputs, what is done where mounts are forbidden.
Leaves: making the mounts to the ranks' launcher, file contents to blobs.py.
Always: a script can change a downloaded input and no read-only one, and never what other jobs
will get.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchyard.shared import disk
from torchyard.shared.failures import Failure
from torchyard.shared.plan import InputPlan
from torchyard.worker.files.blobs import Blobs, Placement, copy_file
from torchyard.worker.files.uploads import files_below
from torchyard.worker.system import mounts as mounts_of
from torchyard.worker.system.mounts import Mount

_READ_ONLY_MODES = ("ro_mount", "direct", "eval_mount")


@dataclass(frozen=True)
class Placed:
    """`values` are what the command gets for each input."""

    values: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()
    notices: tuple[str, ...] = ()


def place(
    inputs: Mapping[str, InputPlan],
    folder: Path,
    blobs: Blobs,
    bring: Callable[[str], Path] | None = None,
) -> Placed:
    """Put every input below `folder`.

    Args:
        bring: gives the source of an input by its name, where this node does not see the
            server's disk.

    Raises:
        Failure: one is missing, or is not what its type says.
    """
    values: dict[str, str] = {}
    wanted: dict[str, Mount] = {}
    sources: dict[str, Path] = {}
    for name, given in inputs.items():
        if given.kind == "literal":
            values[name] = given.value
            continue
        if given.source:
            sources[name] = Path(given.source) if bring is None else bring(plain_name(name))
        here = folder / plain_name(name)
        here.mkdir(exist_ok=True)
        read_only = given.mode in _READ_ONLY_MODES
        if not given.source:
            values[name] = _from_snapshot(name, given, here, blobs, read_only)
            if read_only:
                wanted[name] = Mount(str(here), str(here))
        elif read_only:
            wanted[name] = _mount_point(name, sources[name], here)
            values[name] = wanted[name].target
        else:
            values[name] = _copy(sources[name], here, read_only=False)
    mounts = tuple(wanted.values())
    why_not = mounts_of.why_not(mounts) if mounts else ""
    if not why_not:
        return Placed(values, mounts)
    for name in wanted:
        if name in sources:
            _copy(sources[name], folder / name, read_only=True)
    names = ", ".join(f"`{name}`" for name in wanted)
    notice = f"{names}: copies without write bits, because this machine allows no mounts: {why_not}"
    return Placed(values, (), (notice,))


def plain_name(name: str) -> str:
    """
    Raises:
        Failure: it is no name of a file.
    """
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise Failure("invalid_input", f"`{name}` can't be the name of an input or an output")
    return name


def _from_snapshot(name: str, given: InputPlan, here: Path, blobs: Blobs, read_only: bool) -> str:
    files = blobs.manifest(given.snapshot)
    # Write bits don't hold root back, so root never gets a link to the server's own blob.
    link = read_only and os.geteuid() != 0
    placements = []
    for file in files:
        mode = file.mode & 0o555 | 0o444 if read_only else file.mode | 0o600
        can_link = link and not file.mode & 0o111
        placements.append(Placement(file.sha256, here / file.path, mode, can_link))
    blobs.place(placements)
    if read_only:
        for current, _, _ in os.walk(here):
            os.chmod(current, 0o555)
    if given.kind != "uri_file" and (len(files) != 1 or given.kind in ("uri_folder", "mltable")):
        return str(here)
    if len(files) != 1:
        raise Failure(
            "invalid_input",
            f"input `{name}` is a uri_file but holds {len(files)} files",
            "name one file, or make it a uri_folder",
        )
    return str(here / files[0].path)


def _mount_point(name: str, source: Path, here: Path) -> Mount:
    """A folder is seen at the input's own folder, a file in it under its own name."""
    if source.is_dir():
        return Mount(str(source), str(here))
    if not source.is_file():
        raise _missing(name, source)
    target = here / source.name
    target.touch()
    return Mount(str(source), str(target))


def _copy(source: Path, here: Path, read_only: bool) -> str:
    """A copy of the node's own; an existing empty mount point is filled.

    Links are followed, as they are where the source is mounted; pipes and sockets are no data.
    """
    if source.is_file():
        target = here / source.name
        copy_file(source, target, 0o444 if read_only else 0o644)
        return str(target)
    if not source.is_dir():
        raise _missing(here.name, source)

    def unread(file: Path, error: OSError) -> None:
        raise _unreadable(here.name, file, error) from error

    # Empty ones, too.
    for current, _, _ in os.walk(source):
        (here / Path(current).relative_to(source)).mkdir(exist_ok=True)
    for file in files_below(source, unread):
        target = here / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            executable = os.stat(file).st_mode & 0o111
            copy_file(file, target, executable | (0o444 if read_only else 0o644))
        except OSError as error:
            if disk.is_to_blame(error):
                raise
            unread(file, error)
    if read_only:
        for current, _, _ in os.walk(here):
            os.chmod(current, 0o555)
    return str(here)


def _unreadable(name: str, file: Path, error: OSError) -> Failure:
    shown = os.fsencode(file).decode("utf-8", "replace")
    return Failure(
        "input_unreadable",
        f"input `{name}` can't be read: `{shown}`: {error.strerror}",
        "make it readable for the user that the server runs as",
    )


def _missing(name: str, source: Path) -> Failure:
    return Failure(
        "input_missing",
        f"input `{name}` is not at `{source}` any more",
        "submit the job again: that fetches what is missing",
    )
