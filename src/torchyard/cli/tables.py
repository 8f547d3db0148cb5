"""Print answers: tables and pages for people, JSON, YAML and TSV for programs.

Owns: `-o`, columns that fit the terminal, times and sizes for people.
Leaves: what to print to the commands.
Always: what a program reads is the whole answer, not what fits; nothing here imports rich.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from torchyard.base import clock

OUTPUTS = ("table", "json", "jsonc", "yaml", "yamlc", "tsv", "none")

Column = tuple[str, Callable[[Any], Any]]
"""A heading, and what stands below it for one row."""

_NARROWEST = 12
_COLOURS = {"Completed": "green", "Failed": "red", "Canceled": "yellow", "Running": "cyan"}


def rows(output: str, found: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> None:
    """Print a list."""
    if output == "table":
        _table(found, columns)
    elif output == "tsv":
        for row in found:
            click.echo("\t".join(_flat(value(row)) for _, value in columns))
    else:
        _whole(output, found)


def one(output: str, found: Mapping[str, Any], page: Callable[[], str]) -> None:
    """Print one thing; `page` makes the text for people."""
    if output == "table":
        click.echo(page())
    elif output == "tsv":
        click.echo("\t".join(_flat(value) for value in found.values()))
    else:
        _whole(output, found)


def fields(pairs: Iterable[tuple[str, Any]]) -> str:
    """`name  value` lines, aligned; empty values left out."""
    kept = [(name, _shown(value)) for name, value in pairs if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in kept), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in kept)


def titled(found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Every field of `found` under its name in words."""
    return [(key.replace("_", " ").capitalize(), value) for key, value in found.items()]


def status(text: str) -> str:
    """A status in its colour; click takes the colour away where there is no terminal."""
    return click.style(text, fg=_COLOURS.get(text))


def moment(text: str | None) -> str:
    """A time of the server in this machine's zone."""
    if not text:
        return ""
    try:
        return clock.from_text(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return text


def seconds_between(start: str | None, end: str | None) -> float | None:
    """None when one of them is missing."""
    if not start or not end:
        return None
    return (clock.from_text(end) - clock.from_text(start)).total_seconds()


def duration(seconds: float | None) -> str:
    """A length of time for people: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def since(start: str | None, end: str | None) -> str:
    """How long it took, or has taken until now."""
    if start and not end:
        now = datetime.now().astimezone()
        return duration((now - clock.from_text(start)).total_seconds())
    return duration(seconds_between(start, end))


def number(value: Any) -> str:
    """A metric's value, short."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _whole(output: str, found: Any) -> None:
    if output in ("json", "jsonc"):
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
    elif output in ("yaml", "yamlc"):
        import yaml

        click.echo(yaml.safe_dump(found, sort_keys=False, allow_unicode=True), nl=False)


def _table(found: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> None:
    if not found:
        return
    cells = [[_flat(value(row)) for _, value in columns] for row in found]
    widths = [
        max(len(heading), *(len(row[n]) for row in cells)) for n, (heading, _) in enumerate(columns)
    ]
    if sys.stdout.isatty():
        _fit(widths, shutil.get_terminal_size().columns)
    lines = [[heading for heading, _ in columns], ["-" * width for width in widths], *cells]
    for n, line in enumerate(lines):
        text = "  ".join(_cut(cell, width) for cell, width in zip(line, widths, strict=True))
        click.echo(click.style(text.rstrip(), bold=True) if n == 0 else text.rstrip())


def _fit(widths: list[int], columns: int) -> None:
    """Take width from the widest until all fit, or nothing is left to take."""
    while sum(widths) + 2 * (len(widths) - 1) > columns and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1


def _cut(text: str, width: int) -> str:
    return f"{text:<{width}}" if len(text) <= width else text[: width - 1] + "…"


def _flat(value: Any) -> str:
    return " ".join(_shown(value).split())


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
