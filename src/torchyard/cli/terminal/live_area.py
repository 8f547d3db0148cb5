"""Lines of a terminal that are drawn again: at its end while others scroll past, or a whole page.

Owns: drawing them, taking them away, how often they are drawn.
Leaves: what they say to the caller.
Always: what was drawn is taken away whole, so nothing of it stays in the scrollback; no byte of a
job reaches the terminal from here but printable text and colours.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import BinaryIO

import click

from torchyard.base.errors import Unreachable
from torchyard.base.terminal_text import coloured
from torchyard.cli.terminal.tables import beginning, width_of

_DRAW_EVERY_S = 0.05
# Of what a job writes, colours may stay; what moves the cursor would tear the area apart.
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,32}m")
_CONTROL = re.compile(r"\x1b(?:\[[0-9;?]{0,32}[ -/]?[@-~]?|.)?|[\x00-\x1f\x7f-\x9f]")
_RESET = "\x1b[0m"


class LiveArea:
    """The last lines of the terminal that `out` writes to.

    Args:
        size: columns and rows of the terminal.
    """

    def __init__(
        self,
        out: BinaryIO,
        size: Callable[[], tuple[int, int]] = shutil.get_terminal_size,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out = out
        self._size = size
        self._clock = clock
        self._drawn = 0
        self._drawn_at = -_DRAW_EVERY_S

    def show(self, lines: Sequence[bytes]) -> None:
        """Draw these lines in place of those before, unless it was done a moment ago."""
        now = self._clock()
        if self._drawn and now - self._drawn_at < _DRAW_EVERY_S:
            return
        self.clear()
        self._drawn_at = now
        columns, rows = self._size()
        limit = max(1, rows - 2)
        shown = [_fit(line.decode("utf-8", "replace"), columns - 1) for line in lines[:limit]]
        if len(lines) > limit:
            shown[-1] = _fit(f"… and {len(lines) - limit + 1} more ranks", columns - 1)
        self._out.write("\n".join(shown).encode())
        self._out.flush()
        self._drawn = len(shown)

    def clear(self) -> None:
        """Take the lines away; the cursor is where they began."""
        if self._drawn:
            self._out.write(b"\r\x1b[2K" + b"\x1b[1A\x1b[2K" * (self._drawn - 1))
            self._out.flush()
            self._drawn = 0


def redraw(
    page: Callable[[], tuple[str, bool]], every_s: float, colour: bool | None = None
) -> bool:
    """Print a page in place of the one before, until it says that it is the last; only that one
    where stdout is not a terminal. False after Ctrl-C.
    """
    drawn = 0
    try:
        while True:
            with suppress(Unreachable):  # The jobs keep running without the server.
                text, is_last = page()
                if is_last or sys.stdout.isatty():
                    drawn = draw(text, drawn, colour)
                if is_last:
                    return True
            time.sleep(every_s)
    except KeyboardInterrupt:
        click.echo("", err=True)
        return False


def draw(text: str, drawn: int, colour: bool | None = None) -> int:
    """Print `text` in place of the last `drawn` lines, and return how many lines it has.

    Each line is replaced by its successor before what is left of it is cleared, so that no screen
    is ever empty between.
    """
    lines = coloured(text).split("\n")
    if not drawn:
        click.echo("\n".join(lines), color=colour)
        return len(lines)
    context = click.get_current_context(silent=True)
    if colour is None and context is not None:
        colour = context.color
    if colour is False:
        lines = [click.unstyle(line) for line in lines]
    body = "".join(f"{line}\x1b[K\n" for line in lines)
    click.echo(f"\x1b[{drawn}F{body}\x1b[J", nl=False, color=True)
    return len(lines)


def _fit(text: str, columns: int) -> str:
    """As much of the text as `columns` hold, colours included."""
    pieces: list[str] = []
    coloured = False
    position = 0
    for match in _CONTROL.finditer(text):
        piece = text[position : match.start()]
        pieces.append(beginning(piece, columns))
        columns = columns - width_of(piece) if pieces[-1] == piece else 0
        position = match.end()
        if _COLOUR.fullmatch(match[0]):
            pieces.append(match[0])
            coloured = True
    pieces.append(beginning(text[position:], columns))
    return "".join(pieces) + (_RESET if coloured else "")
