"""Where copies of audit lines go, so that the server's own user can't take them back.

Owns: `--audit-sink`, sending to the machine's syslog, keeping what could not be sent for the next
time.
Leaves: the lines to audit.py, checking a copy to base/audit_chain.py; other machines, TLS and
queues on disk to the syslog.
Always: a sink never makes a request fail or wait longer than `LIMIT_S`; of lines that can't be sent
the newest `BACKLOG` are kept in memory.

Source: syslog(3) for the form of a line. Logging's own SysLogHandler waits without a limit where
the other end does not read.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable

from torchyard.base.errors import InvalidInput

LIMIT_S = 2.0
BACKLOG = 10_000
_RETRY_S = 5.0
# Facility authpriv, severity notice.
_PRIORITY = 10 * 8 + 5
_log = logging.getLogger(__name__)


class Sink:
    """Sends lines in their order; for one thread at a time.

    Args:
        path: a datagram socket such as /dev/log; it is opened by the first line.

    Attributes:
        lost: lines that will never be sent, because too many waited.
    """

    def __init__(self, path: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self.lost = 0
        self._path = path
        self._now_s = now_s
        self._socket: socket.socket | None = None
        self._backlog: deque[bytes] = deque(maxlen=BACKLOG)
        self._retry_at = float("-inf")

    @property
    def waiting(self) -> int:
        """How many lines could not be sent yet."""
        return len(self._backlog)

    def send(self, line: bytes) -> None:
        if len(self._backlog) == BACKLOG:
            self.lost += 1
        self._backlog.append(line)
        if self._now_s() >= self._retry_at:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._disconnect()

    def _flush(self) -> None:
        try:
            while self._backlog:
                self._connected().send(self._message(self._backlog[0]))
                self._backlog.popleft()
        except OSError as error:
            if self._retry_at == float("-inf"):
                _log.error("audit lines could not be sent to `%s` (%s)", self._path, error)
            self._retry_at = self._now_s() + _RETRY_S
            self._disconnect()
            return
        if self._retry_at != float("-inf"):
            self._retry_at = float("-inf")
            _log.warning("audit lines are sent to `%s` again", self._path)

    def _message(self, line: bytes) -> bytes:
        return f"<{_PRIORITY}>torchyard-audit[{os.getpid()}]: ".encode() + line

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.settimeout(LIMIT_S)
            self._socket.connect(self._path)
        return self._socket

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def sink_of(text: str) -> Sink | None:
    """The sink that the text names; None for none.

    Raises:
        InvalidInput: it is of no form that is known.
    """
    if not text:
        return None
    kind, _, path = text.partition(":")
    if kind == "syslog" and path.startswith("/"):
        return Sink(path)
    raise InvalidInput(
        f"`{text[:200]}` is not a sink for the audit",
        "write `syslog:/dev/log`; to send the lines on is the syslog's part",
    )
