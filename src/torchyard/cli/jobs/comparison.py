"""`yard job compare`: jobs side by side.

Owns: the verb, its table.
Leaves: what is compared to client/job_history.py.
Always: a missing value is shown differently from an empty one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common, many_names
from torchyard.cli.terminal import tables

# A command can be a page long: tables cut it, other formats don't.
_LONGEST = 60


@click.command("compare", cls=Verb)
@many_names("job", "jobs")
@click.option("--diff", is_flag=True, help="Show only differences.")
@common
def compare(session: Session, names: tuple[str, ...], diff: bool) -> None:
    """Compare jobs side by side: parameters, metrics, inputs, environment, code, duration.

    Example: yard job compare brave-otter calm-lynx --diff
    """
    if len(names) < 2:
        raise click.UsageError("Name at least two jobs.")
    compared = session.client().jobs.compare(names)
    kept = [(what, values) for what, values in compared if not diff or _differ(values)]
    if session.form.kind not in ("table", "tsv") or session.form.query:
        tables.rows(session.form, [_for_programs(what, names, values) for what, values in kept], [])
        return
    if not kept and session.form.kind == "table":
        click.echo("There are no differences.", err=True)
        return
    cell = _short if session.form.kind == "table" else _full_value
    columns: list[tables.Column] = [("", lambda row: row["what"])]
    columns += [(name, partial(_cell, cell, place)) for place, name in enumerate(names)]
    if not diff:
        columns.append(("", lambda row: "≠" if _differ(row["values"]) else ""))
    tables.rows(session.form, [{"what": what, "values": values} for what, values in kept], columns)


def _for_programs(what: str, names: Sequence[str], values: list[Any]) -> dict[str, Any]:
    """A key for each job; a job called `what` is hidden by the row's own key."""
    row = {"what": what, "different": _differ(values)}
    return row | dict(zip(names, tables.for_json(values), strict=True)) | row


def _differ(values: list[Any]) -> bool:
    # By their text: a NaN is not equal to itself, but two NaNs don't differ.
    return len({repr(value) for value in values}) > 1


def _cell(cell: Callable[[Any], Any], place: int, row: dict[str, Any]) -> Any:
    return cell(row["values"][place])


def _full_value(value: Any) -> Any:
    return "-" if value is None else value


def _short(value: Any) -> str:
    text = tables.number(value)
    if isinstance(value, (bool, list, dict)):
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
