"""The process of this server that workers are forked from.

Owns: its start, the requests to it, a new one where it has ended.
Leaves: what it does to worker/node/fork_server.py.
Always: a worker is this server's business only by its records: it goes on when the fork server, or
this server, is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torchyard.shared import processes

_RESET = (signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGXFSZ)
_ANSWER_BYTES = 1 << 10


class ForkServer:
    """Started with the first worker, for importing the worker's modules takes longer than a small
    job.

    Args:
        python: what runs it.
        environ: what workers get.
    """

    def __init__(self, python: str, environ: Mapping[str, str]) -> None:
        self._python = python
        self._environ = dict(environ)
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._end: Callable[[], object] = lambda: None

    def fork(
        self, program: Path, plan: Path, node: int, log: Path, descriptors: Sequence[int]
    ) -> dict[str, int]:
        """Start a worker; pid and start_time.

        Args:
            program: the worker's zip.
            log: where its output goes.
            descriptors: what its ranks inherit.

        Raises:
            OSError: the machine has no process for it.
        """
        request = json.dumps({"plan": str(plan), "node": node}).encode()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            with self._lock:
                answer = self._ask(program, request, [output, *descriptors])
        finally:
            os.close(output)
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]))
        return {"pid": answer["pid"], "start_time": processes.start_time(answer["pid"])}

    def _ask(self, program: Path, request: bytes, descriptors: list[int]) -> dict[str, int]:
        """Ask again where it was killed: of two workers of a node one does the work."""
        for _ in range(2):
            if self._channel is None:
                self._channel = self._start(program)
            try:
                socket.send_fds(self._channel, [request], descriptors)
                answer = self._channel.recv(_ANSWER_BYTES)
            except ConnectionError:
                answer = b""
            if answer:
                body: dict[str, int] = json.loads(answer)
                return body
            self._forget()
        raise OSError("the process that starts workers ends at once; see `yard server logs`")

    def _start(self, program: Path) -> socket.socket:
        own, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            pid = os.posix_spawn(
                self._python,
                [self._python, "-I", "-S", str(program), "--fork-server", str(its.fileno())],
                self._environ,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    # Onto itself: kept open there, and there alone.
                    (os.POSIX_SPAWN_DUP2, its.fileno(), its.fileno()),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=_RESET,
            )
        self._end = weakref.finalize(self, _end, own, pid)
        return own

    def _forget(self) -> None:
        self._channel = None
        self._end()


def _end(channel: socket.socket, pid: int) -> None:
    channel.close()
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)  # it may have been stopped
        os.waitpid(pid, 0)
