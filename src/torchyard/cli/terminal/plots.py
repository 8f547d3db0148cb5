"""Line charts in the terminal.

Owns: braille dots, axes with round numbers, the legend.
Leaves: what to draw to jobs/metrics.py, downsampling to the server.
Always: without colours, letters distinguish several lines; a value that is not finite breaks its
line and is reported below the chart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

COLOURS = ("cyan", "yellow", "magenta", "green", "red", "blue", "bright_white", "bright_black")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
# The dot of column x and row y of a cell, in the order of Unicode's braille patterns.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BRAILLE = 0x2800
_LABEL_WIDTH = 10
_NARROWEST, _LOWEST = 20, 4
# From one label of a logarithmic axis to the next; floats have 632 decades.
_DECADES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class Line:
    """One line: `columns` are (x, minimum, maximum until the next x), sorted by x.

    A single point has the same minimum and maximum.
    """

    label: str
    columns: Sequence[tuple[float, float, float]]


@dataclass(frozen=True)
class Style:
    """How to draw: size in characters, including axes and legend but not the title's line.

    Without `braille`, lines are drawn with letters, for terminals that lack the characters. With
    `log` the vertical axis is logarithmic, and values of 0 and below are not drawn.
    """

    width: int = 80
    height: int = 16
    colour: bool = False
    braille: bool = True
    log: bool = False


def draw(lines: Sequence[Line], style: Style, title: str = "", unit: str = "") -> str:
    """The chart as text, with a legend if there are several lines.

    Args:
        unit: the unit of the horizontal axis, printed after its numbers.
    """
    notes = _notes(lines, style.log)
    if style.log:
        lines = [_logarithms(line) for line in lines]
    numbered = [(number, line) for number, line in enumerate(lines) if _finite(line)]
    text = [click.style(_plain(title), bold=True)] if title else []
    if not numbered:
        return "\n".join([*text, "  nothing to draw yet", *(f"  {note}" for note in notes)])
    xs = [x for _, line in numbered for x, _, _ in _finite(line)]
    ys = [y for _, line in numbered for _, low, high in _finite(line) for y in (low, high)]
    x_axis, y_axis = _Axis(min(xs), max(xs)), _Axis(*_padded(min(ys), max(ys), style.log))
    height = max(style.height - 2 - (len(lines) > 1), _LOWEST)
    rows = _log_labels(y_axis, height) if style.log else _labels(y_axis, height)
    label_width = max(len(label) for label in rows.values())
    width = max(style.width - label_width - 2, _NARROWEST)
    letters = not style.braille or (len(lines) > 1 and not style.colour)
    canvas = _Canvas(width, height, letters)
    for number, line in numbered:
        canvas.add(number, line, x_axis, y_axis)
    for row, cells in enumerate(canvas.rows(style.colour)):
        label = rows.get(row, "")
        text.append(f"{label:>{label_width}} {'┤' if label else '│'}{cells}".rstrip())
    text += _x_axis(x_axis, width, label_width, unit)
    if len(lines) > 1:
        text += _legend(lines, style, letters, label_width)
    text += [" " * (label_width + 2) + note for note in notes]
    return "\n".join(text)


def smoothed(line: Line, weight: float) -> Line:
    """The line's moving average, in which each column weighs `weight` times the one after it.

    The value of a column is the middle between its smallest and largest; a value that is not
    finite stays as it is.
    """
    total = count = 0.0
    columns = []
    for x, low, high in line.columns:
        middle = low / 2 + high / 2
        if math.isfinite(middle):
            # Divided by the sum of the weights, so that the first values count in full.
            total = weight * total + (1 - weight) * middle
            count = weight * count + (1 - weight)
            middle = total / count
        columns.append((x, middle, middle))
    return Line(line.label, columns)


def time_unit(seconds: float) -> tuple[str, float]:
    """The best unit for such a duration, and its length in seconds."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return unit, size
    return "s", 1.0


