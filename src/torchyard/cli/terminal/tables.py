"""Print results: tables and pages for people, JSON, YAML and TSV for programs.

Owns: `-o` and `--query`, columns that fit the terminal, times and sizes for people.
Leaves: what to print to the commands.
Always: programs get the whole result, never cut to fit; jmespath is imported only for a query.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from torchyard.base import clock
from torchyard.base.errors import InvalidInput
from torchyard.base.terminal_text import coloured, escaped_json, plain
from torchyard.client.times import duration, seconds_between

OUTPUTS = ("table", "json", "jsonc", "yaml", "yamlc", "tsv", "none")

Column = tuple[str, Callable[[Any], Any]]
"""A heading, and the function that gets the cell from a row."""

_NARROWEST = 8
# Of a list of strings within one field.
_MOST_SHOWN = 20
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_COLOURS = {"Completed": "green", "Failed": "red", "Canceled": "yellow", "Running": "cyan"}


@dataclass(frozen=True)
class Form:
    """How to print: one of `OUTPUTS`, and a JMESPath query over the result or none.

    As with `az`, a query without `-o` prints JSON.
    """

    output: str | None = None
    query: str = ""

    @property
    def kind(self) -> str:
        return self.output or ("json" if self.query else "table")


def rows(form: Form, items: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> None:
    """Print a list."""
    if form.query:
        _queried(form, items)
    elif form.kind == "table":
        _table(items, columns)
    elif form.kind == "tsv":
        for row in items:
            click.echo("\t".join(_flat(value(row)) for _, value in columns))
    else:
        _print_item(form.kind, items)


def one(form: Form, item: Mapping[str, Any], page: Callable[[], str]) -> None:
    """Print one item; `page` makes the text for people."""
    if form.query:
        _queried(form, item)
    elif form.kind == "table":
        click.echo(coloured(page()))
    elif form.kind == "tsv":
        click.echo("\t".join(_flat(value) for value in item.values()))
    else:
        _print_item(form.kind, item)


def files(form: Form, written: Sequence[Path]) -> None:
    """Print the files that a download has written."""
    items = [{"path": str(path), "size_bytes": path.stat().st_size} for path in written]
    rows(
        form,
        items,
        [("FILE", lambda row: row["path"]), ("BYTES", lambda row: row["size_bytes"])],
    )


def done(form: Form, item: Mapping[str, Any], text: str) -> None:
    """Report that something is done: to people on stderr, to programs as a result."""
    if form.kind == "table":
        click.echo(coloured(text), err=True)
    else:
        one(form, item, lambda: text)


def fields(pairs: Iterable[tuple[str, Any]]) -> str:
    """`name  value` lines, aligned; empty values left out."""
    filled = [(name, _shown(value)) for name, value in pairs if value not in (None, "", [], {})]
    width = max((width_of(name) for name, _ in filled), default=0)
    return "\n".join(f"{name}{' ' * (width - width_of(name))}  {value}" for name, value in filled)


def titled(item: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The fields of `item` with their names in words, the name first, times in this zone."""
    keys = sorted(item, key=lambda key: key != "name")
    return [(key.replace("_", " ").capitalize(), _worded(key, item[key])) for key in keys]


def _worded(key: str, value: Any) -> Any:
    if key.endswith("_at") and isinstance(value, str):
        return "" if value.startswith("1970-") else moment(value)
    if isinstance(value, dict) and not any(isinstance(v, (dict, list)) for v in value.values()):
        # Several lines, such as those of `pip_requirements`, would look like fields of their own.
        texts = (f"{inner}={_shown(v).strip()}" for inner, v in value.items())
        return plain(", ".join(text.replace("\n", " ") for text in texts))
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        more = len(value) - _MOST_SHOWN
        shown = ", ".join(value[:_MOST_SHOWN])
        return f"{shown} and {more} more: see `-o json`" if more > 0 else shown
    return plain(value) if isinstance(value, str) else value


def status(text: str) -> str:
    """A status in its colour, which click removes if there is no terminal."""
    return click.style(text, fg=_COLOURS.get(text))


def moment(text: str | None) -> str:
    """A time from the server in this machine's zone."""
    if not text:
        return ""
    try:
        return clock.from_text(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return text


def since(start: str | None, end: str | None, took_s: float | None = None) -> str:
    """How long it took, or has taken until now.

    Args:
        took_s: as it was measured, None where it was not.
    """
    if took_s is not None:
        return duration(took_s)
    if start and not end:
        now = datetime.now().astimezone()
        return duration((now - clock.from_text(start)).total_seconds())
    return duration(seconds_between(start, end))


def number(value: Any) -> str:
    """A metric's value, short."""
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def for_json(value: Any) -> Any:
    """Replace NaN and infinities, which JSON lacks, by strings, as the server does."""
    if isinstance(value, dict):
        return {key: for_json(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [for_json(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def _print_item(kind: str, value: Any) -> None:
    if kind in ("json", "jsonc"):
        click.echo(escaped_json(json.dumps(value, indent=2, ensure_ascii=False)))
    elif kind in ("yaml", "yamlc"):
        click.echo(yaml_text(_plain(value)).removesuffix("...\n"), nl=False)


def yaml_text(value: Any) -> str:
    """YAML of plain dicts and lists, without characters that a terminal could act on."""
    import yaml

    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    if text.replace("\n", "").isprintable():
        return text
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=False)


def _queried(form: Form, value: Any) -> None:
    """Print the query's result as `az` does: one line or row per item."""
    answer = _search(form.query, _plain(value))
    matches = answer if isinstance(answer, list) else [answer]
    if form.kind == "tsv":
        for match in matches:
            cells = match.values() if isinstance(match, dict) else match
            many = isinstance(match, (dict, list))
            click.echo("\t".join(_flat(cell) for cell in cells) if many else _flat(match))
    elif form.kind != "table":
        _print_item(form.kind, answer)
    elif answer is not None:
        _table([_row(match) for match in matches], _columns_of([_row(match) for match in matches]))


def _row(match: Any) -> dict[str, Any]:
    if isinstance(match, dict):
        return match
    if isinstance(match, list):
        return {f"column {n}": cell for n, cell in enumerate(match, 1)}
    return {"result": match}


def _columns_of(items: Sequence[Mapping[str, Any]]) -> list[Column]:
    keys = dict.fromkeys(key for row in items for key in row)
    return [(key.upper().replace("_", " "), partial(_cell, key)) for key in keys]


def _cell(key: str, row: Mapping[str, Any]) -> Any:
    return row.get(key)


def _search(query: str, value: Any) -> Any:
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        return jmespath.search(query, value)
    except (JMESPathError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(":")
        raise InvalidInput(
            f"`--query {query}` is not a JMESPath query ({reason})",
            "examples: `--query status`, `--query '[].name'`; see https://jmespath.org",
        ) from error


def _plain(value: Any) -> Any:
    """Copy into plain dicts and lists, which YAML and JMESPath need."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def table_text(items: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> str:
    """Rows, at least one, below their headings; no wider than the terminal."""
    cells = [[_flat(value(row)) for _, value in columns] for row in items]
    widths = [
        max(width_of(heading), *(width_of(row[n]) for row in cells))
        for n, (heading, _) in enumerate(columns)
    ]
    if sys.stdout.isatty():
        _fit(widths, shutil.get_terminal_size().columns)
    lines = [[plain(heading) for heading, _ in columns], ["-" * width for width in widths], *cells]
    texts = [
        "  ".join(_cut(cell, width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([click.style(texts[0], bold=True), *texts[1:]])


def _table(items: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> None:
    if items:
        click.echo(table_text(items, columns))
    elif sys.stderr.isatty():
        click.echo("Nothing to list.", err=True)


def _fit(widths: list[int], columns: int) -> None:
    """Shrink the widest columns until all fit or none can shrink further.

    The first column has the names that other commands take: it is cut last.
    """
    for first in (1, 0):
        while sum(widths) + 2 * (len(widths) - 1) > columns:
            widest = max(range(first, len(widths)), key=widths.__getitem__, default=0)
            if len(widths) <= first or widths[widest] <= _NARROWEST:
                break
            widths[widest] -= 1


def _cut(text: str, width: int) -> str:
    if len(text) > width and _MOMENT.fullmatch(text):
        text = text[: 16 if width >= 16 else 10]  # to the minute, or the day
    missing = width - width_of(text)
    if missing >= 0:
        return text + " " * missing
    start = beginning(text, width - 1)
    return start + "…" + " " * (width - 1 - width_of(start))


def beginning(text: str, columns: int) -> str:
    """As much of the text as `columns` hold."""
    for index, character in enumerate(text):
        columns -= width_of(character)
        if columns < 0:
            return text[:index]
    return text


def width_of(text: str) -> int:
    """How many columns `text` takes in a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _flat(value: Any) -> str:
    """The value on one line, without control characters."""
    return plain(" ".join(_shown(value).split()))


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
