"""Where copies of audit lines go, so that the server's own user can't take them back.

Owns: the forms of `--audit-sink`, sending, keeping what could not be sent for the next time.
Leaves: the lines to audit.py, checking a copy to shared/audit_chain.py.
Always: a sink never makes a request fail or wait longer than `LIMIT_S`; of lines that can't be sent
the newest `BACKLOG` are kept in memory.

Source: https://www.rfc-editor.org/rfc/rfc5424 (messages), https://www.rfc-editor.org/rfc/rfc6587
(octet counting over TCP), syslog(3) for the local socket.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from torchyard.base import addresses
from torchyard.base.errors import InvalidInput

LIMIT_S = 2.0
BACKLOG = 10_000
_RETRY_S = 5.0
# Facility authpriv, severity notice.
_PRIORITY = 10 * 8 + 5
_TAG = "torchyard-audit"
_FORMS = "`syslog:/dev/log`, `udp://HOST:PORT`, `tcp://HOST:PORT` or `pipe:/PATH`"
_log = logging.getLogger(__name__)


class Way(Protocol):
    """How one line gets to somebody else; it is opened by its first line."""

    def send(self, at: str, line: bytes) -> None: ...

    def close(self) -> None: ...


class Sink:
    """Sends lines in their order; for one thread at a time.

    Args:
        way: where to; `name` is what messages call it.

    Attributes:
        lost: lines that will never be sent, because too many waited.
    """

    def __init__(self, way: Way, name: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.lost = 0
        self._way = way
        self._now_s = now_s
        self._backlog: deque[tuple[str, bytes]] = deque(maxlen=BACKLOG)
        self._retry_at = float("-inf")

    @property
    def waiting(self) -> int:
        """How many lines could not be sent yet."""
        return len(self._backlog)

    def send(self, at: str, line: bytes) -> None:
        """
        Args:
            at: when the line was written, as its text says.
        """
        if len(self._backlog) == BACKLOG:
            self.lost += 1
        self._backlog.append((at, line))
        if self._now_s() >= self._retry_at:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._way.close()

    def _flush(self) -> None:
        try:
            while self._backlog:
                self._way.send(*self._backlog[0])
                self._backlog.popleft()
        except OSError as error:
            if self._retry_at == float("-inf"):
                _log.error("audit lines could not be sent to `%s` (%s)", self.name, error)
            self._retry_at = self._now_s() + _RETRY_S
            self._way.close()
            return
        if self._retry_at != float("-inf"):
            self._retry_at = float("-inf")
            _log.warning("audit lines are sent to `%s` again", self.name)


def sink_of(text: str) -> Sink | None:
    """The sink that the text names; None for none.

    Raises:
        InvalidInput: it is of no form that is known, or not a pipe.
    """
    if not text:
        return None
    kind, _, rest = text.partition(":")
    if kind == "syslog" and rest.startswith("/"):
        return Sink(_LocalSyslog(rest), text)
    if kind == "pipe" and rest.startswith("/"):
        _refuse_own(Path(rest))
        return Sink(_Pipe(Path(rest)), text)
    host, _, port = rest.removeprefix("//").rpartition(":")
    is_port = port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536
    if kind in ("udp", "tcp") and rest.startswith("//") and host and is_port:
        address = (host.strip("[]"), int(port))
        return Sink(_Udp(address) if kind == "udp" else _Tcp(address), text)
    raise InvalidInput(f"`{text[:200]}` is not a sink for the audit", f"write {_FORMS}")


def _refuse_own(path: Path) -> None:
    """
    Raises:
        InvalidInput: it is not a pipe, or the server's own, which proves nothing.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise InvalidInput(
            f"the audit's pipe `{path}` can't be used ({error.strerror})",
            f"make it as its reader: `mkfifo -m 0622 {path}`",
        ) from error
    if not stat.S_ISFIFO(status.st_mode):
        raise InvalidInput(
            f"`{path}` is not a pipe",
            "the server's user could change a file that it writes itself; write "
            f"{_FORMS}, each read by another user",
        )
    if status.st_uid == os.geteuid() and status.st_uid != 0:
        raise InvalidInput(
            f"the audit's pipe `{path}` belongs to the server's own user",
            "make it as the user who reads it: `mkfifo -m 0622`",
        )


class _LocalSyslog:
    """A datagram socket such as /dev/log, in the form of syslog(3)."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None

    def send(self, at: str, line: bytes) -> None:
        if self._socket is None:
            opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            opened.settimeout(LIMIT_S)
            try:
                opened.connect(self._path)
            except OSError:
                opened.close()
                raise
            self._socket = opened
        self._socket.send(f"<{_PRIORITY}>{_TAG}[{os.getpid()}]: ".encode() + line)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Udp:
    """One RFC 5424 message a datagram."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket: socket.socket | None = None

    def send(self, at: str, line: bytes) -> None:
        if self._socket is None:
            family, address = addresses.resolve(self._address, socket.SOCK_DGRAM, LIMIT_S)[0]
            opened = socket.socket(family, socket.SOCK_DGRAM)
            opened.settimeout(LIMIT_S)
            opened.connect(address)
            self._socket = opened
        self._socket.send(_message(at, line))

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Tcp:
    """RFC 5424 messages with their length in front."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket: socket.socket | None = None

    def send(self, at: str, line: bytes) -> None:
        if self._socket is None:
            self._socket = self._connected()
        elif _has_ended(self._socket):
            raise ConnectionResetError("the other end closed the connection")
        message = _message(at, line)
        self._socket.sendall(b"%d %b" % (len(message), message))

    def _connected(self) -> socket.socket:
        """To the first of the host's addresses that accepts."""
        *others, last = addresses.resolve(self._address, socket.SOCK_STREAM, LIMIT_S)
        for _, address in others:
            with suppress(OSError):
                return socket.create_connection(address[:2], LIMIT_S)
        return socket.create_connection(last[1][:2], LIMIT_S)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Pipe:
    """JSON lines into a named pipe, for a reader of another user."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def send(self, at: str, line: bytes) -> None:
        if self._file < 0:
            # Without a reader this fails at once.
            self._file = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        text = line + b"\n"
        while text:
            text = text[os.write(self._file, text) :]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _message(at: str, line: bytes) -> bytes:
    host = socket.gethostname() or "-"
    return f"<{_PRIORITY}>1 {at} {host} {_TAG} {os.getpid()} - - ".encode() + line


def _has_ended(opened: socket.socket) -> bool:
    """Whether the other end has closed: what is sent then would be lost without an error."""
    opened.setblocking(False)
    try:
        return opened.recv(1) == b""
    except BlockingIOError:
        return False
    finally:
        opened.settimeout(LIMIT_S)
