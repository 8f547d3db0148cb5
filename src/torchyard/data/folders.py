"""Files in a folder of this machine's disk.

Owns: reading, writing and listing them; the folder as the server's own user opens it.
Leaves: which folders may be used to datastores.py, opening to shared/beneath.py, the folder as
another account opens it to account_folders.py.
Always: a link in the folder is never followed: it is left out of lists, and refused by name.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from torchyard.base import disk, files
from torchyard.base.errors import Forbidden, InvalidInput, NotFound
from torchyard.data.types import Entry
from torchyard.shared import beneath
from torchyard.shared.beneath import Found

LINK_REFUSED = "link_refused"
_GONE = (FileNotFoundError, NotADirectoryError)


class OpenFolder(Protocol):
    """A folder for the length of one task; the functions of `shared/beneath.py`, of one root."""

    def look(self, path: str) -> Found | None: ...

    def names(self, path: str) -> list[Found]: ...

    def open_file(self, path: str) -> int: ...

    def begin(self, path: str, draft: str, folder_mode: int, file_mode: int) -> int: ...

    def finish(self, path: str, draft: str) -> None: ...

    def discard(self, path: str, draft: str) -> None: ...

    def remove(self, path: str) -> None: ...


class Folder(Protocol):
    """A folder that somebody opens."""

    def opened(self, make: bool = False) -> AbstractContextManager[OpenFolder]:
        """Open it for a block.

        Args:
            make: the folder itself, if it is missing.

        Raises:
            OSError: as `beneath.open_root`.
        """
        ...

    def local(self, person: str) -> Path | None:
        """Its path, if a person's jobs may be led there."""
        ...


class ServerFolder:
    """A folder that the server's own user opens."""

    def __init__(self, folder: Path) -> None:
        # Links on the way to it are its owner's choice; none may come into the path later.
        self.real = folder.resolve()

    @contextmanager
    def opened(self, make: bool = False) -> Iterator[OpenFolder]:
        if make and not self.real.exists():
            self.real.mkdir(parents=True, exist_ok=True)
        root = beneath.open_root(str(self.real))
        try:
            yield _Opened(root)
        finally:
            os.close(root)

    def local(self, person: str) -> Path | None:
        return self.real


class _Opened:
    def __init__(self, root: int) -> None:
        self._root = root

    def look(self, path: str) -> Found | None:
        return beneath.look(self._root, path)

    def names(self, path: str) -> list[Found]:
        return beneath.names(self._root, path)

    def open_file(self, path: str) -> int:
        return beneath.open_file(self._root, path)

    def begin(self, path: str, draft: str, folder_mode: int, file_mode: int) -> int:
        return beneath.begin(self._root, path, draft, folder_mode, file_mode)

    def finish(self, path: str, draft: str) -> None:
        beneath.finish(self._root, path, draft)

    def discard(self, path: str, draft: str) -> None:
        beneath.discard(self._root, path, draft)

    def remove(self, path: str) -> None:
        beneath.remove(self._root, path)


@contextmanager
def linking(folder: Path) -> Iterator[Callable[[str, Path], Entry]]:
    """Give files further names in a folder of the server's own.

    What it yields has the file of a path of the server's own stand at a path in the folder, too.
    It raises OSError where it can't: on another disk, or on one without hard links.
    """
    real = ServerFolder(folder).real
    real.mkdir(parents=True, exist_ok=True)
    root = beneath.open_root(str(real))
    links = beneath.Links(root, os.stat(root).st_mode & 0o777)

    def link(path: str, source: Path) -> Entry:
        try:
            return _entry(links.add(path, str(source)), path)
        except beneath.LeadsOut as error:
            raise _link_refused(path) from error

    try:
        yield link
    finally:
        links.close()
        os.close(root)


