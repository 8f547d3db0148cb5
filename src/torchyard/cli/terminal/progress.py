"""Progress bars for uploads and downloads, at a terminal only.

Owns: the bar, its rate and the remaining time.
Leaves: counting bytes to the code that moves them.
Always: if stderr is not a terminal, nothing is printed; a finished bar is removed, so that only
results remain.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from torchyard.base.settings import terminal_type
from torchyard.cli.terminal.tables import beginning
from torchyard.shared.sizes import size_text

_DELAY_S, _DRAW_EVERY_S = 0.3, 0.1
_WIDTH = 20


class Progress:
    """A bar that appears only once the transfer has taken a moment; for any thread."""

    def __init__(self, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._title = title
        self._clock = clock
        self._started = clock()
        self._next_draw = self._started + _DELAY_S
        self._is_drawn = False
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
            if total != self._total:
                self._started = self._clock()
            self._show(size_bytes, total)

    def close(self) -> None:
        """Remove the bar; the next bytes draw it again."""
        if self._is_drawn:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._is_drawn = False

    def _show(self, sent: int, total: int) -> None:
        self._sent, self._total = sent, total
        now = self._clock()
        if now >= self._next_draw:
            self._next_draw = now + _DRAW_EVERY_S
            self._is_drawn = True
            text = beginning(self._text(now), shutil.get_terminal_size().columns - 1)
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)

    def _text(self, now: float) -> str:
        sent, total = self._sent, max(self._total, self._sent)
        rate = sent / max(now - self._started, 0.001)
        filled = _WIDTH * sent // total if total else _WIDTH
        left_s = round((total - sent) / rate) if rate else 0
        return (
            f"{self._title} [{'#' * filled}{'-' * (_WIDTH - filled)}] "
            f"{size_text(sent)} of {size_text(total)}, {size_text(rate)}/s, "
            f"{left_s // 60}:{left_s % 60:02d} left"
        )


@contextmanager
def bar(title: str) -> Iterator[Progress | None]:
    """Show a bar until the end of the block; yields None where none can be drawn."""
    if not sys.stderr.isatty() or (os.name == "posix" and terminal_type() in ("", "dumb")):
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
