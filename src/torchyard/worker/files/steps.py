"""Run a step of the preparation in its own thread.

Owns: one thread and its result or error.
Leaves: the work itself to the caller.
Always: an error of the thread is raised by `result`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Step(Generic[Result]):
    """Starts `work` at once; `on_end` is called after it succeeded or failed."""

    def __init__(self, name: str, work: Callable[[], Result], on_end: Callable[[], None]) -> None:
        self._work = work
        self._on_end = on_end
        self._result: list[Result] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return not self._result and self._error is None

    @property
    def failed(self) -> bool:
        return self._error is not None

    def result(self) -> Result:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result[0]

    def wait_briefly(self, timeout_s: float) -> None:
        """Wait for a step whose result is no longer needed, at most this long."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self._result.append(self._work())
        except BaseException as error:
            self._error = error
        self._on_end()
