"""A shell in a running job, over HTTP.

Owns: the requests, frames in both directions, how it ended.
Leaves: the terminal to the caller, frames to shared/channels.py.
Always: input goes out in the order in which it was written; leaving the block ends the shell.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from torchyard.base.errors import Conflict, TorchyardError, Unreachable
from torchyard.base.http import Transport
from torchyard.shared import channels
from torchyard.shared.channels import BadFrames, Decoder, Frame

_READ_BYTES = 1 << 16
_SILENCE_LIMIT_S = 60.0
_LOST_EXIT = 1


@dataclass(frozen=True)
class ShellOptions:
    """Where, and what: without a `command` it is an interactive shell.

    Attributes:
        rank: of the job; None is the first of `node`, or of the job.
        terminal: whether it gets one, of `rows` and `columns`.
    """

    rank: int | None = None
    node: int | None = None
    command: tuple[str, ...] = ()
    terminal: bool = False
    rows: int = 24
    columns: int = 80
    term: str = "xterm"


class RunningShell:
    """One that is open; `exit_code` is set once `output` has ended."""

    def __init__(self, transport: Transport, path: str) -> None:
        self._transport = transport
        self._inputs = transport.twin()
        self._path = path
        self._lock = threading.Lock()
        self._answer: http.client.HTTPResponse | None = None
        self.exit_code = _LOST_EXIT

    def output(self) -> Iterator[tuple[int, bytes]]:
        """What it prints, as it comes; each with OUTPUT or ERROR_OUTPUT of shared/channels.py.

        Raises:
            Conflict: the job ended, or the shell could not be opened.
            Unreachable: the server was lost.
        """
        try:
            with self._transport.stream(f"{self._path}/output") as answer:
                self._answer = answer
                yield from self._read(answer)
        except (OSError, http.client.HTTPException, BadFrames) as error:
            if isinstance(error, TorchyardError):
                raise
            raise Unreachable(f"the connection to the shell was lost: {error}") from error

    def write(self, data: bytes) -> None:
        """Type; returns when the job may have it."""
        for at in range(0, len(data), channels.PIECE_BYTES):
            self._send(channels.INPUT, data[at : at + channels.PIECE_BYTES])

    def end_input(self) -> None:
        self._send(channels.INPUT_END)

    def resize(self, rows: int, columns: int) -> None:
        self._send(channels.RESIZE, json.dumps({"rows": rows, "columns": columns}).encode())

    def close(self) -> None:
        if self._answer is not None:
            self._answer.close()
        self._transport.close()
        with self._lock:
            self._inputs.close()

    def _read(self, answer: http.client.HTTPResponse) -> Iterator[tuple[int, bytes]]:
        decoder = Decoder()
        while data := answer.read1(_READ_BYTES):
            for frame in decoder.feed(data):
                if frame.kind in (channels.OUTPUT, channels.ERROR_OUTPUT):
                    yield frame.kind, frame.payload
                elif frame.kind == channels.EXIT:
                    self.exit_code = int(_json(frame).get("code", _LOST_EXIT))
                    return
                elif frame.kind == channels.REFUSED:
                    message = str(_json(frame).get("message", ""))
                    raise Conflict(f"the shell has ended: {message}", code="shell_ended")
        raise Conflict("the shell has ended: its job has, or its node was lost", code="shell_ended")

    def _send(self, kind: int, payload: bytes = b"") -> None:
        body = Frame(0, kind, payload).to_bytes()
        with self._lock:
            self._inputs.send("POST", f"{self._path}/input", body, len(body))


@contextmanager
def open_shell(
    transport: Transport, jobs_path: str, job: str, options: ShellOptions
) -> Iterator[RunningShell]:
    """Open one; it ends at the end of the block.

    Raises:
        Conflict: the job does not run.
        Forbidden: the job is somebody else's.
    """
    opened = transport.post(f"{jobs_path}/{quote(job, safe='')}/shells", asdict(options))
    workspace_path = jobs_path.rpartition("/")[0]
    shell = RunningShell(
        transport.twin(_SILENCE_LIMIT_S), f"{workspace_path}/shells/{opened['id']}"
    )
    try:
        yield shell
    finally:
        shell.close()


def _json(frame: Frame) -> dict[str, Any]:
    body = json.loads(frame.payload)
    return body if isinstance(body, dict) else {}
