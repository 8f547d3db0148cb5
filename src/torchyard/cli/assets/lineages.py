"""The verb `lineage`, of jobs, data and models.

Owns: its table.
Leaves: requests to client/, what belongs to a lineage to the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torchyard.base.terminal_text import plain
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common, name_argument, version_of, versioned
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from torchyard.client.lineage import Lineage

_COLUMNS: list[tables.Column] = [
    ("FROM", lambda row: plain(row["from"])),
    ("OUTPUT", lambda row: row["output"]),
    ("TO", lambda row: plain(row["to"])),
    ("INPUT", lambda row: row["input"]),
    ("STATUS", lambda row: tables.status(row["status"])),
]


@click.command("lineage", cls=Verb)
@name_argument("job", "jobs")
@common
def of_job(session: Session, name: str) -> None:
    """Show what a job was made of, and what was made of it.

    Of a pipeline: of its steps. Each line leads from what was there to what was made of it.

    Example: yard job lineage -n brave-otter
    """
    _show(session, session.client().lineage.job(name))


def add(group: click.Group, noun: str, attribute: str, word: str, example: str) -> None:
    """Add the verb for assets of a kind, called as in `verbs.Kind`."""

    @group.command(
        "lineage",
        help=f"Show what a {noun} was made of, and what was made of it.\n\n"
        f"Example: yard {word} lineage -n {example} -v 1",
    )
    @name_argument(noun, attribute)
    @versioned
    @common
    def of_asset(session: Session, name: str, version: str, label: str) -> None:
        name, version = version_of(name, version, label)
        lineages = session.client().lineage
        _show(session, getattr(lineages, word)(name, version or "latest"))


def _show(session: Session, lineage: Lineage) -> None:
    if session.form.kind not in ("table", "tsv") or session.form.query:
        tables.one(session.form, lineage.raw, str)
        return
    by_id = {node.id: node for node in lineage.nodes}
    rows: list[dict[str, Any]] = [
        {
            "from": edge.source,
            "output": edge.output,
            "to": edge.target,
            "input": edge.input,
            "status": by_id[edge.target].status,
        }
        for edge in lineage.edges
    ]
    if not rows and session.form.kind == "table":
        click.echo("No data leads to it, and nothing was made of it.", err=True)
        return
    tables.rows(session.form, rows, _COLUMNS)
    if not lineage.is_whole:
        click.echo(f"Only the nearest {len(lineage.nodes)} are shown.", err=True)
