"""The form of a backup: a folder, or the same in one tar file.

Owns: writing and reading files with their checksums, `about.json` first, `manifest.json` last.
Leaves: which files to actions.py.
Always: what is not whole has no manifest; nothing is unpacked outside its folder; every file that
is unpacked has the checksum it was packed with.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from torchyard.base.errors import Conflict, InvalidInput
from torchyard.base.files import inside, safe_relative
from torchyard.shared.archives import BoundedTarInfo

ABOUT = "about.json"
MANIFEST = "manifest.json"
FORMAT = 1
_CHUNK_BYTES = 1 << 20
_TAR_ENDS = (".tar", ".tar.gz", ".tgz")
# Names that promise another form; a folder of such a name would be taken for a file.
_OTHER_ENDS = frozenset({".zip", ".7z", ".gz", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".tzst"})


@dataclass(frozen=True)
class About:
    """What a backup is of; `schema` is the version of its records."""

    format: int
    torchyard: str
    schema: str
    made_at: str
    home: str


@dataclass(frozen=True)
class Entry:
    """One file of a backup; `mode` in octal digits."""

    path: str
    size_bytes: int
    sha256: str
    mode: str


@dataclass(frozen=True)
class Contents:
    """What a backup says of itself; `rows` are those of each table, None of one without counts."""

    about: About
    entries: list[Entry]
    rows: Mapping[str, int] | None


class Target(Protocol):
    """Where files go while a backup is made."""

    def add(self, path: str, file: IO[bytes], size_bytes: int, mode: int) -> str: ...
    def link(self, path: str, source: Path) -> bool: ...


class Writer:
    """A backup on its way; `entries` is what is in it so far, `rows` the count of each table."""

    def __init__(self, target: Target) -> None:
        self.rows: Mapping[str, int] = {}
        self._target = target
        self._whole: set[tuple[str, int]] = set()
        self.entries: list[Entry] = []

    def add(self, path: str, source: Path, known_sha256: str = "") -> None:
        """Put a file in, as long as it is now; one that has gone meanwhile is left out.

        Args:
            known_sha256: of a file that never changes, which may be linked in place of copied, and
                whose bytes are put in once, however many names it has.
        """
        try:
            file = open(source, "rb")
        except FileNotFoundError:
            return
        with file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return
            mode = stat.S_IMODE(status.st_mode)
            if (known_sha256, status.st_size) in self._whole:
                sha256 = known_sha256
            elif known_sha256 and self._target.link(path, source):
                sha256 = known_sha256
            else:
                sha256 = self._target.add(path, file, status.st_size, mode)
        if sha256 == known_sha256:
            self._whole.add((sha256, status.st_size))
        self.entries.append(Entry(path, status.st_size, sha256, f"{mode:04o}"))

    def add_json(self, path: str, body: Any) -> None:
        content = json.dumps(body, indent=1).encode()
        self._target.add(path, io.BytesIO(content), len(content), 0o644)


class _Tar:
    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar

    def add(self, path: str, file: IO[bytes], size_bytes: int, mode: int) -> str:
        member = tarfile.TarInfo(path)
        member.size, member.mode = size_bytes, mode
        reading = _Measured(file, size_bytes)
        self._tar.addfile(member, reading)  # type: ignore[arg-type]
        return reading.sha256

    def link(self, path: str, source: Path) -> bool:
        return False


class _Folder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, path: str, file: IO[bytes], size_bytes: int, mode: int) -> str:
        reading = _Measured(file, size_bytes)
        with open(self._prepare_path(path), "wb") as into:
            while chunk := reading.read(_CHUNK_BYTES):
                into.write(chunk)
            os.fchmod(into.fileno(), mode)
        return reading.sha256

    def link(self, path: str, source: Path) -> bool:
        """One file with two names, where the disk is the same; it has to be read otherwise."""
        try:
            os.link(source, self._prepare_path(path))
        except OSError:
            return False
        return True

    def _prepare_path(self, path: str) -> Path:
        target = self._folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


class _Measured:
    """Exactly so many bytes of a file, whether it grows or is cut meanwhile, with their hash."""

    def __init__(self, file: IO[bytes], size_bytes: int) -> None:
        self._file = file
        self._left = size_bytes
        self._hash = hashlib.sha256()

    def read(self, size_bytes: int) -> bytes:
        size = min(size_bytes, self._left)
        chunk = self._file.read(size)
        chunk += bytes(size - len(chunk) if not chunk else 0)
        self._left -= len(chunk)
        self._hash.update(chunk)
        return chunk

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


@contextmanager
def writing(target: Path, about: About, scratch: Path) -> Iterator[Writer]:
    """A new backup, which stands at `target` once the block has ended well, and not before.

    Args:
        scratch: where it is written, on the same disk.

    Raises:
        Conflict: there is something already.
        InvalidInput: its name promises another form.
    """
    if target.suffix in _OTHER_ENDS and not target.name.endswith(_TAR_ENDS):
        raise InvalidInput(
            f"a backup can't be a `{target.suffix}` file",
            "let its name end with `.tar` or `.tar.gz`, or with neither for a folder",
        )
    if target.is_dir() and not any(target.iterdir()):
        target.rmdir()
    if target.exists():
        raise Conflict(f"`{target}` exists already", "name a new file or folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = scratch / f"{target.name}.part"
    try:
        if target.name.endswith(_TAR_ENDS):
            form = "w|" if target.name.endswith(".tar") else "w|gz"
            with open(unfinished, "xb") as file:
                os.fchmod(file.fileno(), 0o600)
                with tarfile.open(fileobj=file, mode=form) as tar:  # type: ignore[call-overload]
                    yield from _written(Writer(_Tar(tar)), about)
                file.flush()
                os.fsync(file.fileno())
        else:
            unfinished.mkdir(mode=0o700)
            yield from _written(Writer(_Folder(unfinished)), about)
        os.rename(unfinished, target)
    except BaseException:
        remove(unfinished)
        raise


def _written(writer: Writer, about: About) -> Iterator[Writer]:
    writer.add_json(ABOUT, asdict(about))
    yield writer
    files = [asdict(entry) for entry in writer.entries]
    writer.add_json(MANIFEST, {"files": files, "rows": dict(writer.rows)})


def unpack(source: Path, folder: Path, accept: Callable[[About], None]) -> Contents:
    """Bring a backup's files into an empty folder; every one is checked.

    Args:
        accept: raises what speaks against this backup, before anything is unpacked.

    Raises:
        InvalidInput: it is not a backup, is incomplete, or a file has changed.
    """
    files = _in_folder(source) if source.is_dir() else _in_tar(source)
    unpacked: dict[str, str] = {}
    contents: Contents | None = None
    try:
        for path, file in files:
            if not unpacked and path == ABOUT:
                about = _about(source, file.read())
                accept(about)
                unpacked[ABOUT] = ""
            elif not unpacked:
                break
            elif path == MANIFEST:
                contents = _contents(source, about, file.read())
            else:
                unpacked[path] = _unpack_one(file, inside(folder, path))
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise InvalidInput(
                f"`{source}` can't be unpacked: {error.strerror} (`{error.filename or folder}`)",
                "see whether there is space, and who may read and write there",
            ) from error
        raise broken(source, "it is cut off or damaged") from error
    if not unpacked:
        raise InvalidInput(
            f"`{source}` is not a torchyard backup", "name what `yard server backup` wrote"
        )
    if contents is None:
        raise broken(source, "it is cut off")
    paths = {sha256: path for path, sha256 in unpacked.items()}
    for entry in contents.entries:
        if entry.path not in unpacked and entry.sha256 in paths:
            _name_again(source, inside(folder, paths[entry.sha256]), inside(folder, entry.path))
            unpacked[entry.path] = entry.sha256
        if entry.path not in unpacked:
            raise broken(source, f"`{entry.path}` is missing")
        if unpacked[entry.path] != entry.sha256:
            raise broken(source, f"`{entry.path}` is not what was backed up")
        os.chmod(folder / entry.path, int(entry.mode, 8))
    for path in unpacked.keys() - {entry.path for entry in contents.entries} - {ABOUT}:
        raise broken(source, f"`{path}` does not belong to it")
    return contents


def _unpack_one(file: IO[bytes], target: Path) -> str:
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with open(target, "xb") as into:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            into.write(chunk)
    return digest.hexdigest()


def _name_again(source: Path, file: Path, target: Path) -> None:
    """A further name of a file that is unpacked."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file, target)
        except OSError:  # a file system without hard links
            shutil.copyfile(file, target)
    except OSError as error:
        raise broken(source, f"`{target.name}` can't be made: {error.strerror}") from error


