"""The server's end of a process in which Optuna runs.

Owns: starting it, requests to it and their time limit, ending it.
Leaves: what runs there to process.py.
Always: it is killed when it does not answer in time; what it knew is told again to the next one.
"""

from __future__ import annotations

import json
import os
import pickle
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO, Any

from torchyard.base.errors import Internal, Timeout
from torchyard.sweeps.search.known_trials import KnownTrial, Setup
from torchyard.sweeps.spec.search_space import Value

_MODULE = "torchyard.sweeps.search.process"
_BLOCK = 1 << 16


class StudyProcess:
    """One sweep's. Thread-safe; started with the first request, and again after it has died."""

    def __init__(self, setup: Setup, timeout_s: float) -> None:
        self._setup = setup
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._sent: dict[int, str] = {}

    def suggest(self, number: int, trials: Sequence[KnownTrial]) -> dict[str, Value]:
        """
        Raises:
            Timeout: no answer within the time limit.
            Internal: the sampler failed.
        """
        with self._lock:
            answer = self._ask(number, trials)
            if answer is None:
                # It was killed: the next one is told everything again.
                answer = self._ask(number, trials)
            if answer is None:
                raise Internal(
                    "the process of the sweep's sampler ended",
                    "see whether the server's machine has memory left",
                )
        if "error" in answer:
            raise Internal(
                f"the sampler failed: {answer['error']}", "use another one, for example `random`"
            )
        parameters: dict[str, Value] = answer["parameters"]
        return parameters

    def close(self) -> None:
        with self._lock:
            self._kill()

    def _ask(self, number: int, trials: Sequence[KnownTrial]) -> dict[str, Any] | None:
        """None when the process has died."""
        request = b""
        if self._process is None or self._process.poll() is not None:
            self._start()
            request = pickle.dumps(self._setup)
        assert self._process is not None
        new = [trial for trial in trials if self._sent.get(trial.number) != trial.state]
        request += pickle.dumps((number, new))
        answer = self._exchange(self._process, memoryview(request))
        if answer is None:
            self._kill()
            return None
        self._sent.update((trial.number, trial.state) for trial in new)
        read: dict[str, Any] = json.loads(answer)
        return read

    def _start(self) -> None:
        self._kill()
        self._sent = {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Not where people's files are: Python would import them.
            cwd="/",
            start_new_session=True,
        )
        os.set_blocking(_pipe(self._process.stdin).fileno(), False)

    def _exchange(self, process: subprocess.Popen[bytes], request: memoryview) -> bytes | None:
        """Write the request, read the line that answers it; None when the process has died.

        Raises:
            Timeout: that took longer than the time limit.
        """
        deadline = time.monotonic() + self._timeout_s
        requests, answers = _pipe(process.stdin), _pipe(process.stdout)
        answer = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(requests, selectors.EVENT_WRITE)
            selector.register(answers, selectors.EVENT_READ)
            while not answer.endswith(b"\n"):
                ready = selector.select(max(deadline - time.monotonic(), 0))
                if not ready:
                    self._kill()
                    raise Timeout(
                        f"the sweep's sampler did not answer within {self._timeout_s:g} s",
                        "use a quicker one, for example `tpe` or `random`",
                    )
                for key, _ in ready:
                    if key.fileobj is answers:
                        block = os.read(answers.fileno(), _BLOCK)
                        answer += block
                        if not block:
                            return None
                        continue
                    try:
                        request = request[os.write(requests.fileno(), request[:_BLOCK]) :]
                    except BrokenPipeError:
                        return None
                    if not request:
                        selector.unregister(requests)
        return bytes(answer)

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        _pipe(process.stdin).close()
        _pipe(process.stdout).close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
