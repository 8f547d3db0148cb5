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
            RunnerRefused: it refused.
        """
        limit_s = _REMOVAL_LIMIT_S if request in ("remove", "build") else _LIMIT_S
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(None if request == "build" else limit_s)
                connection.connect(str(self.path))
                messages.send(connection, {"request": request, **body}, descriptors)
                answer, received = messages.receive(connection)
        except (OSError, messages.BadMessage) as error:
            raise RunnerUnreachable(
                f"the runner at `{self.path}` does not answer: {error}",
                "see `systemctl status torchyard-runner.socket torchyard-runner`",
            ) from error
        if "ok" not in answer:
            for descriptor in received:
                os.close(descriptor)
            error_body = answer.get("error") or {}
            raise RunnerRefused(
                str(error_body.get("message") or "the runner refused"),
                str(error_body.get("hint") or ""),
                code=str(error_body.get("code") or ""),
            )
        return answer["ok"], received

    def call(self, request: str, descriptors: Sequence[int] = (), **body: Any) -> dict[str, Any]:
        """As `ask`, of a request whose answer has no files."""
        answer, received = self.ask(request, descriptors, **body)
        for descriptor in received:
            os.close(descriptor)
        return answer