def _in_folder(source: Path) -> Iterator[tuple[str, IO[bytes]]]:
    last = [MANIFEST] if (source / MANIFEST).exists() else []
    paths = sorted(
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and not path.is_symlink()
    )
    first = [ABOUT] if ABOUT in paths else []
    for path in [*first, *(name for name in paths if name not in (ABOUT, MANIFEST)), *last]:
        with open(source / path, "rb") as file:
            yield path, file


def _in_tar(source: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if not source.exists():
        raise InvalidInput(f"`{source}` does not exist", "name a file or folder")
    with tarfile.open(source, "r|*", tarinfo=BoundedTarInfo) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isreg() else None
            if file is None:
                raise broken(source, f"`{member.name}` is not a file")
            with file:
                yield safe_relative(member.name), file


def _about(source: Path, content: bytes) -> About:
    try:
        about = About(**json.loads(content))
    except (ValueError, TypeError) as error:
        raise broken(source, f"its `{ABOUT}` can't be read") from error
    if about.format != FORMAT:
        raise InvalidInput(
            f"`{source}` was written by torchyard {about.torchyard}, in a format this "
            "version does not support",
            "restore it with that version",
        )
    return about


def _contents(source: Path, about: About, content: bytes) -> Contents:
    try:
        manifest = json.loads(content)
        rows = manifest.get("rows")
        return Contents(about, [Entry(**entry) for entry in manifest["files"]], rows)
    except (AttributeError, ValueError, TypeError, KeyError) as error:
        raise broken(source, f"its `{MANIFEST}` can't be read") from error


def broken(source: Path, reason: str) -> InvalidInput:
    """The error of a backup that can't be trusted."""
    return InvalidInput(
        f"the backup `{source}` is not whole: {reason}",
        "nothing was restored; use another backup",
        code="broken_backup",
    )


def remove(path: Path) -> None:
    """Delete a file or a folder, which may not be there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
