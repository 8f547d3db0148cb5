"""One scoring process and its life: started, asked, killed when it is late, started again.

Owns: the pipes, the time limit, what the end of a process means.
Leaves: the script to scoring_process.py, tries and mini-batches to coordinator.py.
Always: a process and what it started are gone when `close` returns; an answer belongs to the
request that was sent last.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from .settings import Settings

HERE = os.path.dirname(os.path.abspath(__file__))
MOST_STARTS = 3
_GRACE_S = 10.0
_BLOCK = 1 << 16
_LOOK_S = 1.0


class ScriptFailed(Exception):
    """The script can't be loaded, or `init` fails; the text says why."""


class Late(Exception):
    """No answer came within the time limit."""


class Ended(Exception):
    """The process ended instead of answering; the text says how."""


class ScoringProcess:
    """Asked by one thread at a time."""

    def __init__(self, settings: Settings, variables: dict[str, str]) -> None:
        self._settings = settings
        self._variables = dict(variables, TORCHYARD_BATCH_LEVEL=settings.logging_level)
        self._process: subprocess.Popen[bytes] | None = None
        self._requests = self._answers = -1
        self._buffer = b""

    def run(self, files: list[str]) -> dict[str, Any]:
        """`{rows, count}` or `{error}`.

        Raises:
            ScriptFailed: it never gets as far as `run`.
        """
        try:
            self._ensure()
            self._send({"files": files})
            return self._answer(self._settings.timeout_s)
        except Late:
            self.close(is_kind=False)
            limit = f"{self._settings.timeout_s:g}"
            return {"error": f"run() took longer than {limit} s (retry_settings.timeout)"}
        except Ended as error:
            return {"error": str(error)}

    def kill(self) -> None:
        """End what runs now; the thread that waits for its answer sees that."""
        process = self._process
        if process is not None and process.poll() is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except OSError:
                pass

    def close(self, is_kind: bool = True) -> None:
        """End it; `shutdown()` of the script is called where there is time for it."""
        process, self._process = self._process, None
        for number in (self._requests, self._answers):
            if number >= 0:
                os.close(number)
        self._requests = self._answers = -1
        self._buffer = b""
        if process is None:
            return
        try:
            if is_kind:
                process.wait(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            pass
        process.wait()

    def _ensure(self) -> None:
        """Start it, unless it runs; `init` may take as long as it wants."""
        for number in range(MOST_STARTS):
            if self._process is not None:
                return
            self._start()
            try:
                answer = self._answer(None)
            except Ended as error:
                if number + 1 == MOST_STARTS:
                    script = self._settings.script
                    raise ScriptFailed(
                        f"`{script}`: {error} while init() ran, {MOST_STARTS} times"
                    ) from error
                continue
            if "error" in answer:
                self.close(is_kind=False)
                raise ScriptFailed(str(answer["error"]))

    def _start(self) -> None:
        theirs_in, self._requests = os.pipe()
        self._answers, theirs_out = os.pipe()
        rows = "rows" if self._settings.appends_rows else "count"
        words = [sys.executable, os.path.join(HERE, "scoring_process.py")]
        try:
            # A group of its own: what it started is ended with it.
            self._process = subprocess.Popen(
                [*words, str(theirs_in), str(theirs_out), rows],
                pass_fds=[theirs_in, theirs_out],
                env=self._variables,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            os.close(theirs_in)
            os.close(theirs_out)

    def _send(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._requests, data) :]
        except OSError as error:
            raise self._ended() from error

    def _answer(self, limit_s: float | None) -> dict[str, Any]:
        deadline = None if limit_s is None else time.monotonic() + limit_s
        parts = [self._buffer]
        while b"\n" not in parts[-1]:
            left_s = _LOOK_S if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                raise Late()
            if not select.select([self._answers], [], [], min(left_s, _LOOK_S))[0]:
                # What it started may hold the pipe open after its end.
                if self._process is not None and self._process.poll() is not None:
                    raise self._ended()
                continue
            block = os.read(self._answers, _BLOCK)
            if not block:
                raise self._ended()
            parts.append(block)
        line, _, self._buffer = b"".join(parts).partition(b"\n")
        answer: dict[str, Any] = json.loads(line.decode())
        return answer

    def _ended(self) -> Ended:
        process = self._process
        assert process is not None
        try:
            process.wait(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            pass
        code = process.poll()
        self.close(is_kind=False)
        if code is not None and code < 0:
            return Ended(f"the scoring process was killed by {signal.Signals(-code).name}")
        return Ended(f"the scoring process ended with code {code}")
