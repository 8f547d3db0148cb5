"""Place the inputs of a job on a node.

Owns: copies and mounts of inputs, the fallback if mounts are not allowed.
Leaves: making the mounts to the ranks' launcher, file contents to blobs.py.
Always: a script can change a downloaded input but not a read-only one, and never what other jobs
get.
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
class PlacedInputs:
    """`values` replace the placeholders of the inputs in the command."""

    values: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()
    notices: tuple[str, ...] = ()


def place_inputs(
    inputs: Mapping[str, InputPlan],
    folder: Path,
    blobs: Blobs,
    fetch: Callable[[str], Path] | None = None,
    sees_disk: bool = False,
) -> PlacedInputs:
    """Place every input below `folder`.

    Args:
        fetch: downloads an input by its name, if this node can't access the server's disk.
        sees_disk: this node is the server's machine, as another user: what that one can read is not
            downloaded.

    Raises:
        Failure: an input is missing or does not match its type.
    """
    values: dict[str, str] = {}
    mounts_by_input: dict[str, Mount] = {}
    sources: dict[str, Path] = {}
    for name, input_plan in inputs.items():
        if input_plan.kind == "literal":
            values[name] = input_plan.value
            continue
        if input_plan.source:
            source = Path(input_plan.source)
            if fetch is not None and not (sees_disk and _is_readable(source)):
                source = fetch(checked_name(name))
            sources[name] = source
        target_folder = folder / checked_name(name)
        target_folder.mkdir(exist_ok=True)
        read_only = input_plan.mode in _READ_ONLY_MODES
        if not input_plan.source:
            values[name] = _place_snapshot(name, input_plan, target_folder, blobs, read_only)
            if read_only:
                mounts_by_input[name] = Mount(str(target_folder), str(target_folder))
        elif read_only:
            mounts_by_input[name] = _mount_input(name, sources[name], target_folder)
            values[name] = mounts_by_input[name].target
        else:
            values[name] = _copy_input(sources[name], target_folder, read_only=False)
    mounts = tuple(mounts_by_input.values())
    refusal = mounts_of.why_not(mounts) if mounts else ""
    if not refusal:
        return PlacedInputs(values, mounts)
    for name in mounts_by_input:
        if name in sources:
            _copy_input(sources[name], folder / name, read_only=True)
    names = ", ".join(f"`{name}`" for name in mounts_by_input)
    notice = f"{names}: copied without write permission, because mounts are not allowed: {refusal}"
    return PlacedInputs(values, (), (notice,))


def _is_readable(source: Path) -> bool:
    rights = os.R_OK | os.X_OK if source.is_dir() else os.R_OK
    return os.access(source, rights)


def checked_name(name: str) -> str:
    """Return `name` if it can be a file name.

    Raises:
        Failure: it can't.
    """
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise Failure("invalid_input", f"`{name}` can't be the name of an input or an output")
    return name


def _place_snapshot(
    name: str, input_plan: InputPlan, target_folder: Path, blobs: Blobs, read_only: bool
) -> str:
    files = blobs.manifest(input_plan.snapshot)
    # Root ignores write permissions, so root never gets a link to the server's own blob.
    link = read_only and os.geteuid() != 0
    placements = []
    for file in files:
        mode = file.mode & 0o555 | 0o444 if read_only else file.mode | 0o600
        can_link = link and not file.mode & 0o111
        placements.append(Placement(file.sha256, target_folder / file.path, mode, can_link))
    blobs.create_files(placements)
    if read_only:
        for parent, _, _ in os.walk(target_folder):
            os.chmod(parent, 0o555)
    if input_plan.kind != "uri_file" and (
        len(files) != 1 or input_plan.kind in ("uri_folder", "mltable")
    ):
        return str(target_folder)
    if len(files) != 1:
        raise Failure(
            "invalid_input",
            f"input `{name}` is a uri_file but holds {len(files)} files",
            "name a single file, or change its type to uri_folder",
        )
    return str(target_folder / files[0].path)


def _mount_input(name: str, source: Path, target_folder: Path) -> Mount:
    """Mount a folder at the input's folder, or a file inside of it under its own name."""
    if source.is_dir():
        return Mount(str(source), str(target_folder))
    if not source.is_file():
        raise _missing(name, source)
    target = target_folder / source.name
    target.touch()
    return Mount(str(source), str(target))


def _copy_input(source: Path, target_folder: Path, read_only: bool) -> str:
    """Copy the source for this node, possibly into an empty mount point.

    Links are followed, as in a mounted source; pipes and sockets are skipped.
    """
    if source.is_file():
        target = target_folder / source.name
        copy_file(source, target, 0o444 if read_only else 0o644)
        return str(target)
    if not source.is_dir():
        raise _missing(target_folder.name, source)

    def fail_unreadable(file: Path, error: OSError) -> None:
        raise _unreadable(target_folder.name, file, error) from error

    # Including empty folders.
    for parent, _, _ in os.walk(source):
        (target_folder / Path(parent).relative_to(source)).mkdir(exist_ok=True)
    for file in files_below(source, fail_unreadable):
        target = target_folder / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            executable = os.stat(file).st_mode & 0o111
            copy_file(file, target, executable | (0o444 if read_only else 0o644))
        except OSError as error:
            if disk.is_to_blame(error):
                raise
            fail_unreadable(file, error)
    if read_only:
        for parent, _, _ in os.walk(target_folder):
            os.chmod(parent, 0o555)
    return str(target_folder)


def _unreadable(name: str, file: Path, error: OSError) -> Failure:
    path = os.fsencode(file).decode("utf-8", "replace")
    return Failure(
        "input_unreadable",
        f"input `{name}` can't be read: `{path}`: {error.strerror}",
        "make it readable for the user that runs the server",
    )


def _missing(name: str, source: Path) -> Failure:
    return Failure(
        "input_missing",
        f"input `{name}` no longer exists at `{source}`",
        "submit the job again to fetch missing data",
    )
