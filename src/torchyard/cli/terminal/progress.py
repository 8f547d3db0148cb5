"""Progress bars for uploads and downloads, at a terminal only.

Owns: the bar, its rate and the remaining time.
Leaves: counting bytes to the code that moves them.
Always: if stderr is not a terminal, nothing is printed and rich is not imported; a finished bar is
removed, so that only results remain.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_DELAY_S = 0.3


class Progress:
    """A bar that appears only once the transfer has taken a moment."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._started = time.monotonic()
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._lock = threading.Lock()
        self._sent = self._total = 0

    def total(self, size_bytes: int) -> None:
        self._total = size_bytes

    def add(self, size_bytes: int) -> None:
        with self._lock:
            self._show(self._sent + size_bytes, self._total)

    def sent(self, size_bytes: int, total: int) -> None:
        """Set how much of `total` is done; a new total starts the bar over."""
        with self._lock:
            self._show(size_bytes, total)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _show(self, sent: int, total: int) -> None:
        self._sent, self._total = sent, total
        if self._bar is None:
            if time.monotonic() - self._started < _DELAY_S:
                return
            self._open()
        assert self._bar is not None and self._task is not None
        self._bar.update(self._task, completed=sent, total=total)

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import (
            Progress as Bar,
        )

        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(self._title, total=self._total)
        self._bar.start()


@contextmanager
def bar(title: str) -> Iterator[Progress | None]:
    """Show a bar until the end of the block; yields None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    progress = Progress(title)
    try:
        yield progress
    finally:
        progress.close()


@contextmanager
def uploading() -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar for an upload; yields the callback that moves it."""
    with bar("Uploading") as progress:
        yield None if progress is None else progress.sent
