"""Files behind an fsspec file system.

Owns: paths, complete files, translating a file system's errors.
Leaves: connections to connections.py, credentials to kinds.py, folders to datastores.py.
Always: a file appears complete or not at all; fsspec's own caches are never trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from torchyard.base import files
from torchyard.base.errors import Forbidden, NotFound, TorchyardError, Unreachable
from torchyard.data import sftp_files
from torchyard.data.connections import Connections, open_file_system
from torchyard.data.types import Entry
from torchyard.shared import secret_values
from torchyard.shared.masking import Masker

# Readers see half-written files there, so a file gets a temporary name until it is complete.
_NOT_ATOMIC = ("sftp", "ssh", "smb", "ftp")
_SFTP = ("sftp", "ssh")
_NOT_SECRET = (
    "account_name", "account_host", "endpoint_url", "region_name", "host", "username", "type",
    "client_id", "tenant_id", "key_filename", "project_id", "client_email", "token_uri", "auth_uri",
)  # fmt: skip
_CONNECTIONS = Connections()
_TIMES = ("LastModified", "last_modified", "updated", "mtime", "last_write_time")
_MARKS = ("ETag", "etag", "md5Hash", "LastModified", "last_modified", "mtime", "last_write_time")


class RemoteFiles:
    """`Files` below one path of a file system; `name` is its name in errors."""

    def __init__(self, name: str, protocol: str, options: Mapping[str, Any], root: str) -> None:
        self._name = name
        self._protocol = protocol
        self._options = options
        self._root = root.rstrip("/")
        self._masker: Masker | None = None

    def check(self) -> None:
        """
        Raises:
            InvalidInput: the package that implements the protocol is missing.
        """
        import fsspec

        try:
            fsspec.get_filesystem_class(self._protocol)
        except (ImportError, ValueError):
            open_file_system(self._protocol, {})

    def entry(self, path: str) -> Entry | None:
        with self._system(path) as system:
            try:
                info = system.info(self._at(path))
            except FileNotFoundError:
                return None
        return _entry(info, path) if info.get("type") == "file" else None

    def is_folder(self, path: str) -> bool:
        with self._system(path) as system:
            return bool(system.isdir(self._at(path)))

    def walk(self, prefix: str) -> Iterator[Entry]:
        top = self._at(prefix)
        with self._system(prefix) as system:
            infos = system.find(top, detail=True)
        start = len(top.lstrip("/")) + 1
        drafts = self._protocol in _NOT_ATOMIC
        entries = []
        for name, info in infos.items():
            path = name.lstrip("/")[start:]
            is_file = path and not path.endswith("/") and info.get("type", "file") == "file"
            if is_file and not (drafts and files.is_draft(path.rpartition("/")[2])):
                entries.append(_entry(info, path))
        return iter(sorted(entries, key=lambda entry: entry.path))

    def fetch(self, pairs: Sequence[tuple[str, Path]]) -> None:
        with self._system(pairs[0][0] if pairs else "") as system:
            sources = [self._at(path) for path, _ in pairs]
            system.get(sources, [str(target) for _, target in pairs])

    def read(self, path: str, start: int = 0, limit: int | None = None) -> Iterator[bytes]:
        chunks = self._chunks(path, start, limit)
        next(chunks)  # Opens the file, so that errors are raised before the first chunk.
        return chunks

    def _chunks(self, path: str, start: int, limit: int | None) -> Iterator[bytes]:
        with self._system(path) as system:
            if self._protocol in _SFTP:
                size = int(system.info(self._at(path))["size"])
                with closing(system.open(self._at(path), "rb")) as file:
                    yield b""
                    end = size if limit is None else min(size, start + limit)
                    yield from sftp_files.chunks(file, start, end)
                return
            with closing(system.open(self._at(path), "rb", block_size=4 << 20)) as file:
                file.seek(start)
                yield b""
                yield from files.chunks(file, limit)

    @contextmanager
    def writing(self, path: str) -> Iterator[files.Writing]:
        target = draft = self._at(files.safe_relative(path))
        if self._protocol in _NOT_ATOMIC:
            folder, _, name = target.rpartition("/")
            draft = f"{folder}/{files.draft_name(name)}"
        with ExitStack() as stack:
            with self._translated(path):
                system = stack.enter_context(_CONNECTIONS.borrowed(self._protocol, self._options))
                if draft != target:
                    _make_folder(system, folder)
                if self._protocol in _SFTP:
                    file = sftp_files.Pipelined(system.open(draft, "wb"))
                else:
                    file = system.open(draft, "wb", block_size=8 << 20)
            try:
                yield _Writing(file, lambda: self._translated(path))
                with self._translated(path):
                    file.close()
                    if draft != target:
                        self._put_in_place(system, draft, target)
            except BaseException:
                _discard(file)
                if draft != target:
                    self._remove_draft(file, draft)
                raise

    def _put_in_place(self, system: Any, draft: str, target: str) -> None:
        if self._protocol not in _SFTP:  # SFTP's rename replaces the target.
            with suppress(FileNotFoundError):
                system.rm_file(target)
        system.mv(draft, target)

    def _remove_draft(self, file: Any, draft: str) -> None:
        """On another connection: the writer's may be broken."""
        with suppress(Exception):
            file.close()
        with suppress(Exception), self._system(draft) as system:
            system.rm_file(draft)

    def delete(self, path: str) -> None:
        with self._system(path) as system, suppress(FileNotFoundError):
            system.rm(self._at(path), recursive=True)

    def local(self, path: str, person: str = "") -> Path | None:
        return None

    @contextmanager
    def _system(self, path: str) -> Iterator[Any]:
        """The file system, for a block whose errors are about `path`."""
        with self._translated(path), _CONNECTIONS.borrowed(self._protocol, self._options) as system:
            yield system

    def _at(self, path: str) -> str:
        clean = path.strip("/")
        return f"{self._root}/{clean}" if clean else self._root

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        """Turn whatever a file system's library raises into a `TorchyardError`."""
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
            message = self._masked(str(error).strip()).partition("\n")[0] or type(error).__name__
            raise Unreachable(
                f"{self._name} can't be used: {message}",
                "check the datastore's address and credentials, and that the server reaches it",
            ) from error

    def _masked(self, message: str) -> str:
        """A library's message, which may hold the whole URL or connection string."""
        if self._masker is None:
            self._masker = Masker(secret_values.written(secrets_of(self._options)))
        return self._masker.text(message)


