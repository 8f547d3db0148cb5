"""Find the files of a folder that belong to a snapshot.

Owns: what may be in a snapshot: links that stay inside, names in UTF-8, plain files; the limits.
Leaves: contents to snapshot.py, ignore rules to ignore_rules.py.
Always: nothing is left out silently but what a rule excludes, and a server's home that lies in the
folder: it holds tokens, and changes all the time; files come sorted by path.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from torchyard.base.errors import InvalidInput, LimitExceeded
from torchyard.client.snapshots.ignore_rules import NO_RULE, IgnoreRules
from torchyard.shared.sizes import size_text


@dataclass(frozen=True)
class Limits:
    """How much one snapshot may hold; None where there is no limit."""

    files: int | None = None
    size_bytes: int | None = None


# What every home of a server that has ever run contains.
_HOME_FILES = ("served.lock", "server.id")

_MOST_LEFT_OUT = 1000

CODE_LIMITS = Limits(files=2000, size_bytes=300 * 1024 * 1024)


Found = tuple[str, int, int, int, int, int]
"""One file: path from the folder with slashes, size in bytes, mtime and ctime in nanoseconds,
inode, and 1 when it may be executed. A plain tuple: a folder of 10,000 files makes as many."""


LeftOut = dict[str, str]
"""Python files and folders (`pkg/`) with some that a rule excludes, each with the rule's
`.amlignore:<line>`."""


def walk(
    folder: Path, rules: IgnoreRules | None, limits: Limits, left_out: LeftOut | None = None
) -> list[Found]:
    """Every file of `folder`, sorted by path; `rules` None takes all of them.

    Args:
        left_out: what is added to.

    Raises:
        InvalidInput: a link leads out, a name is not UTF-8, something is neither file nor folder,
            or lies too deep.
        LimitExceeded: too many files or bytes; names the largest.
    """
    entries: list[Found] = []
    top = os.path.realpath(folder)
    try:
        _collect(_Walk(rules, entries, left_out), str(folder), _Location("", "", [top]))
    except RecursionError:
        raise InvalidInput(
            f"`{folder}` holds folders in folders, more than can be followed",
            "name the outermost of them in `.amlignore`",
        ) from None
    entries.sort()
    check_limits(folder, entries, limits)
    return entries


def single(file: Path) -> list[Found]:
    """A snapshot's worth of one file, under its own name."""
    return [_found(_checked_name(file.name, str(file)), os.stat(file))]


@dataclass(frozen=True)
class _Walk:
    rules: IgnoreRules | None
    visited: list[Found]
    left_out: LeftOut | None


@dataclass(frozen=True)
class _Location:
    """A folder: what its files' paths begin with, where it really is, which rule decides on it.

    `parents` are the real folders from the top to it: a link to one is a circle.
    """

    prefix: str
    real_prefix: str
    parents: list[str]
    around: int = NO_RULE

    def inner(self, name: str, deciding: int) -> _Location:
        parents = [*self.parents, os.path.join(self.parents[-1], name)]
        return _Location(f"{self.prefix}{name}/", f"{self.real_prefix}{name}/", parents, deciding)


def _collect(walk: _Walk, folder: str, location: _Location) -> None:
    rules, visited, around = walk.rules, walk.visited, location.around
    prefix, real_prefix = location.prefix, location.real_prefix
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise _unreadable(folder, error) from error
    names = [entry.name for entry in entries]
    if prefix and all(name in names for name in _HOME_FILES):
        return
    is_spared = rules is None or (not rules.excludes(around) and rules.spares(names))
    ruled = None if is_spared else rules
    all_names = "".join(names)
    plain_names = all_names.isascii() and "\\" not in all_names
    for entry in entries:
        name = entry.name
        path = prefix + name
        try:
            # Nearly all entries are plain files: this branch is what a large folder costs.
            if entry.is_file(follow_symlinks=False):
                if ruled is not None:
                    deciding = ruled.deciding(real_prefix + name, name, False, around)
                    if ruled.excludes(deciding):
                        if _may_be_missed(name):
                            _leave_out(walk, path, deciding)
                        continue
                if not plain_names:
                    _checked_name(name, path)
                status = entry.stat(follow_symlinks=False)
                times = (status.st_mtime_ns, status.st_ctime_ns)
                executable = status.st_mode >> 6 & 1
                visited.append((path, status.st_size, *times, status.st_ino, executable))
                continue
            is_link = entry.is_symlink()
            is_folder = not is_link and entry.is_dir()
            if is_link and rules is not None:
                behind = _behind(entry, location, rules)
                if behind is not None:
                    if not rules.excludes(behind.around) or rules.may_include_below(behind.around):
                        _checked_name(name, path)
                        _collect(walk, entry.path, behind)
                    continue
            deciding = around
            if ruled is not None:
                deciding = ruled.deciding(real_prefix + name, name, is_folder, around)
            if ruled is not None and ruled.excludes(deciding):
                if is_folder:
                    _pass_by(walk, ruled, entry.path, location.inner(name, deciding))
                continue
            _checked_name(name, path)
            inner = location.inner(name, deciding)
            if is_link:
                target = _link_target(entry, path, location.parents)
                inner = replace(inner, parents=[*location.parents, target])
            if entry.is_dir():
                _collect(walk, entry.path, inner)
            else:
                visited.append(_found(path, entry.stat()))
        except OSError as error:
            raise _unreadable(entry.path, error) from error


