"""The files of a built environment, for nodes that don't see the server's disk.

Owns: the list of an environment's files and of its Python's, the bytes of them all from any offset.
Leaves: writing them on the node to worker/files/node_environment.py, who may ask to jobs/http/.
Always: equal folders give equal lists and equal bytes; the bytes are read from the folder itself,
and never copied on the server's disk; a list is made once for each build.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.base import files
from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.shared import index_sets, locks
from torchyard.shared.environment_mark import mark_of

ENVIRONMENT, PYTHON = "environment", "python"
PARTS = (ENVIRONMENT, PYTHON)
_BLOCK_BYTES = 1 << 20
_NOT_NEEDED = frozenset(
    ("site-packages", "dist-packages", "test", "idlelib", "tkinter", "turtledemo", "ensurepip")
)


@dataclass(frozen=True)
class FileList:
    """`content` is the list as it is sent, JSON in gzip; `sha256` is its name."""

    root: Path
    content: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def file_list(
    folder: Path, part: str, lists: Path, is_ready: Callable[[], bool] = lambda: True
) -> FileList:
    """The list of an environment, or of the Python that it needs.

    Args:
        folder: the built environment.
        lists: a folder of the server's own, where lists are kept.
        is_ready: whether an environment has all that it is going to have.

    Raises:
        NotFound: it is not there, or needs no Python of its own.
        ServerBusy: it is not ready, or another request makes the list.
    """
    mark = mark_of(folder)
    if not mark:
        raise NotFound(f"environment `{folder.name[:12]}` is not built on this server")
    lists.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = lists / f"{folder.name}.{part}"
    busy = ServerBusy(
        f"the files of environment `{folder.name[:12]}` are not listed yet", "it goes on by itself"
    )
    with locks.held_if_free(lists / f"{file.name}.lock") as is_held:
        if not is_held:
            raise busy
        written = _read(file, mark)
        if written is None:
            if part == ENVIRONMENT and not is_ready():
                raise busy
            body = _python(folder) if part == PYTHON else _environment(folder)
            written = gzip.compress(json.dumps(body).encode(), 6, mtime=0)
            with files.write_atomically(file, mode=0o600) as writing:
                writing.write(mark.encode() + b"\n" + written)
    root = _program(folder).parent.parent if part == PYTHON else folder
    return FileList(root, written)


def read_from(file_list: FileList, offset: int, only: str = "") -> Iterator[bytes]:
    """The bytes of all files, one after the other in the order of the list, from `offset` on.

    Ends early where a file has changed since: its receiver asks again.

    Args:
        only: which files, as an index set; without it, all.

    Raises:
        InvalidInput: `only` is not one of this list.
    """
    entries = json.loads(gzip.decompress(file_list.content))["files"]
    if only:
        try:
            chosen = index_sets.decode(only, len(entries))
        except ValueError as error:
            raise InvalidInput(f"`only` does not name files of the list: {error}") from error
        entries = [entry for index, entry in enumerate(entries) if index in chosen]
    return _joined(_blocks(str(file_list.root), entries, offset))


def _joined(blocks: Iterator[bytes]) -> Iterator[bytes]:
    pending = bytearray()  # each block costs the server the same, however small
    for block in blocks:
        if not pending and len(block) >= _BLOCK_BYTES:
            yield block
            continue
        pending += block
        if len(pending) >= _BLOCK_BYTES:
            yield bytes(pending)
            pending.clear()
    if pending:
        yield bytes(pending)


def _blocks(root: str, entries: Collection[Any], offset: int) -> Iterator[bytes]:
    for path, _, size, *_ in entries:
        if offset >= size:
            offset -= size
            continue
        with open(os.path.join(root, path), "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size != size:
                return
            file.seek(offset)
            left, offset = size - offset, 0
            while left:
                block = file.read(min(left, _BLOCK_BYTES))
                if not block:
                    return
                left -= len(block)
                yield block


def _read(file: Path, mark: str) -> bytes | None:
    try:
        written = file.read_bytes()
    except FileNotFoundError:
        return None
    first, _, content = written.partition(b"\n")
    return content if first.decode("ascii", "replace") == mark else None


def _environment(folder: Path) -> dict[str, Any]:
    body = _listed(folder, [folder])
    program = _program(folder)
    is_inside = program.is_relative_to(folder.resolve())
    return {
        **body,
        "path": str(folder),
        # Packages of conda have the folder's path in their files.
        "keeps_path": (folder / "conda-meta").is_dir(),
        "python": {} if is_inside else _described(program),
    }


def _program(folder: Path) -> Path:
    return (folder / "bin" / "python").resolve()


def _described(program: Path) -> dict[str, Any]:
    return {"program": str(program), "sha256": _sha256(program)}


def _python(folder: Path) -> dict[str, Any]:
    """What runs of a Python that is not the environment's own: program, library, headers."""
    program = _program(folder)
    if program.is_relative_to(folder.resolve()):
        raise NotFound(f"environment `{folder.name[:12]}` has its Python in itself")
    prefix = program.parent.parent
    version = _version(folder)
    library = prefix / "lib" / f"python{version}"
    if not (library / "os.py").exists():
        raise Conflict(
            f"the Python of environment `{folder.name[:12]}` has no library beside `{program}`",
            "use a Python of python.org, uv, pyenv or Debian for environments of other machines",
            code="python_not_carried",
        )
    parts = [program, library, *sorted((prefix / "lib").glob(f"libpython{version}*.so*"))]
    headers = [folder for folder in (prefix / "include").glob(f"python{version}*")]
    name = str(program.relative_to(prefix))
    return {**_listed(prefix, [*parts, *headers]), "program": name, "prefix": str(prefix)}


def _version(folder: Path) -> str:
    packages = next((folder / "lib").glob("python3*/site-packages"))
    return packages.parent.name.removeprefix("python")


def _listed(root: Path, parts: list[Path]) -> dict[str, Any]:
    """Folders as [path, mode], links as [path, target], files as [path, mode, size, mtime_ns,
    sha256]; paths below `root`, in order.
    """
    folders: list[list[Any]] = []
    links: list[list[Any]] = []
    contents: list[list[Any]] = []
    for file in sorted(_walk(root, parts)):
        path = str(file.relative_to(root))
        stat = file.lstat()
        if file.is_symlink():
            links.append([path, os.readlink(file)])
        elif file.is_dir():
            folders.append([path, stat.st_mode & 0o777])
        elif file.is_file():
            contents.append(
                [path, stat.st_mode & 0o777, stat.st_size, stat.st_mtime_ns, _sha256(file)]
            )
    size = sum(entry[2] for entry in contents)
    return {"format": 1, "size_bytes": size, "folders": folders, "links": links, "files": contents}


def _walk(root: Path, parts: list[Path]) -> Iterator[Path]:
    for part in parts:
        if part != root:
            yield part
        if not part.is_dir() or part.is_symlink():
            continue
        for parent, names, others in os.walk(part):
            if part != root:
                names[:] = [name for name in names if name not in _NOT_NEEDED]
            for name in (*names, *others):
                yield Path(parent, name)


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as opened:
        while block := opened.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