class FolderFiles:
    """`Files` below one folder."""

    def __init__(self, folder: Folder | Path) -> None:
        self._folder = ServerFolder(folder) if isinstance(folder, Path) else folder

    def entry(self, path: str) -> Entry | None:
        found = self._look(path)
        return _entry(found, path) if found is not None and found.kind == beneath.FILE else None

    def is_folder(self, path: str) -> bool:
        found = self._look(path)
        return found is not None and found.kind == beneath.FOLDER

    def exists(self, path: str) -> bool:
        """Whether a file or a folder is there."""
        found = self._look(path)
        return found is not None and found.kind in (beneath.FILE, beneath.FOLDER)

    def walk(self, prefix: str, on_links: Callable[[int], None] | None = None) -> Iterator[Entry]:
        top = _clean(prefix)
        above = f"{top}/" if top else ""
        for item in self._ordered(above, "", False, on_links):
            assert not isinstance(item, str)
            yield _entry(item[1], item[0][len(above) :])

    def found(self, prefix: str) -> Iterator[tuple[str, Found]]:
        """The one file at `prefix` with its name, or every file below it with its path there."""
        single = self._look(prefix)
        if single is not None and single.kind == beneath.FILE:
            yield prefix.rpartition("/")[2], single
            return
        top = _clean(prefix)
        above = f"{top}/" if top else ""
        for item in self._ordered(above, "", False):
            assert not isinstance(item, str)
            yield item[0][len(above) :], item[1]

    def fetch(self, pairs: Sequence[tuple[str, Path]]) -> None:
        with self._opened("") as folder:
            for path, target in pairs:
                with _translated(path):
                    source = _opened(folder, path)
                with files.reading(source) as reader, open(target, "wb") as copy:
                    shutil.copyfileobj(reader, copy, 1 << 20)
                source.close()

    def ordered(self, prefix: str, after: str = "", fold: bool = False) -> Iterator[Entry | str]:
        """Every file whose path begins with `prefix` and sorts after `after`, by path.

        Folders are opened one after another, so the first of a million files costs little.

        Args:
            fold: yield a folder below the prefix, with a slash, in place of the files in it.
        """
        above = prefix.rpartition("/")[0]
        try:
            is_path = not above or files.safe_relative(above) == above
        except InvalidInput:
            is_path = False
        if not is_path:
            return  # no path begins so
        for item in self._ordered(prefix, after, fold):
            yield item if isinstance(item, str) else _entry(item[1], item[0])

    def open(self, path: str) -> files.OpenFile:
        """The file, open for reading.

        Raises:
            NotFound: there is none.
            InvalidInput: a part of the path is a link.
        """
        try:
            with self._opened(path) as folder:
                return _opened(folder, path)
        except _GONE as error:  # the folder itself
            raise _missing(path) from error

    @contextmanager
    def opener(self) -> Iterator[Callable[[str], files.OpenFile]]:
        """What opens one file after another as `open` does, and the folder itself only once."""
        try:
            with self._opened("") as folder:

                def open_next(path: str) -> files.OpenFile:
                    with _translated(path):
                        return _opened(folder, path)

                yield open_next
        except _GONE as error:
            raise _missing("") from error

    def read(self, path: str, start: int = 0, limit: int | None = None) -> Iterator[bytes]:
        file = files.reading(self.open(path))
        file.seek(start)
        return files.chunks(file, limit)

    def writing(self, path: str) -> AbstractContextManager[files.Writing]:
        return self._writing(files.safe_relative(path))

    @contextmanager
    def _writing(self, path: str) -> Iterator[files.Writing]:
        draft = files.draft_name(path.rpartition("/")[2])
        with disk.writing(self.local(path) or Path(path)):
            with self._making(path) as folder:
                top = folder.look("")
                # As readable as the datastore's folder, whose users may be others than the server.
                mode = top.mode if top is not None else 0o700
                descriptor = folder.begin(path, draft, mode & 0o777, mode & 0o666)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    yield files.Writing(file)
                with self._making(path) as folder:
                    folder.finish(path, draft)
            except BaseException:
                with suppress(OSError, InvalidInput), self._opened(path) as folder:
                    folder.discard(path, draft)
                raise

    @contextmanager
    def _making(self, path: str) -> Iterator[OpenFolder]:
        try:
            with _translated(path), self._folder.opened(make=True) as folder:
                yield folder
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise files.in_the_way(Path(path)) from error

    def delete(self, path: str) -> None:
        with suppress(*_GONE), self._opened(path) as folder:
            folder.remove(files.safe_relative(path))

    def local(self, path: str, person: str = "") -> Path | None:
        folder = self._folder.local(person)
        return None if folder is None else folder / _clean(path)

    def _look(self, path: str) -> Found | None:
        """What is there, which is no link."""
        try:
            with self._opened(path) as folder:
                found = folder.look(_clean(path))
        except _GONE:
            return None
        if found is not None and found.kind == beneath.LINK:
            raise _link_refused(path)
        return found

    @contextmanager
    def _opened(self, path: str) -> Iterator[OpenFolder]:
        with _translated(path), self._folder.opened() as folder:
            yield folder

    def _ordered(
        self, prefix: str, after: str, fold: bool, on_links: Callable[[int], None] | None = None
    ) -> Iterator[tuple[str, Found] | str]:
        """(path, file), or the path of a folder with a slash."""
        listing = _Listing(prefix, after, fold)
        # A prefix that leads through a link names it.
        above = prefix.rpartition("/")[0]
        if above and not self.is_folder(above):
            return
        with suppress(*_GONE), self._opened(above) as folder:
            yield from listing.items(folder, f"{above}/" if above else "")
        if on_links is not None and listing.links:
            on_links(listing.links)


class _Listing:
    """One pass over a folder. Keeps the folders that it is in on a stack, however deep they are."""

    def __init__(self, prefix: str, after: str, fold: bool) -> None:
        self._prefix, self._after, self._fold = prefix, after, fold
        self.links = 0

    def items(self, folder: OpenFolder, top: str) -> Iterator[tuple[str, Found] | str]:
        # Each level: what is left in it, last first; the folder that it is folded into, if any.
        stack = [(self._listed(folder, top), "")]
        while stack:
            level, folded = stack[-1]
            if not level:
                stack.pop()
                continue
            path, found = level.pop()
            if found.kind == beneath.FILE:
                if not path.startswith(self._prefix) or path <= self._after:
                    continue
                if not folded:
                    yield path, found
                    continue
                yield folded
                while stack[-1][1] == folded:  # one file is enough
                    stack.pop()
                continue
            if not path.startswith(self._prefix) and not self._prefix.startswith(path):
                continue
            if path <= self._after and not self._after.startswith(path):
                continue
            if self._fold and not folded and not self._prefix.startswith(path):
                folded = path
            stack.append((self._listed(folder, path), folded))

    def _listed(self, folder: OpenFolder, path: str) -> list[tuple[str, Found]]:
        """What is in a folder, whose path ends with a slash: complete files and, with a slash,
        folders; the last by path first.
        """
        listed = []
        for found in _names(folder, path.rstrip("/")):
            if found.kind == beneath.LINK:
                self.links += 1
            elif found.kind == beneath.FOLDER:
                listed.append((f"{path}{found.path}/", found))
            elif found.kind == beneath.FILE and not files.is_draft(found.path):
                listed.append((path + found.path, found))
        return sorted(listed, key=lambda item: item[0], reverse=True)


def _names(folder: OpenFolder, path: str) -> list[Found]:
    try:
        return folder.names(path)
    except beneath.LeadsOut:
        return []  # a link came in its place since
    except OSError as error:
        if error.errno in (errno.EACCES, errno.ENAMETOOLONG):
            return []  # as any walk leaves out what it can't enter
        raise


def _opened(folder: OpenFolder, path: str) -> files.OpenFile:
    """
    Raises:
        NotFound: there is no such file.
    """
    try:
        return files.OpenFile(path.rpartition("/")[2], folder.open_file(_clean(path)))
    except (*_GONE, beneath.NotRegular) as error:
        raise _missing(path) from error


def _missing(path: str) -> NotFound:
    return NotFound(f"`{path}` does not exist in its folder")


def _clean(path: str) -> str:
    """
    Raises:
        InvalidInput: it is no path below a folder.
    """
    clean = path.strip("/")
    return files.safe_relative(clean) if clean else ""


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except beneath.LeadsOut as error:
        raise _link_refused(path) from error
    except PermissionError as error:
        raise Forbidden(
            f"`{path}` can't be used: its folder does not let in who opens it",
            "let the Unix account in that the datastore names, or the server's",
            code="not_let_in",
        ) from error


def _link_refused(path: str) -> InvalidInput:
    return InvalidInput(
        f"`{path}` leads out of its folder: a part of it is a link",
        "use a path without links",
        code=LINK_REFUSED,
    )


def _entry(found: Found, path: str) -> Entry:
    modified_at = datetime.fromtimestamp(found.mtime_ns / 1e9, timezone.utc)
    return Entry(path, found.size_bytes, f"{found.mtime_ns}-{found.inode}", modified_at)
