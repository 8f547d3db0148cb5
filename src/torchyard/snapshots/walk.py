"""Find the files of a folder that belong to a snapshot.

Owns: what may be in a snapshot: links that stay inside, names in UTF-8, plain files; the limits.
Leaves: contents to snapshot.py, ignore rules to ignore_rules.py.
Always: nothing is left out silently but what a rule excludes; files come sorted by path.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from torchyard.base.errors import InvalidInput, LimitExceeded
from torchyard.snapshots.ignore_rules import IgnoreRules


@dataclass(frozen=True)
class Limits:
    """How much one snapshot may hold; None where there is no limit."""

    files: int | None = None
    size_bytes: int | None = None


CODE_LIMITS = Limits(files=2000, size_bytes=300 * 1024 * 1024)


class Found(NamedTuple):
    """One file: `path` from the folder with slashes, `place` to open it, and what tells changes."""

    path: str
    place: str
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    mode: str


def walk(folder: Path, rules: IgnoreRules | None, limits: Limits) -> list[Found]:
    """Every file of `folder`, sorted by path; `rules` None takes all of them.

    Raises:
        InvalidInput: a link leads out, a name is not UTF-8, something is neither file nor folder.
        LimitExceeded: too many files or bytes; names the largest.
    """
    found: list[Found] = []
    top = os.path.realpath(folder)
    _collect(str(folder), "", [top], top, rules, found)
    found.sort()
    _check_limits(folder, found, limits)
    return found


def single(file: Path) -> list[Found]:
    """A snapshot's worth of one file, under its own name."""
    name = _checked_name(file.name, str(file))
    return [_found(name, str(file), os.stat(file))]


def _collect(
    folder: str,
    prefix: str,
    parents: list[str],
    top: str,
    rules: IgnoreRules | None,
    found: list[Found],
) -> None:
    """`parents` are the real folders from the top to `folder`: a link to one is a circle."""
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise _unreadable(folder, error) from error
    for entry in entries:
        name = entry.name
        path = prefix + name
        is_link = entry.is_symlink()
        is_folder = entry.is_dir()
        if rules is not None and rules.excludes(path, name, is_folder and not is_link):
            continue
        if not name.isascii() or "\\" in name:
            _checked_name(name, path)
        target = _link_target(entry, path, top, parents) if is_link else ""
        if is_folder:
            real = target or os.path.join(parents[-1], name)
            _collect(entry.path, path + "/", [*parents, real], top, rules, found)
            continue
        try:
            found.append(_found(path, entry.path, entry.stat()))
        except OSError as error:
            raise _unreadable(entry.path, error) from error


def _found(path: str, place: str, status: os.stat_result) -> Found:
    mode = status.st_mode
    if not stat.S_ISREG(mode):
        raise InvalidInput(
            f"`{path}` is neither a file nor a folder",
            "move it away, or name it in `.amlignore`",
        )
    return Found(
        path,
        place,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        "0755" if mode & 0o100 else "0644",
    )


def _checked_name(name: str, path: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise InvalidInput(
            f"the file name `{shown}` is not UTF-8", "rename it, or name it in `.amlignore`"
        ) from None
    if "\\" in name and os.sep == "/":
        raise InvalidInput(
            f"the file name `{path}` holds a backslash", "rename it, or name it in `.amlignore`"
        )
    return name


def _link_target(entry: os.DirEntry[str], path: str, top: str, parents: list[str]) -> str:
    target = os.path.realpath(entry.path)
    if not os.path.exists(target):
        raise InvalidInput(
            f"the link `{path}` points to nothing", "remove it, or name it in `.amlignore`"
        )
    if target != top and not target.startswith(top + os.sep):
        raise InvalidInput(
            f"the link `{path}` points out of the folder, to `{target}`",
            "copy what it points to into the folder, or name the link in `.amlignore`",
        )
    if target in parents:
        raise InvalidInput(
            f"the link `{path}` points to a folder that holds it",
            "remove it, or name it in `.amlignore`",
        )
    return target


def _unreadable(path: str, error: OSError) -> InvalidInput:
    shown = os.fsencode(path).decode("utf-8", "backslashreplace")
    return InvalidInput(
        f"`{shown}` can't be read ({error.strerror or error})",
        "make it readable, or name it in `.amlignore`",
    )


def _check_limits(folder: Path, found: list[Found], limits: Limits) -> None:
    size_bytes = sum(file.size_bytes for file in found)
    too_many = limits.files is not None and len(found) > limits.files
    too_large = limits.size_bytes is not None and size_bytes > limits.size_bytes
    if not too_many and not too_large:
        return
    largest = sorted(found, key=lambda file: file.size_bytes, reverse=True)[:10]
    listed = "\n".join(f"  {megabytes(file.size_bytes):>10}  {file.path}" for file in largest)
    wanted = []
    if too_large:
        assert limits.size_bytes is not None
        wanted.append(f"{megabytes(size_bytes)} of {megabytes(limits.size_bytes)} allowed")
    if too_many:
        wanted.append(f"{len(found)} files of {limits.files} allowed")
    raise LimitExceeded(
        f"total snapshot size exceeds the limit: `{folder}` holds {' and '.join(wanted)}; "
        f"its largest files are\n{listed}",
        "name what the job does not need in `.amlignore`, give data as an input, or raise "
        "TORCHYARD_SNAPSHOT_MAX_FILES or TORCHYARD_SNAPSHOT_MAX_MB",
    )


def megabytes(size_bytes: int) -> str:
    """A size for people."""
    size = float(size_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError
