"""`yard job compare`: jobs side by side.

Owns: the verb, its table.
Leaves: what is compared to client/job_history.py.
Always: a value that a job has not is told from one that is empty.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from torchyard.cli import tables
from torchyard.cli.group import Verb
from torchyard.cli.options import Session, common, many_names

# A command can be a page long, and a table is for the eye; `-o json` has it whole.
_LONGEST = 60


@click.command("compare", cls=Verb)
@many_names("job", "jobs")
@click.option("--diff", is_flag=True, help="Only what is different.")
@common
def compare(session: Session, names: tuple[str, ...], diff: bool) -> None:
    """Put jobs side by side: parameters, last metrics, inputs, environment, code, how long.

    Example: yard job compare brave-otter calm-lynx --diff
    """
    if len(names) < 2:
        raise click.UsageError("Two jobs are compared at least: write 'A B'.")
    rows = [
        {"what": what, "different": _differ(values), **dict(zip(names, values, strict=True))}
        for what, values in session.client().jobs.compare(names)
    ]
    kept = [row for row in rows if row["different"] or not diff]
    columns: list[tables.Column] = [("", lambda row: row["what"])]
    columns += [(name, partial(_cell, name)) for name in names]
    if not diff:
        columns.append(("", lambda row: "≠" if row["different"] else ""))
    if not kept and session.form.kind == "table":
        click.echo("There is no difference.", err=True)
        return
    tables.rows(session.form, kept, columns)


def _differ(values: list[Any]) -> bool:
    # A NaN is not itself, and two of them are no difference.
    return len({repr(value) for value in values}) > 1


def _cell(name: str, row: dict[str, Any]) -> str:
    value = row[name]
    if value is None:
        return "-"
    text = tables.number(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
