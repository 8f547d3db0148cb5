"""A process that writes for this one, and is replaced when it ends too early.

Owns: starting it, the thread that listens to it, how often another one is started.
Leaves: what is said over the socket, and what waits to be written, to its owner.
Always: it outlives what ends its rank, and ignores the signals that end jobs; nothing of torch is
imported here.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

_MAX_RESTARTS = 3
# It ignores what ends jobs from its first moment on: the imports of its module may take seconds.
# Everything is durable when `main` returns: taking torch's modules apart would only keep the
# memory, the lock and a processor from those who resume.
_PROGRAM = (
    "import importlib, os, signal, sys; "
    "[signal.signal(number, signal.SIG_IGN) for number in "
    "(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]; "
    "sys.path[:0] = sys.argv[3:]; "
    "importlib.import_module(sys.argv[1]).main(int(sys.argv[2])); "
    "sys.stdout.flush(); sys.stderr.flush(); os._exit(0)"
)
_LOG = logging.getLogger("torchyard.train")


class Owner(Protocol):
    """Who has something written. But for `receive`, all is called with the lock held."""

    def launch(self, descriptor: int) -> subprocess.Popen[bytes]:
        """Start the process, which gets the socket.

        Raises:
            RuntimeError, OSError: there is none.
        """

    def receive(self, connection: socket.socket) -> None:
        """Take what the process says until it has ended."""

    def is_waiting(self) -> bool:
        """Whether something is left to write."""

    def hand_over(self) -> None:
        """Send again all that is left to write."""

    def give_up(self, reason: str) -> None:
        """Nobody will write what is left."""


class WritingProcess:
    """Its methods are called with the lock held.

    Args:
        name: what it writes, for warnings.
    """

    def __init__(
        self, owner: Owner, lock: threading.Condition, name: str, kind: socket.SocketKind
    ) -> None:
        self._owner = owner
        self._lock = lock
        self._name = name
        self._kind = kind
        self._restarts = 0
        self.connection: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """
        Raises:
            RuntimeError, OSError: see `Owner.launch`.
        """
        connection, other_end = socket.socketpair(socket.AF_UNIX, self._kind)
        with other_end:
            try:
                self.process = self._owner.launch(other_end.fileno())
            except BaseException:
                connection.close()
                raise
        self.connection = connection
        threading.Thread(
            target=self._listen,
            args=(connection, self.process),
            name=f"writes-{self._name}",
            daemon=True,
        ).start()

    def worked(self) -> None:
        """It has written something, so that it may be replaced as often as before."""
        self._restarts = 0

    def detach(self) -> tuple[socket.socket | None, subprocess.Popen[bytes] | None]:
        """It is to end, and is not replaced; the caller closes the socket and waits for it."""
        connection, self.connection = self.connection, None
        process, self.process = self.process, None
        return connection, process

    def _listen(self, connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
        with connection, contextlib.suppress(ConnectionError):
            self._owner.receive(connection)
        code = process.wait()
        with self._lock:
            if self.connection is not connection:
                return
            self.connection = None
            if self._owner.is_waiting():
                self._replace(code)

    def _replace(self, code: int) -> None:
        self._restarts += 1
        if self._restarts > _MAX_RESTARTS:
            self._give_up(f"ended {self._restarts} times, last with {code}")
            return
        _LOG.warning("the process that writes %s ended (%s); starting another", self._name, code)
        try:
            self.start()
        except (RuntimeError, OSError) as error:
            self._give_up(f"can't be started again: {error}")
            return
        self._owner.hand_over()

    def _give_up(self, reason: str) -> None:
        _LOG.warning("the process that writes %s %s", self._name, reason)
        self._restarts = 0
        self._owner.give_up(reason)


def launch(
    module: str,
    descriptor: int,
    variables: Mapping[str, str],
    also: Sequence[int] = (),
    stdout: int | None = None,
) -> subprocess.Popen[bytes]:
    """Run `main(descriptor)` of a module, in a session of its own: what ends the rank's process
    group does not end it.

    Args:
        also: other file descriptors that it inherits.
    """
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, module, str(descriptor), *filter(None, sys.path)],
        pass_fds=[descriptor, *also],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        start_new_session=True,
        env=dict(variables),
    )
