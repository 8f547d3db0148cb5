"""A step of the preparation that runs beside the others.

Owns: one thread and what came of it.
Leaves: what is done to the caller.
Always: an error is raised where the result is asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Step(Generic[Result]):
    """Runs `work` at once; `done` is called when it ended, however it ended."""

    def __init__(self, name: str, work: Callable[[], Result], done: Callable[[], None]) -> None:
        self._work = work
        self._done = done
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

    def leave(self, timeout_s: float) -> None:
        """Wait a little for a step whose result nobody wants any more."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self._result.append(self._work())
        except BaseException as error:
            self._error = error
        self._done()
