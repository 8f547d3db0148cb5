"""Ask the runner, the privileged program that starts jobs as other Unix users.

Owns: one connection per request, what its errors become.
Leaves: the messages' form to shared/runner_messages.py, answering to runner/.
Always: a runner that does not answer concerns all jobs and is tried again; a refusal concerns one.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchyard.base.errors import Conflict, Unreachable
from torchyard.shared import runner_messages as messages

_LIMIT_S = 60.0
_REMOVAL_LIMIT_S = 700.0


class RunnerUnreachable(Unreachable):
    """The runner does not answer; it is started again by its socket unit."""

    code = "runner_unreachable"


class RunnerRefused(Conflict):
    """The runner does not do what it was asked."""

    code = "runner_refused"


class RunnerClient:
    """
    Args:
        path: of the runner's socket.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(
        self, request: str, descriptors: Sequence[int] = (), **body: Any
    ) -> tuple[dict[str, Any], list[int]]:
        """The answer, and the files that came with it, open.

        Raises:
            RunnerUnreachable: there was no answer.
            RunnerRefused: it refused, or the request is too long.
        """
        limit_s = _REMOVAL_LIMIT_S if request in ("remove", "build") else _LIMIT_S
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(None if request == "build" else limit_s)
                connection.connect(str(self.path))
                _send(connection, request, body, descriptors)
                answer, received = messages.receive(connection)
        except (OSError, messages.BadMessage) as error:
            raise _unreachable(self.path, error) from error
        return _checked(answer, received), received

    def start(self, request: str, descriptors: Sequence[int] = (), **body: Any) -> RunningRequest:
        """Ask for what takes long; it is ended by closing what is returned.

        Raises:
            RunnerUnreachable: the runner can't be asked.
            RunnerRefused: the request is too long.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_LIMIT_S)
            connection.connect(str(self.path))
            _send(connection, request, body, descriptors)
        except (OSError, messages.BadMessage) as error:
            connection.close()
            raise _unreachable(self.path, error) from error
        except RunnerRefused:
            connection.close()
            raise
        return RunningRequest(self.path, connection)

    def call(self, request: str, descriptors: Sequence[int] = (), **body: Any) -> dict[str, Any]:
        """As `ask`, of a request whose answer has no files."""
        answer, received = self.ask(request, descriptors, **body)
        for descriptor in received:
            os.close(descriptor)
        return answer


class RunningRequest:
    """A request that the runner works on; `connection` can be read when it has answered."""

    def __init__(self, path: Path, connection: socket.socket) -> None:
        self._path = path
        self.connection = connection

    def __enter__(self) -> RunningRequest:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def answer(self) -> dict[str, Any]:
        """
        Raises:
            RunnerUnreachable: it went away.
            RunnerRefused: it refused.
        """
        try:
            answer, received = messages.receive(self.connection)
        except (OSError, messages.BadMessage) as error:
            raise _unreachable(self._path, error) from error
        return _checked(answer, received)


class RunnerSession:
    """A request that is followed by others on its connection; `first` is the answer to it."""

    def __init__(self, connection: socket.socket, first: dict[str, Any]) -> None:
        self._connection = connection
        self.first = first

    def ask(self, task: str, **body: Any) -> tuple[dict[str, Any], list[int]]:
        """The answer as it is, and the files that came with it, open.

        Raises:
            Unreachable: there was none.
        """
        try:
            messages.send(self._connection, {"task": task, **body})
            return messages.receive(self._connection)
        except (OSError, messages.BadMessage) as error:
            # Not the runner, which concerns all jobs: a process that is the account's own.
            raise Unreachable(
                f"the process that opens a folder as an account does not answer: {error}",
                "try again; see what else runs as that account",
                code="account_interfered",
            ) from error


def _send(
    connection: socket.socket, request: str, body: dict[str, Any], descriptors: Sequence[int]
) -> None:
    try:
        messages.send(connection, {"request": request, **body}, descriptors)
    except messages.BadMessage as error:
        # Of this job alone: the others must not wait for it.
        raise RunnerRefused(
            f"what the runner is told of the job is too long: {error}",
            "make its command, variables or inputs shorter, or put them into a file",
            code="too_long",
        ) from error


def _unreachable(path: Path, error: Exception) -> RunnerUnreachable:
    return RunnerUnreachable(
        f"the runner at `{path}` does not answer: {error}",
        "see `systemctl status torchyard-runner.socket torchyard-runner`",
    )


def _checked(answer: dict[str, Any], received: list[int]) -> dict[str, Any]:
    if "ok" in answer:
        return dict(answer["ok"])
    for descriptor in received:
        os.close(descriptor)
    error = answer.get("error") or {}
    raise RunnerRefused(
        str(error.get("message") or "the runner refused"),
        str(error.get("hint") or ""),
        code=str(error.get("code") or ""),
    )
