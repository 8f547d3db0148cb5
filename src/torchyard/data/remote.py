"""Files behind an fsspec file system.

Owns: opening a file system, its errors in our words, which extra brings which protocol.
Leaves: credentials to kinds.py, what is kept where to datastores.py.
Always: a file appears whole or not at all; fsspec's own caches are never trusted.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from torchyard.base import files
from torchyard.base.errors import Forbidden, InvalidInput, NotFound, TorchyardError, Unreachable
from torchyard.data.types import Entry
from torchyard.worker import secret_values
from torchyard.worker.masking import Masker

# Which of our extras brings a protocol; what is not here needs a package of another name.
EXTRAS = {
    "abfs": "azure", "abfss": "azure", "az": "azure", "wasb": "azure", "wasbs": "azure",
    "s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "sftp": "sftp", "ssh": "sftp", "smb": "smb",
}  # fmt: skip
# They read this machine's own disk or memory, or wrap another protocol.
REFUSED = (
    "file", "local", "memory", "dir", "zip", "tar", "libarchive", "cached", "blockcache",
    "filecache", "simplecache", "reference", "generic", "data", "git", "async_wrapper",
)  # fmt: skip
# A file that is half written is seen by readers there, so it gets another name until it is whole.
_NOT_ATOMIC = ("sftp", "ssh", "smb", "ftp")
_NOT_SECRET = (
    "account_name", "account_host", "endpoint_url", "region_name", "host", "username", "type",
    "client_id", "tenant_id", "key_filename", "project_id", "client_email", "token_uri", "auth_uri",
)  # fmt: skip
_TIMES = ("LastModified", "last_modified", "updated", "mtime", "last_write_time")
_MARKS = ("ETag", "etag", "md5Hash", "LastModified", "last_modified", "mtime", "last_write_time")


def open_file_system(protocol: str, options: Mapping[str, Any]) -> Any:
    """
    Raises:
        InvalidInput: the protocol is not known, or its package is missing.
    """
    import fsspec  # Here because most servers only use their own disk.

    if protocol in REFUSED:
        raise InvalidInput(
            f"`{protocol}://` would read the server's own disk",
            "upload the data, or make a datastore: `yard datastore create --help`",
        )
    try:
        return fsspec.filesystem(protocol, **options)
    except ImportError as error:
        extra = EXTRAS.get(protocol)
        package = f"torchyard[{extra}]" if extra else str(error)
        raise InvalidInput(
            f"`{protocol}://` needs a package that the server lacks",
            f"install it where the server runs: `pip install '{package}'`" if extra else package,
            code="extra_missing",
        ) from error
    except ValueError as error:
        raise InvalidInput(
            f"`{protocol}://` can't be used: {error}",
            "known ones: http, https, " + ", ".join(sorted(EXTRAS)),
        ) from error


class RemoteFiles:
    """`Files` below one path of a file system; `name` is what errors call it."""

    def __init__(self, name: str, protocol: str, options: Mapping[str, Any], root: str) -> None:
        self._name = name
        self._protocol = protocol
        self._options = options
        self._root = root.rstrip("/")
        self._masker: Masker | None = None

    def check(self) -> None:
        """
        Raises:
            InvalidInput: the package that brings the protocol is missing.
        """
        import fsspec

        try:
            fsspec.get_filesystem_class(self._protocol)
        except (ImportError, ValueError):
            open_file_system(self._protocol, {})

    def entry(self, path: str) -> Entry | None:
        with self._told(path):
            system = self._system()
            try:
                info = system.info(self._at(path))
            except FileNotFoundError:
                return None
        return _entry(info, path) if info.get("type") == "file" else None

    def is_folder(self, path: str) -> bool:
        with self._told(path):
            return bool(self._system().isdir(self._at(path)))

    def walk(self, prefix: str) -> Iterator[Entry]:
        top = self._at(prefix)
        with self._told(prefix):
            found = self._system().find(top, detail=True)
        start = len(top.lstrip("/")) + 1
        entries = []
        for name, info in found.items():
            path = name.lstrip("/")[start:]
            if path and not path.endswith("/") and info.get("type", "file") == "file":
                entries.append(_entry(info, path))
        return iter(sorted(entries, key=lambda entry: entry.path))

    def fetch(self, wanted: Sequence[tuple[str, Path]]) -> None:
        with self._told(wanted[0][0] if wanted else ""):
            sources = [self._at(path) for path, _ in wanted]
            self._system().get(sources, [str(target) for _, target in wanted])

    def read(self, path: str, start: int = 0, most: int | None = None) -> Iterator[bytes]:
        with self._told(path):
            file = self._system().open(self._at(path), "rb", block_size=4 << 20)
            file.seek(start)
        return self._chunks(path, file, most)

    def _chunks(self, path: str, file: Any, most: int | None) -> Iterator[bytes]:
        chunks = files.chunks(file, most)
        while True:
            with self._told(path):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk

    @contextmanager
    def writing(self, path: str) -> Iterator[files.Writing]:
        target = self._at(files.safe_relative(path))
        draft = target
        if self._protocol in _NOT_ATOMIC:
            folder, _, name = target.rpartition("/")
            draft = f"{folder}/.{name[:100]}.{secrets.token_hex(6)}.part"
        with self._told(path):
            system = self._system()
            if draft != target:
                system.makedirs(draft.rpartition("/")[0], exist_ok=True)
            file = system.open(draft, "wb", block_size=8 << 20)
        try:
            yield _Writing(file, lambda: self._told(path))
            with self._told(path):
                file.close()
                if draft != target:
                    with suppress(FileNotFoundError):
                        system.rm_file(target)
                    system.mv(draft, target)
        except BaseException:
            _discard(system, file, draft, target)
            raise

    def delete(self, path: str) -> None:
        with self._told(path), suppress(FileNotFoundError):
            self._system().rm(self._at(path), recursive=True)

    def local(self, path: str) -> Path | None:
        return None

    def _system(self) -> Any:
        system = open_file_system(self._protocol, self._options)
        system.invalidate_cache()
        return system

    def _at(self, path: str) -> str:
        clean = path.strip("/")
        return f"{self._root}/{clean}" if clean else self._root

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        """Whatever a file system's own library raises, in our words."""
        try:
            yield
        except TorchyardError:
            raise
        except FileNotFoundError as error:
            raise NotFound(f"`{path}` does not exist in {self._name}") from error
        except PermissionError as error:
            raise Forbidden(
                f"{self._name} refuses `{path}`: {self._masked(str(error))}",
                "check the datastore's credentials",
            ) from error
        except Exception as error:
            said = self._masked(str(error).strip()).partition("\n")[0] or type(error).__name__
            raise Unreachable(
                f"{self._name} can't be used: {said}",
                "check the datastore's address and credentials, and that the server reaches it",
            ) from error

    def _masked(self, said: str) -> str:
        """A library's words, which may hold the whole URL or connection string."""
        if self._masker is None:
            self._masker = Masker(secret_values.written(secrets_of(self._options)))
        return self._masker.text(said)


