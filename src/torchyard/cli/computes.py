"""`yard compute …`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from torchyard.base.errors import TorchyardError
from torchyard.cli import tables
from torchyard.cli.group import noun
from torchyard.cli.options import Session, common, confirm, named

group = noun("compute")

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda compute: compute["name"]),
    ("TYPE", lambda compute: compute.get("type")),
    ("SIZE", lambda compute: compute.get("size")),
    ("MIN", lambda compute: compute.get("min_instances")),
    ("MAX", lambda compute: compute.get("max_instances")),
    ("BUSY", lambda compute: compute.get("current_node_count")),
    ("STATE", lambda compute: compute.get("provisioning_state")),
]


@group.command("create")
@click.option("-f", "--file", default="", metavar="FILE", help="The compute's file (YAML).")
@click.option("--set", "assignments", multiple=True, metavar="A.B=VALUE", help="Set a key.")
@click.option("-n", "--name", default=None, help="The compute's name.")
@click.option("-t", "--type", "kind", default=None, help="amlcompute.")
@click.option("-s", "--size", default=None, help="The size of a node, as STANDARD_D2_V2.")
@click.option("--min-instances", type=int, default=None, help="Nodes kept when idle.")
@click.option("--max-instances", type=int, default=None, help="Nodes at most.")
@click.option(
    "--idle-time-before-scale-down", type=int, default=None, metavar="SECONDS", help="In seconds."
)
@click.option("--tier", default=None, help="dedicated or low_priority.")
@click.option("--description", default=None, help="In your words.")
@common
def create(
    session: Session, file: str, assignments: tuple[str, ...], kind: str | None, **given: Any
) -> None:
    """Create a cluster, or change one.

    Example: yard compute create -n cpu-cluster --type amlcompute --size STANDARD_D2_V2
    --max-instances 4
    """
    from torchyard.cli import documents

    document = documents.read(file) if file else documents.empty("the command", Path.cwd())
    for assignment in assignments:
        document.set(assignment)
    document.fill({"type": kind, **given})
    try:
        found = session.client().computes.create(document.value)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    _print(session, found)


@group.command("list")
@common
def list_computes(session: Session) -> None:
    """List clusters.

    Example: yard compute list
    """
    tables.rows(session.output, session.client().computes.list(), _COLUMNS)


@group.command("show")
@named("compute")
@common
def show(session: Session, name: str) -> None:
    """Show one cluster.

    Example: yard compute show -n cpu-cluster
    """
    _print(session, session.client().computes.get(name))


@group.command("delete")
@named("compute")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@click.option("--no-wait", is_flag=True, expose_value=False, help="Taken as `az ml` does.")
@common
def delete(session: Session, name: str, yes: bool) -> None:
    """Delete a cluster.

    Example: yard compute delete -n cpu-cluster --yes
    """
    client = session.client()
    client.computes.get(name)
    confirm(f"Delete compute `{name}`?", yes)
    client.computes.delete(name)
    if session.output == "table":
        click.echo(f"Compute `{name}` is deleted.", err=True)


def _print(session: Session, compute: dict[str, Any]) -> None:
    tables.one(session.output, compute, lambda: tables.fields(tables.titled(compute)))
