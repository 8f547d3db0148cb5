"""A network of the ranks' own: nothing but loopback, and what listens in it.

Owns: one network namespace for all nodes of an attempt on this machine, handing it to the ranks.
Leaves: making and entering it to network_launcher.py, in processes of its own; what is passed
through it to relay/server_gate.py.
Always: the worker itself stays in the machine's network; a rank starts in this one or not at all.

Nodes of a local cluster are on one machine, so they share the namespace: node 0 makes it and hands
its descriptors to the workers of the others. Unix sockets that have a path are files: they are not
kept from ranks by this, and neither is anything that root may do.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from torchyard.shared import descriptors
from torchyard.shared.failures import Failure
from torchyard.worker import IMPORT_PATH

UNAVAILABLE = "network_unavailable"
_SOCKET = "network"
_MESSAGE_BYTES = 2000
_MOST_DESCRIPTORS = 64
_POLL_S = 0.05
_SPARE = 16
_READY = b"ready"
_HINT = (
    "it needs user namespaces: `yard doctor` says whether they are allowed on this machine; or ask "
    "for `torchyard.network: open`, where the workspace allows it"
)


class NetworkSpace:
    """The namespace, by descriptors that are open until `close`."""

    def __init__(self, namespaces: list[int]) -> None:
        self._namespaces = namespaces
        self._server: socket.socket | None = None
        self._spare: list[int] = []
        self._lock = threading.Lock()

    def command(self, words: Sequence[str]) -> list[str]:
        """The command that runs `words` in it."""
        return [*_program("enter"), self._paths(), *words]

    def listen(self, addresses: Sequence[tuple[str, int]]) -> list[socket.socket]:
        """Sockets that listen in it, at IPv4 addresses that it gets where it lacks them.

        Raises:
            Failure: one is taken.
        """
        listeners = _launch("listen", self._paths(), json.dumps(list(addresses)))
        return [socket.socket(fileno=descriptor) for descriptor in listeners]

    def unconnected(self) -> socket.socket:
        """A socket to connect to what listens in it; for any thread.

        Raises:
            Failure: none could be made.
        """
        with self._lock:
            if not self._spare:
                self._spare = _launch("unconnected", self._paths(), str(_SPARE))
            return socket.socket(fileno=self._spare.pop())

    def share(self, scratch: Path) -> None:
        """Hand it to the workers of the attempt's other nodes, until `close`."""
        with _short(scratch) as path:
            self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._server.bind(path)
            self._server.listen(64)
        threading.Thread(target=self._hand_out, name="network", daemon=True).start()

    def close(self) -> None:
        for descriptor in self._namespaces:
            os.close(descriptor)
        self._namespaces = []
        with self._lock:
            spare, self._spare = self._spare, []
        for descriptor in spare:
            os.close(descriptor)
        if self._server is not None:
            self._server.shutdown(socket.SHUT_RDWR)  # wakes `accept`
            self._server.close()

    def _paths(self) -> str:
        return ":".join(f"/proc/{os.getpid()}/fd/{number}" for number in self._namespaces)

    def _hand_out(self) -> None:
        assert self._server is not None
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return  # closed
            with closing(connection):
                try:
                    socket.send_fds(connection, [_READY], self._namespaces)
                except OSError:
                    continue  # its worker has ended


def make() -> NetworkSpace:
    """
    Raises:
        Failure: this machine does not allow it.
    """
    return NetworkSpace(_launch("make"))


def join(
    scratch: Path, timeout_s: float, stopped: Callable[[], bool] = lambda: False
) -> NetworkSpace:
    """The one that node 0 of the attempt shares.

    Raises:
        Failure: it did not come in time.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and not stopped():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                with _short(scratch) as path:
                    connection.connect(path)
                return NetworkSpace(_receive(connection))
            except OSError:
                time.sleep(_POLL_S)
    raise _unavailable("node 0 did not share its network in time")


@contextmanager
def _short(scratch: Path) -> Iterator[str]:
    """A path of the socket that fits into an address, however long that of `scratch` is."""
    folder = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{_SOCKET}"
    finally:
        os.close(folder)


def _launch(verb: str, *arguments: str) -> list[int]:
    """The descriptors that the launcher sends."""
    receiver, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with receiver:
        with sender:
            os.set_inheritable(sender.fileno(), True)
            words = [*_program(verb), str(sender.fileno()), *arguments]
            try:
                pid = os.posix_spawn(words[0], words, dict(os.environ))
            except OSError as error:
                raise _unavailable(str(error)) from error
        try:
            return _receive(receiver)
        finally:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                pass  # reaped with the ranks


def _receive(connection: socket.socket) -> list[int]:
    message, passed, _ = descriptors.receive_message(connection, _MESSAGE_BYTES, _MOST_DESCRIPTORS)
    if message != _READY:
        raise _unavailable(message.decode(errors="replace") or "its launcher ended")
    return passed


def _program(verb: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, IMPORT_PATH, verb]


def _unavailable(reason: str) -> Failure:
    return Failure(
        UNAVAILABLE, f"the job can't have a network of its own on this machine: {reason}", _HINT
    )


_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from torchyard.worker.system.network_launcher import main; "
    "main(*sys.argv[2:4], sys.argv[4:])"
)
