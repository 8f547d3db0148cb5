"""`yard audit`: who did what, when, from where and with which outcome."""

from __future__ import annotations

from typing import Any

import click

from torchyard.cli.parsing import amounts
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common
from torchyard.cli.terminal import tables

_COLUMNS: list[tables.Column] = [
    ("WHEN", lambda line: tables.moment(line["at"])),
    ("WHO", lambda line: _who(line)),
    ("OUTCOME", lambda line: line["outcome"]),
    ("REQUEST", lambda line: f"{line['method']} {line['path']}"),
    ("FROM", lambda line: line["from"]),
    ("DETAILS", lambda line: _about(line)),
]


@click.command("audit", cls=Verb)
@click.option("--user", default="", metavar="NAME", help="List only this user's requests.")
@click.option("--since", default="", metavar="TIME", help="Start: `2h` or `7d` ago, or a date.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=100,
    metavar="COUNT",
    show_default=True,
    help="Number of entries, newest first.",
)
@click.option("--here", is_flag=True, help="List only this workspace's entries; its owners may.")
@common
def audit(session: Session, user: str, since: str, limit: int, here: bool) -> None:
    """List who changed what and whose requests were refused, newest first; for owners.

    \b
    Example: yard audit --user anna --since 7d
             yard audit --here -w vision -o json
    """
    start = amounts.earlier(since) if since else ""
    lines = session.client().users.audit(user, start, limit, everywhere=not here)
    tables.rows(session.form, lines.raw, _COLUMNS)


def _who(line: dict[str, Any]) -> str:
    name = line.get("user") or "(nobody)"
    return f"{name}, by job {line['job']}" if line.get("job") else name


def _about(line: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in (line.get("about") or {}).items())
