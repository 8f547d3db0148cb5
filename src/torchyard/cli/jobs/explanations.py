"""`yard job explain`: why a job ran.

Owns: the verb, the table of reasons.
Leaves: requests to client/, what differs to the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torchyard.base.terminal_text import plain
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common, name_argument
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from collections.abc import Mapping

_COLUMNS: list[tables.Column] = [
    ("STEP", lambda row: row["step"] or row["job"]),
    ("RAN", lambda row: _ran(row)),
    ("WHY", lambda row: plain("; ".join(row["reasons"]))),
]


@click.command("explain", cls=Verb)
@name_argument("job", "jobs")
@common
def explain(session: Session, name: str) -> None:
    """Say of each step of a pipeline why it ran, or what it was reused from.

    Of a job without steps: what differs from the last job of its experiment.

    Example: yard job explain -n nightly
    """
    found = session.client().pipelines.explain(name)
    tables.rows(session.form, [each.raw for each in found], _COLUMNS)


def _ran(row: Mapping[str, Any]) -> str:
    if row["is_reused"]:
        return "reused"
    return row["job"] and "ran"
