"""Lines at the end of a terminal, drawn again while others scroll past."""

from __future__ import annotations

import io
import re

import pytest

from torchyard.cli.terminal.live_area import LiveArea
from torchyard.client.printing import Printer
from torchyard.client.streams import Frame


def screen(output: bytes) -> list[str]:
    """The lines that a terminal shows after such output; it knows what the area uses."""
    lines, row, column = [""], 0, 0
    for token in re.findall(r"\x1b\[\d*[A-Z]|\x1b\[[\d;]*m|\r|\n|[^\x1b\r\n]", output.decode()):
        if token == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif token == "\r":
            column = 0
        elif token == "\x1b[2K":
            lines[row] = ""
        elif token == "\x1b[1A":
            row -= 1
        elif len(token) == 1:
            lines[row] = lines[row][:column].ljust(column) + token + lines[row][column + 1 :]
            column += 1
    return lines


class Terminal:
    """A printer on a terminal of 40 columns and 6 rows, with a clock that a test moves."""

    def __init__(self) -> None:
        self.out = io.BytesIO()
        self.now = 0.0
        self.live = LiveArea(self.out, lambda: (40, 6), lambda: self.now)
        self.printer = Printer(self.out, lambda text: self.say(text), live=self.live)

    def say(self, text: str) -> None:
        self.out.write(text.encode() + b"\n")

    def write(self, rank: int, content: bytes) -> list[str]:
        self.now += 1.0
        path = f"user_logs/std_log_process_{rank}.txt"
        fields = {"kind": "log", "attempt": 1, "path": path, "offset": 0}
        self.printer.frame(Frame("log", fields, content))
        return self.lines

    @property
    def lines(self) -> list[str]:
        return screen(self.out.getvalue())


def test_bars_of_several_ranks_stand_below_the_lines() -> None:
    terminal = Terminal()
    assert terminal.write(1, b"\r 10%|#    |") == ["[1]  10%|#    |"]
    assert terminal.write(0, b"\r 20%|##   |") == ["[0]  20%|##   |", "[1]  10%|#    |"]
    assert terminal.write(1, b"\r 30%|###  |") == ["[0]  20%|##   |", "[1]  30%|###  |"]
    assert terminal.write(0, b"\rhello\n") == ["[0] hello", "[1]  30%|###  |"]
    terminal.printer.line("Notice: one")
    assert terminal.lines == ["[0] hello", "Notice: one", "[1]  30%|###  |"]
    terminal.write(1, b"\r100%|#####|\n")
    assert terminal.lines == ["[0] hello", "Notice: one", "[1] 100%|#####|", ""]


def test_the_last_state_stays_at_the_end() -> None:
    terminal = Terminal()
    terminal.write(0, b"\r 10%\r 20%")
    terminal.printer.finish()
    assert terminal.lines == ["[0]  20%", ""]


def test_drawing_has_a_pace() -> None:
    terminal = Terminal()
    terminal.live.show([b"one"])
    before = terminal.out.getvalue()
    terminal.live.show([b"two"])
    assert terminal.out.getvalue() == before
    terminal.now += 1.0
    terminal.live.show([b"two"])
    assert terminal.lines == ["two"]


def test_more_ranks_than_rows_are_counted() -> None:
    terminal = Terminal()
    terminal.live.show([b"[%d]" % rank for rank in range(10)])
    assert terminal.lines == ["[0]", "[1]", "[2]", "… and 7 more ranks"]
    terminal.live.clear()
    assert "".join(terminal.lines) == ""


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"x" * 100, "x" * 39),
        ("漢".encode() * 30, "漢" * 19),
        (b"\x1b[31mred\x1b[0m \x1b[2J\x1b[10A\x1b]0;title\x07end", "red 0;titleend"),
        (b"\xff\xfe bytes", "\ufffd\ufffd bytes"),
        (b"tab\there\x00\x9b", "tabhere\ufffd"),
    ],
)
def test_nothing_leaves_its_line(line: bytes, shown: str) -> None:
    terminal = Terminal()
    terminal.live.show([line])
    drawn = re.sub(r"\x1b\[[\d;]*m", "", terminal.out.getvalue().decode())
    assert drawn == shown


def test_without_a_terminal_only_the_last_state_of_a_line_is_written() -> None:
    out = io.BytesIO()
    printer = Printer(out, print)
    for content in (b"\r 10%", b"\r 20%\r", b"\r100%", b"\nplain\r\n", b"\r    \rnext\n"):
        fields = {"kind": "log", "attempt": 1, "path": "user_logs/std_log_process_0.txt"}
        printer.frame(Frame("log", {**fields, "offset": 0}, content))
    printer.finish()
    assert out.getvalue() == b"[0] 100%\n[0] plain\n[0] next\n"


def test_a_bar_that_never_ends_its_line_is_not_kept_whole() -> None:
    printer = Printer(io.BytesIO(), print)
    fields = {"kind": "log", "attempt": 1, "path": "user_logs/std_log_process_0.txt", "offset": 0}
    for step in range(5_000):
        printer.frame(Frame("log", fields, b"\r%99d" % step))
    (lines,) = printer._lines.values()
    assert sum(map(len, lines.held)) < 200
