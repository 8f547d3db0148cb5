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
    rows_to_show = [
        (row_name, values) for row_name, values in compared if not diff or _differ(values)
    ]
    if session.form.kind not in ("table", "tsv") or session.form.query:
        tables.rows(
            session.form,
            [_for_programs(row_name, names, values) for row_name, values in rows_to_show],
            [],
        )
        return
    if not rows_to_show and session.form.kind == "table":
        click.echo("There are no differences.", err=True)
        return
    for_people = session.form.kind == "table"
    cell, named = (_short, _named) if for_people else (_full_value, str)
    columns: list[tables.Column] = [("", lambda row: row["what"])]
    columns += [(name, partial(_cell, cell, index)) for index, name in enumerate(names)]
    if not diff:
        columns.append(("", lambda row: "≠" if _differ(row["values"]) else ""))
    tables.rows(
        session.form,
        [{"what": named(row_name), "values": values} for row_name, values in rows_to_show],
        columns,
    )


def _named(row_name: str) -> str:
    """As lists of jobs name it."""
    key = row_name.removeprefix("metrics.")
    return row_name if key == row_name else f"last {key}"


def _for_programs(row_name: str, names: Sequence[str], values: list[Any]) -> dict[str, Any]:
    """A key for each job; a job called `row_name` is hidden by the row's own key."""
    row = {"what": row_name, "different": _differ(values)}
    return row | dict(zip(names, tables.for_json(values), strict=True)) | row


def _differ(values: list[Any]) -> bool:
    # By their text: a NaN is not equal to itself, but two NaNs don't differ.
    return len({repr(value) for value in values}) > 1


def _cell(cell: Callable[[Any], Any], index: int, row: dict[str, Any]) -> Any:
    return cell(row["values"][index])


def _full_value(value: Any) -> Any:
    return "-" if value is None else value


def _short(value: Any) -> str:
    text = tables.number(value)
    if isinstance(value, (bool, list, dict)):
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
