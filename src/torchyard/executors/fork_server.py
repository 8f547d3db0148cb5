"""Have workers forked by one child process of this server.

Owns: the start of that process, requests to it, its replacement when it ends or does not answer.
Leaves: the process itself to worker/node/fork_server.py.
Always: a worker survives the fork server and this server, and is followed by its record files; a
fork server that was stopped delays a launch, and never blocks it.
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
_RESPONSE_BYTES = 1 << 10
# A fork takes milliseconds, a start under a second.
_TIMEOUT_S = 60.0


class ForkServer:
    """One child process, started with the first worker.

    It has the worker's modules imported: importing them takes longer than a small job.

    Args:
        python: the interpreter that runs it.
        environ: the environment variables of the workers.
        timeout_s: how long a running one may take to answer before it is replaced.
    """

    def __init__(
        self, python: str, environ: Mapping[str, str], timeout_s: float = _TIMEOUT_S
    ) -> None:
        self._python = python
        self._environ = dict(environ)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._kill: Callable[[], object] = lambda: None

    def fork(
        self, program: Path, plan: Path, node: int, log: Path, descriptors: Sequence[int]
    ) -> dict[str, int]:
        """Start a worker and return its `pid` and `start_time`.

        Args:
            program: the worker's zip.
            log: the file that its output is appended to.
            descriptors: open files that its ranks inherit.

        Raises:
            OSError: no process can be started, or no fork server answers.
        """
        request = json.dumps({"plan": str(plan), "node": node}).encode()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            with self._lock:
                response = self._send(program, request, [output, *descriptors])
        finally:
            os.close(output)
        if "errno" in response:
            raise OSError(response["errno"], os.strerror(response["errno"]))
        return {"pid": response["pid"], "start_time": processes.start_time(response["pid"])}

    def _send(self, program: Path, request: bytes, descriptors: list[int]) -> dict[str, int]:
        """Send a request, and once more to a new fork server if the first one fails.

        The first one may have forked a worker before it failed. That does no harm: the second
        worker of a node exits at once.
        """
        for _ in range(2):
            if self._channel is None:
                self._channel = self._start(program)
            try:
                socket.send_fds(self._channel, [request], descriptors)
                content = self._channel.recv(_RESPONSE_BYTES)
            except (ConnectionError, TimeoutError):
                content = b""
            if content:
                self._channel.settimeout(self._timeout_s)
                response: dict[str, int] = json.loads(content)
                return response
            self._end()
        raise OSError(
            "the process that starts workers ends at once, or does not answer; see "
            "`yard server logs`"
        )

    def _start(self, program: Path) -> socket.socket:
        channel, child_channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel.settimeout(_TIMEOUT_S)
        with child_channel:
            number = child_channel.fileno()
            pid = os.posix_spawn(
                self._python,
                [self._python, "-I", "-S", str(program), "--fork-server", str(number)],
                self._environ,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    # Duplicated onto itself, it stays open in the child, and only there.
                    (os.POSIX_SPAWN_DUP2, number, number),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=_RESET,
            )
        self._kill = weakref.finalize(self, _kill, channel, pid)
        return channel

    def _end(self) -> None:
        self._channel = None
        self._kill()


def _kill(channel: socket.socket, pid: int) -> None:
    channel.close()
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        # A closed channel does not end a process that was stopped.
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
