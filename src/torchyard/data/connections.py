"""Open fsspec's file systems and share them between threads.

Owns: the protocols and the extra that each needs; the pool of connections that serve one thread at
a time.
Leaves: paths and files to remote.py, credentials to kinds.py.
Always: only one thread at a time uses a connection that can't be shared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from torchyard.base.errors import InvalidInput

# The extra of torchyard that each protocol needs; others need a package of another name.
EXTRAS = {
    "abfs": "azure", "abfss": "azure", "az": "azure", "wasb": "azure", "wasbs": "azure",
    "s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "sftp": "sftp", "ssh": "sftp", "smb": "smb",
}  # fmt: skip
# They read this machine's own disk or memory, or wrap another protocol.
REFUSED = (
    "file", "local", "memory", "dir", "zip", "tar", "libarchive", "cached", "blockcache",
    "filecache", "simplecache", "reference", "generic", "data", "git", "async_wrapper",
)  # fmt: skip
_SSH = ("sftp", "ssh")
# Their libraries may give one thread the response that another waits for, which then waits forever.
_ONE_THREAD = (*_SSH, "ftp")
# paramiko's own timeouts are too short for a busy server, and it has none for a silent connection.
_SSH_TIMEOUTS = {"timeout": 30.0, "banner_timeout": 60.0, "auth_timeout": 60.0}
_SSH_SILENCE_S = 120.0
_MOST_IDLE = 8
_IDLE_S = 30.0


def open_file_system(protocol: str, options: Mapping[str, Any]) -> Any:
    """A file system: the one that this thread has already, or a new one where none can be kept.

    Raises:
        InvalidInput: the protocol is unknown, or its package is missing.
    """
    import fsspec  # Here because most servers only use their own disk.

    if protocol in REFUSED:
        raise InvalidInput(
            f"`{protocol}://` would read the server's own disk",
            "upload the data, or make a datastore: `yard datastore create --help`",
        )
    try:
        if protocol in _SSH:
            return _with_read_timeout(
                fsspec.filesystem(protocol, **_SSH_TIMEOUTS, **_unshared(options))
            )
        if protocol in _ONE_THREAD:
            return fsspec.filesystem(protocol, **_unshared(options))
        return fsspec.filesystem(protocol, **options)
    except ImportError as error:
        extra = EXTRAS.get(protocol)
        package = f"torchyard[{extra}]" if extra else str(error)
        raise InvalidInput(
            f"`{protocol}://` needs a package that is not installed on the server",
            f"install it where the server runs: `pip install '{package}'`" if extra else package,
            code="extra_missing",
        ) from error
    except ValueError as error:
        raise InvalidInput(
            f"`{protocol}://` can't be used: {error}",
            "supported protocols: http, https, " + ", ".join(sorted(EXTRAS)),
        ) from error


@dataclass
class Connections:
    """A pool of idle connections by protocol and options; newest last."""

    _idle: dict[tuple[str, str], list[tuple[float, Any]]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @contextmanager
    def borrowed(self, protocol: str, options: Mapping[str, Any]) -> Iterator[Any]:
        """A file system for the block, with an empty cache of listings.

        Raises:
            InvalidInput: as `open_file_system`.
        """
        key = (protocol, repr(sorted(options.items())))
        shared = protocol not in _ONE_THREAD
        system = None if shared else self._take(key)
        system = system or open_file_system(protocol, options)
        system.invalidate_cache()
        if shared:
            yield system
            return
        try:
            yield system
        except (FileNotFoundError, PermissionError):
            self._put_back(key, system)
            raise
        except BaseException:
            # The rest of a response may still be in it.
            _close(system)
            raise
        self._put_back(key, system)

    def _take(self, key: tuple[str, str]) -> Any:
        oldest = time.monotonic() - _IDLE_S
        with self._lock:
            stale = [
                system for idle in self._idle.values() for since, system in idle if since < oldest
            ]
            for idle in self._idle.values():
                idle[:] = [entry for entry in idle if entry[0] >= oldest]
            connection = self._idle[key].pop()[1] if self._idle.get(key) else None
        for system in stale:
            _close(system)
        if connection is not None and not _is_open(connection):
            _close(connection)
            return self._take(key)
        return connection

    def _put_back(self, key: tuple[str, str], system: Any) -> None:
        with self._lock:
            idle = self._idle.setdefault(key, [])
            if len(idle) < _MOST_IDLE and _is_open(system):
                idle.append((time.monotonic(), system))
                return
        _close(system)


def _unshared(options: Mapping[str, Any]) -> dict[str, Any]:
    """Keep fsspec from caching the connection: it would hold one for each thread forever."""
    return {**options, "skip_instance_cache": True}


def _with_read_timeout(system: Any) -> Any:
    system.ftp.get_channel().settimeout(_SSH_SILENCE_S)
    return system


def _is_open(system: Any) -> bool:
    """Only SSH connections know this without a request; others are used once."""
    client = getattr(system, "client", None)
    transport = client.get_transport() if client is not None else None
    return bool(transport is not None and transport.is_active())


def _close(system: Any) -> None:
    for part in ("ftp", "client"):
        with suppress(Exception):
            getattr(system, part).close()
