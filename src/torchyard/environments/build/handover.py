"""Take over what strangers' code built, as files of this process's user.

Owns: copying the tree without following a link, what may be in it.
Leaves: building it to build_program.py, moving it into place to builder.py.
Always: a copy shares no file with what was built, so that nobody who still has one open changes it;
no link in it leads out, but a Python's own to a program of root's that everybody may run; nothing
is setuid, setgid or a device.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from torchyard.base.errors import BuildFailed
from torchyard.shared import descriptors

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_ENTRIES = 2_000_000
_DEEPEST = 100
_MOST_LINKS = 40


def copy(source: Path, target: Path) -> None:
    """Copy the tree at `source`, which others own, to the new folder `target`.

    Raises:
        BuildFailed: something in it can't be taken over.
    """
    folder = os.open(source, _FOLDER)
    try:
        _Copy().folder(folder, target, "", 0)
    finally:
        os.close(folder)
    # Not before: what a link means depends on the links that it goes through.
    _check_links(target)


class _Copy:
    """One copy in progress; counts what it meets."""

    def __init__(self) -> None:
        self._left = _MOST_ENTRIES

    def folder(self, folder: int, target: Path, shown: str, depth: int) -> None:
        if depth > _DEEPEST:
            raise _refused(shown, "is too deep")
        target.mkdir()
        for name in sorted(os.listdir(folder)):
            self._left -= 1
            if self._left < 0:
                raise _refused(shown or ".", f"has more than {_MOST_ENTRIES:,} files")
            self._entry(folder, name, target / name, f"{shown}/{name}" if shown else name, depth)
        target.chmod(0o755)

    def _entry(self, above: int, name: str, target: Path, shown: str, depth: int) -> None:
        mode = os.stat(name, dir_fd=above, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            target.symlink_to(os.readlink(name, dir_fd=above))
        elif stat.S_ISDIR(mode):
            folder = os.open(name, _FOLDER, dir_fd=above)
            try:
                self.folder(folder, target, shown, depth + 1)
            finally:
                os.close(folder)
        elif stat.S_ISREG(mode):
            _copy_file(above, name, target, shown)
        else:
            raise _refused(shown, "is neither a file, a folder nor a link")


def _copy_file(above: int, name: str, target: Path, shown: str) -> None:
    source = os.open(name, _FILE, dir_fd=above)
    try:
        status = os.fstat(source)
        if not stat.S_ISREG(status.st_mode):
            raise _refused(shown, "was replaced while it was copied")
        mode = 0o755 if status.st_mode & 0o111 else 0o644
        made = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            descriptors.copy_all(source, made)
            # Compiled modules are good for sources of that very second.
            os.utime(made, ns=(status.st_mtime_ns, status.st_mtime_ns))
            os.fchmod(made, mode)
        finally:
            os.close(made)
    finally:
        os.close(source)


def _check_links(top: Path) -> None:
    real_top = top.resolve()
    for current, folders, names in os.walk(real_top):
        for name in (*folders, *names):
            path = Path(current, name)
            if not path.is_symlink():
                continue
            shown = path.relative_to(real_top).as_posix()
            try:
                end = path.resolve()
            except (OSError, RuntimeError) as error:
                raise _refused(shown, "is a link in a circle") from error
            # A way that leads out and in again is changed out there.
            outside = [step for step in _steps(path, shown) if not step.is_relative_to(real_top)]
            if not outside:
                continue
            if not (Path(current).name == "bin" and name.startswith("python")):
                raise _refused(shown, f"is a link to `{os.readlink(path)}`, which is elsewhere")
            if end.is_relative_to(real_top) or not all(map(_is_trusted, outside)):
                raise _refused(shown, f"is a link to a Python that others can change, `{end}`")
            # Else it would give a file away that only this user can read.
            if not end.is_file() or end.stat().st_mode & 0o005 != 0o005:
                raise _refused(shown, f"is a link to `{end}`, which jobs can't run")


def _steps(link: Path, shown: str) -> list[Path]:
    """Each file, folder and link that the way of a link goes through, up to its end."""
    here, steps, links = link.parent, [], 0
    parts = [link.name]
    while parts:
        part = parts.pop()
        here = here.parent if part == ".." else here / part
        steps.append(here)
        if here.is_symlink():
            links += 1
            if links > _MOST_LINKS:
                raise _refused(shown, "goes through too many links")
            target = Path(os.readlink(here))
            parts += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            here = Path("/") if target.is_absolute() else here.parent
    return steps


def _is_trusted(program: Path) -> bool:
    """Whether root or this user alone can change the file, or put another in its place."""
    for path in (program, *program.parents):
        try:
            status = path.lstat()
        except OSError:
            return False
        # A link has no rights of its own.
        sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        is_open = status.st_mode & 0o022 and not sticky and not stat.S_ISLNK(status.st_mode)
        if status.st_uid not in (0, os.geteuid()) or is_open:
            return False
    return True


def _refused(path: str, fault: str) -> BuildFailed:
    return BuildFailed(
        f"the build left `{path}`, which {fault}",
        "a package that it builds from source does that: use another one, or another version",
        code="build_refused",
    )