class _Axis:
    """Map values to positions between 0 and 1."""

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end

    def fraction_of(self, value: float) -> float:
        # Halve first: the difference of the largest floats would overflow.
        span = self.end / 2 - self.start / 2
        return (value / 2 - self.start / 2) / span if span else 0.5

    def ticks(self, count: int) -> list[float]:
        """Up to `count` round values."""
        span = self.end - self.start
        if not span or not math.isfinite(span):
            return [self.start, self.end] if span else [self.start]
        step = 10.0 ** math.floor(math.log10(span / max(count, 1)))
        while span / step > count:
            step *= 2.5 if _leads_with(step, 2) else 2
        first = math.ceil(self.start / step - 1e-9)
        last = math.floor(self.end / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


class _Canvas:
    """Cells of 2 by 4 dots."""

    def __init__(self, width: int, height: int, letters: bool) -> None:
        self._width, self._height, self._letters = width, height, letters
        self._dots = [bytearray(width) for _ in range(height)]
        self._owners = [[-1] * width for _ in range(height)]

    def add(self, number: int, line: Line, x_axis: _Axis, y_axis: _Axis) -> None:
        """Draw each column as a bar, joined to the previous one."""
        right, bottom = 2 * self._width - 1, 4 * self._height - 1
        before: tuple[int, int, int] | None = None
        for x, low, high in line.columns:
            if not (math.isfinite(low) and math.isfinite(high)):
                before = None
                continue
            at = round(x_axis.fraction_of(x) * right)
            top = round((1 - y_axis.fraction_of(high)) * bottom)
            base = round((1 - y_axis.fraction_of(low)) * bottom)
            for y in range(top, base + 1):
                self._dot(number, at, y)
            if before is not None:
                self._join(number, before, (at, top, base))
            before = (at, top, base)

    def _join(self, number: int, left: tuple[int, int, int], right: tuple[int, int, int]) -> None:
        """Draw a line between the nearest ends of two bars."""
        if left[2] < right[1]:
            start, end = left[2], right[1]
        elif right[2] < left[1]:
            start, end = left[1], right[2]
        else:
            start = end = max(left[1], right[1])
        steps = max(abs(end - start), right[0] - left[0])
        for step in range(1, steps):
            share = step / steps
            x = round(left[0] + share * (right[0] - left[0]))
            self._dot(number, x, round(start + share * (end - start)))

    def _dot(self, number: int, x: int, y: int) -> None:
        row, column = y // 4, x // 2
        self._dots[row][column] |= _DOTS[x % 2][y % 4]
        self._owners[row][column] = number

    def rows(self, colour: bool) -> Iterator[str]:
        for dots, owners in zip(self._dots, self._owners, strict=True):
            text = ""
            for dot, owner in zip(dots, owners, strict=True):
                cell = _mark(owner, dot, self._letters)
                text += click.style(cell, fg=_colour(owner)) if colour and dot else cell
            yield text


def _mark(owner: int, dots: int, letters: bool) -> str:
    if not dots:
        return " "
    return _LETTERS[owner % len(_LETTERS)] if letters else chr(_BRAILLE + dots)


def _colour(owner: int) -> str:
    return COLOURS[owner % len(COLOURS)]


def _legend(lines: Sequence[Line], style: Style, letters: bool, label_width: int) -> list[str]:
    margin = " " * (label_width + 2)
    rows, width = [margin], label_width + 2
    for number, line in enumerate(lines):
        mark = _LETTERS[number % len(_LETTERS)] if letters else "━━"
        shown = _plain(line.label) + ("" if _finite(line) else " (nothing)")
        size = len(mark) + len(shown) + 4
        if width + size > style.width and rows[-1].strip():
            rows.append(margin)
            width = label_width + 2
        rows[-1] += click.style(mark, fg=_colour(number)) + f" {shown}   "
        width += size
    return [line.rstrip() for line in rows]


def _plain(name: str) -> str:
    """A name from a script, without control characters."""
    return "".join(c if c.isprintable() else "�" for c in name)


def _notes(lines: Sequence[Line], log: bool) -> list[str]:
    """What is not drawn, and why."""
    values = [y for line in lines for column in line.columns for y in column[1:]]
    notes = []
    if any(not math.isfinite(value) for value in values):
        notes.append("some values are NaN or infinite and are not drawn")
    if log and any(value <= 0 for value in values):
        notes.append("some values are 0 or negative and are not drawn on a logarithmic axis")
    return notes


def _logarithms(line: Line) -> Line:
    """The line's logarithms; a column that goes down to 0 is drawn at its largest value."""
    columns = []
    for x, low, high in line.columns:
        top = math.log10(high) if 0 < high < math.inf else math.nan
        base = math.log10(low) if 0 < low < math.inf else top
        columns.append((x, base if math.isfinite(low) else math.nan, top))
    return Line(line.label, columns)


def _log_labels(axis: _Axis, height: int) -> dict[int, str]:
    """Powers of ten by row, every so many that they fit; 2 and 5 times them where they are few."""
    first, last = math.floor(axis.start), math.ceil(axis.end)
    limit = max(height // 2, 1)
    step = next(step for step in _DECADES if (last - first) / step <= limit)
    factors = (1, 2, 5) if last - first <= max(height // 6, 1) else (1,)
    rows: dict[int, str] = {}
    for exponent in range(first - first % step, last + 1, step):
        for factor in factors:
            fraction = axis.fraction_of(exponent + math.log10(factor))
            # As text: 10.0 ** exponent may not be a float any more.
            number = f"{factor}e{exponent}"
            if 0 <= fraction <= 1:
                rows.setdefault(
                    round((1 - fraction) * (4 * height - 1)) // 4, _number(float(number))
                )
    if rows:
        return rows
    return {height - 1: _number(10**axis.start), 0: _number(10**axis.end)}


def _labels(axis: _Axis, height: int) -> dict[int, str]:
    """The round numbers of the vertical axis, by row."""
    ticks = axis.ticks(max(height // 3, 2))
    decimals = _decimals(ticks)
    rows = {}
    for tick in ticks:
        fraction = axis.fraction_of(tick)
        if 0 <= fraction <= 1:
            rows[round((1 - fraction) * (4 * height - 1)) // 4] = _number(tick, decimals)
    return rows or {height - 1: _number(axis.start), 0: _number(axis.end)}


def _x_axis(axis: _Axis, width: int, label_width: int, unit: str) -> list[str]:
    rule, text = ["─"] * width, [" "] * width
    free = 0
    for tick in axis.ticks(max(width // (_LABEL_WIDTH + 4), 1)):
        at = round(axis.fraction_of(tick) * (width - 1))
        label = f"{_number(tick)} {unit}".rstrip()
        start = min(max(at - len(label) // 2, 0), width - len(label))
        if start < free or not 0 <= at < width:
            continue
        rule[at] = "┬"
        text[start : start + len(label)] = label
        free = start + len(label) + 2
    margin = " " * (label_width + 1)
    return [f"{margin}└{''.join(rule)}", f"{margin} {''.join(text)}".rstrip()]


def _finite(line: Line) -> list[tuple[float, float, float]]:
    return [
        column for column in line.columns if math.isfinite(column[1]) and math.isfinite(column[2])
    ]


def _padded(low: float, high: float, log: bool = False) -> tuple[float, float]:
    """The range of the vertical axis; a flat line runs through its middle."""
    if low < high:
        return low, high
    if log:
        return low - 0.5, high + 0.5
    padding = abs(low) / 10 or 1.0
    return low - padding, high + padding


def _number(value: float, decimals: int | None = None) -> str:
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3g}"
    if decimals is not None:
        return f"{value:.{decimals}f}"
    return f"{value:.10g}"


def _decimals(ticks: Sequence[float]) -> int:
    """As many decimals as distinguish the ticks."""
    if len(ticks) < 2:
        return 3
    step = abs(ticks[1] - ticks[0])
    if not math.isfinite(step) or not step:
        return 3
    first = max(0, -math.floor(math.log10(step) + 1e-9))
    scaled = step * 10**first
    return first + (1 if abs(scaled - round(scaled)) > 1e-6 else 0)


def _leads_with(value: float, digit: int) -> bool:
    return round(value / 10.0 ** math.floor(math.log10(value) + 1e-9)) == digit