def secrets_of(options: Mapping[str, Any]) -> dict[str, int]:
    """The secret values among what fsspec gets, and how short a part of each is still masked."""
    return {part: 8 for value in _texts(options) for part in _secret_parts(value)}


def _texts(options: Mapping[str, Any]) -> Iterator[str]:
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from _texts(value)
        elif isinstance(value, str) and key not in _NOT_SECRET:
            yield value


def _secret_parts(value: str) -> Iterator[str]:
    """A connection string or a signature is told in parts too."""
    yield value
    for part in value.replace(";", "&").split("&"):
        name, _, rest = part.partition("=")
        if name.lower().lstrip("?") in ("accountkey", "sharedaccesssignature", "sig") and rest:
            yield rest


class _Writing(files.Writing):
    """Its errors are told in our words; those of the one who writes are not touched."""

    def __init__(self, file: Any, told: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__(file)
        self._told = told

    def write(self, chunk: bytes) -> None:
        with self._told():
            super().write(chunk)


def _entry(info: Mapping[str, Any], path: str) -> Entry:
    mark = next((str(info[key]) for key in _MARKS if info.get(key)), "")
    return Entry(path, int(info.get("size") or 0), mark.strip('"'), _modified_at(info))


def _modified_at(info: Mapping[str, Any]) -> datetime | None:
    """Each file system has a word and a form of its own for it."""
    for key in _TIMES:
        found = info.get(key)
        if isinstance(found, str):
            with suppress(ValueError):
                found = datetime.fromisoformat(found.replace("Z", "+00:00"))
        if isinstance(found, (int, float)) and found > 0:
            return datetime.fromtimestamp(found, timezone.utc)
        if isinstance(found, datetime):
            return found if found.tzinfo else found.replace(tzinfo=timezone.utc)
    return None


def _discard(system: Any, file: Any, draft: str, target: str) -> None:
    """Leave nothing of a file whose writing broke off."""
    with suppress(Exception):
        file.discard()
    # fsspec's buffered files commit what they hold when they are collected.
    with suppress(Exception):
        file.closed = True
    if draft != target:
        with suppress(Exception):
            file.close()
        with suppress(Exception):
            system.rm_file(draft)
