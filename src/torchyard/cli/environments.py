"""`yard environment …`."""

from __future__ import annotations

import click

from torchyard.cli import tables
from torchyard.cli.group import noun
from torchyard.cli.options import (
    Session,
    archivable,
    at_most,
    common,
    many,
    named,
    names_of,
    version_of,
    versioned,
)

group = noun("environment")

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda environment: environment["name"]),
    ("VERSION", lambda environment: environment.get("version")),
    ("DESCRIPTION", lambda environment: environment.get("description")),
    ("PACKAGES", lambda environment: ", ".join(map(str, environment.get("packages") or []))),
]


@group.command("list")
@click.option(
    "-n",
    "--name",
    default="",
    help="Versions of this one.",
    shell_complete=names_of("environments"),
)
@many
@archivable
@common
def list_environments(session: Session, name: str, max_results: int | None, archived: str) -> None:
    """List the environments that jobs may name.

    Example: yard environment list
    """
    found = session.client().environments.list(name, archived=archived != "no")
    tables.rows(session.form, at_most(found, archived, max_results), _COLUMNS)


@group.command("show")
@named("environment", "environments")
@versioned
@common
def show(session: Session, name: str, version: str, label: str) -> None:
    """Show one environment: what is in it.

    Example: yard environment show -n python
    """
    name, version = version_of(name, version, label)
    found = session.client().environments.get(name, version or "latest")
    tables.one(session.form, found, lambda: tables.fields(tables.titled(found)))