def secrets_of(options: Mapping[str, Any]) -> dict[str, int]:
    """The secret values among fsspec's options, with the length of the shortest masked part."""
    return {part: 8 for value in _texts(options) for part in _secret_parts(value)}


def _texts(options: Mapping[str, Any]) -> Iterator[str]:
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from _texts(value)
        elif isinstance(value, str) and key not in _NOT_SECRET:
            yield value


def _secret_parts(value: str) -> Iterator[str]:
    """A connection string or a signature may appear in parts, too."""
    yield value
    for part in value.replace(";", "&").split("&"):
        name, _, rest = part.partition("=")
        if name.lower().lstrip("?") in ("accountkey", "sharedaccesssignature", "sig") and rest:
            yield rest


class _Writing(files.Writing):
    """Translates errors of the file system, but not those of its user."""

    def __init__(self, file: Any, errors: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__(file)
        self._errors = errors

    def write(self, chunk: bytes) -> None:
        with self._errors():
            super().write(chunk)


def _entry(info: Mapping[str, Any], path: str) -> Entry:
    mark = next((str(info[key]) for key in _MARKS if info.get(key)), "")
    return Entry(path, int(info.get("size") or 0), mark.strip('"'), _modified_at(info))


def _modified_at(info: Mapping[str, Any]) -> datetime | None:
    """Each file system has its own key and format for it."""
    for key in _TIMES:
        time = info.get(key)
        if isinstance(time, str):
            with suppress(ValueError):
                time = datetime.fromisoformat(time.replace("Z", "+00:00"))
        if isinstance(time, (int, float)) and time > 0:
            return datetime.fromtimestamp(time, timezone.utc)
        if isinstance(time, datetime):
            return time if time.tzinfo else time.replace(tzinfo=timezone.utc)
    return None


def _make_folder(system: Any, folder: str) -> None:
    """Make it and its parents, while others may be making them at the same time."""
    for _ in folder.split("/"):
        try:
            system.makedirs(folder, exist_ok=True)
        except (PermissionError, TimeoutError):
            raise
        except OSError:
            continue
        return
    system.makedirs(folder, exist_ok=True)


def _discard(file: Any) -> None:
    """Discard a file whose writing failed."""
    with suppress(Exception):
        file.discard()
    # fsspec's buffered files write their buffer when they are garbage-collected.
    with suppress(Exception):
        file.closed = True