def _pass_by(walk: _Walk, rules: IgnoreRules, folder: str, location: _Location) -> None:
    """Look into an excluded folder for what a later rule includes again, if it can be read."""
    if walk.left_out is None and not rules.may_include_below(location.around):
        return
    try:
        names = os.listdir(folder)
    except OSError:
        return
    if any(map(_may_be_missed, names)) and _may_be_missed(location.prefix[:-1].rpartition("/")[2]):
        _leave_out(walk, location.prefix, location.around)
    if rules.may_include_below(location.around):
        _collect(walk, folder, location)


def _may_be_missed(name: str) -> bool:
    """Whether a script may read it or import it: not what tools leave behind."""
    return not name.startswith((".", "__pycache__")) and not name.endswith((".pyc", ".log"))


def _leave_out(walk: _Walk, path: str, deciding: int) -> None:
    line = walk.rules.line_of(deciding) if walk.rules is not None else ""
    if line and walk.left_out is not None and len(walk.left_out) < _MOST_LEFT_OUT:
        walk.left_out[path] = line


def _behind(entry: os.DirEntry[str], location: _Location, rules: IgnoreRules) -> _Location | None:
    """The folder that a link leads to, judged by where it is; None for what is not one, lies
    elsewhere or holds the link.
    """
    target = os.path.realpath(entry.path)
    top = location.parents[0]
    if not os.path.isdir(target) or target in location.parents or not _is_below(target, top):
        return None
    real = os.path.relpath(target, top).replace(os.sep, "/")
    deciding = rules.deciding_on_folder(real)
    prefix = f"{location.prefix}{entry.name}/"
    return _Location(prefix, f"{real}/", [*location.parents, target], deciding)


def _found(path: str, status: os.stat_result) -> Found:
    mode = status.st_mode
    if not stat.S_ISREG(mode):
        raise InvalidInput(
            f"`{path}` is neither a file nor a folder",
            "move it away, or name it in `.amlignore`",
        )
    return (
        path,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        mode >> 6 & 1,
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


def _link_target(entry: os.DirEntry[str], path: str, parents: list[str]) -> str:
    top = parents[0]
    target = os.path.realpath(entry.path)
    if not os.path.exists(target):
        raise InvalidInput(
            f"the link `{path}` points to nothing", "remove it, or name it in `.amlignore`"
        )
    if target != top and not _is_below(target, top):
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


def _is_below(path: str, top: str) -> bool:
    return path.startswith(top + os.sep)


def _unreadable(path: str, error: OSError) -> InvalidInput:
    shown = os.fsencode(path).decode("utf-8", "backslashreplace")
    return InvalidInput(
        f"`{shown}` can't be read ({error.strerror or error})",
        "make it readable, or name it in `.amlignore`",
    )


def check_limits(folder: Path, entries: list[Found], limits: Limits) -> None:
    if limits == Limits():
        return
    size_bytes = sum([file[1] for file in entries])
    too_many = limits.files is not None and len(entries) > limits.files
    too_large = limits.size_bytes is not None and size_bytes > limits.size_bytes
    if not too_many and not too_large:
        return
    largest = sorted(entries, key=lambda file: file[1], reverse=True)[:10]
    listed = "\n".join(f"  {size_text(size):>10}  {path}" for path, size, *_ in largest)
    excesses = []
    if too_large:
        assert limits.size_bytes is not None
        excesses.append(f"{size_text(size_bytes)} of {size_text(limits.size_bytes)} allowed")
    if too_many:
        excesses.append(f"{len(entries)} files of {limits.files} allowed")
    raise LimitExceeded(
        f"total snapshot size exceeds the limit: `{folder}` holds {' and '.join(excesses)}; "
        f"its largest files are\n{listed}",
        "name what the job does not need in `.amlignore`, give data as an input, or raise "
        "TORCHYARD_SNAPSHOT_MAX_FILES or TORCHYARD_SNAPSHOT_MAX_MB",
    )
