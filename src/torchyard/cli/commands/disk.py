"""`yard disk`: what fills the server's disk.

Owns: the verb and its page.
Leaves: measuring to the server.
Always: it changes nothing.
"""

from __future__ import annotations

from typing import Any

import click

from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common
from torchyard.cli.terminal import tables
from torchyard.shared.sizes import size_text

_SIZE: tables.Column = ("SIZE", lambda row: size_text(row["size_bytes"]))
_KINDS: list[tables.Column] = [("KIND", lambda row: row["kind"]), _SIZE]
_OWNERS: list[tables.Column] = [("OWNER", lambda row: row["owner"] or "(everyone)"), _SIZE]
_ITEMS: list[tables.Column] = [
    ("LARGEST", lambda row: row["name"]),
    ("KIND", lambda row: row["kind"]),
    ("WORKSPACE", lambda row: row["workspace"]),
    ("OWNER", lambda row: row["owner"]),
    _SIZE,
]


@click.command("disk", cls=Verb)
@click.option(
    "-r",
    "--max-results",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    metavar="COUNT",
    help="Maximum number of jobs, models, data assets and environments, largest first.",
)
@common
def disk(session: Session, max_results: int) -> None:
    """Show what fills the server's disk: by kind, by person, and the largest jobs and assets.

    Example: yard disk -r 50
    """
    transport = session.client().transport
    use: dict[str, Any] = transport.call("GET", "/v1/disk", query={"limit": max_results})
    tables.one(session.form, use, lambda: _page(use))


def _page(use: dict[str, Any]) -> str:
    total, free = size_text(use["total_bytes"]), size_text(use["free_bytes"])
    parts = [
        tables.table_text(rows, columns)
        for rows, columns in (
            (use["kinds"], _KINDS),
            (use["owners"], _OWNERS),
            (use["largest"], _ITEMS),
        )
        if rows
    ]
    hint = "Make room with `yard job delete`, `yard model delete`, `yard data delete`, `yard gc`."
    return "\n\n".join([*parts, f"{total} used, {free} free. {hint}"])
