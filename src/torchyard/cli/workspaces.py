"""`yard workspace …`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from torchyard.cli import tables
from torchyard.cli.group import noun
from torchyard.cli.options import Session, common

group = noun("workspace")

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda workspace: workspace["name"]),
    ("LOCATION", lambda workspace: workspace.get("location")),
    ("RESOURCE GROUP", lambda workspace: workspace.get("resource_group")),
    ("SUBSCRIPTION", lambda workspace: workspace.get("subscription_id")),
]


@group.command("show")
@click.argument("given", metavar="[NAME]", required=False)
@click.option("-n", "--name", default="", help="The workspace; the one meant here when absent.")
@common
def show(session: Session, given: str | None, name: str) -> None:
    """Show the workspace.

    Example: yard workspace show
    """
    client = session.client()
    found = client.workspaces.get(name or given or client.workspace)
    tables.one(session.output, found, lambda: tables.fields(tables.titled(found)))


@group.command("list")
@common
def list_workspaces(session: Session) -> None:
    """List workspaces.

    Example: yard workspace list
    """
    tables.rows(session.output, session.client().workspaces.list(), _COLUMNS)


@group.command("config")
@click.option(
    "-p",
    "--path",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("."),
    metavar="DIR",
    help="Where `.azureml/config.json` is written. Default: here.",
)
@common
def config(session: Session, path: Path) -> None:
    """Write config.json, which Azure ML's SDKs and `yard` read, into `.azureml/`.

    Example: yard workspace config
    """
    client = session.client()
    found = client.workspaces.get(client.workspace)
    body = {
        "subscription_id": found["subscription_id"],
        "resource_group": found["resource_group"],
        "workspace_name": found["name"],
    }
    file = path / ".azureml" / "config.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(body, indent=2) + "\n")
    tables.one(session.output, body, lambda: f"Wrote {file}")
