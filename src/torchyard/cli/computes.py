"""`yard compute …`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torchyard.base.errors import InvalidInput, TorchyardError
from torchyard.cli import tables
from torchyard.cli.group import noun
from torchyard.cli.options import (
    Session,
    at_most,
    common,
    confirm,
    filed,
    many,
    named,
    tagged,
)

if TYPE_CHECKING:
    from torchyard.cli.documents import Document

group = noun("compute")

Command = TypeVar("Command", bound=Callable[..., Any])

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda compute: compute["name"]),
    ("TYPE", lambda compute: compute.get("type")),
    ("SIZE", lambda compute: compute.get("size")),
    ("MIN", lambda compute: compute.get("min_instances")),
    ("MAX", lambda compute: compute.get("max_instances")),
    ("BUSY", lambda compute: compute.get("current_node_count")),
    ("STATE", lambda compute: compute.get("provisioning_state")),
]


def _sized(command: Command) -> Command:
    """What a cluster can be given on the command line."""
    for option in reversed(_SIZE_OPTIONS):
        command = option(command)
    return command


_SIZE_OPTIONS = (
    click.option("--min-instances", type=int, default=None, help="Nodes kept when idle."),
    click.option("--max-instances", type=int, default=None, help="Nodes at most."),
    click.option(
        "--idle-time-before-scale-down",
        type=int,
        default=None,
        metavar="SECONDS",
        help="In seconds.",
    ),
    click.option("--tier", default=None, help="dedicated or low_priority."),
    click.option("--description", default=None, help="In your words."),
    click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags."),
    click.option("--no-wait", is_flag=True, expose_value=False, help="Taken as `az ml` does."),
)


@group.command("create")
@click.option("-n", "--name", default=None, help="The compute's name.")
@click.option("-t", "--type", "kind", default=None, help="amlcompute.")
@click.option("-s", "--size", default=None, help="The size of a node, as STANDARD_D2_V2.")
@click.option("-l", "--location", default="", help="Taken as `az ml` does; says nothing here.")
@_sized
@common
@filed("compute")
def create(
    session: Session,
    document: Document,
    kind: str | None,
    location: str,
    tags: tuple[str, ...],
    **given: Any,
) -> None:
    """Create a cluster, or change one.

    Example: yard compute create -n cpu-cluster --type amlcompute --size STANDARD_D2_V2
    --max-instances 4
    """
    document.fill({"type": kind, "tags": tagged(tags), **given})
    try:
        found = session.client().computes.create(document.value)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    _print(session, found)


@group.command("update")
@named("compute", "computes")
@_sized
@common
@filed("compute")
def update(
    session: Session, document: Document, name: str, tags: tuple[str, ...], **given: Any
) -> None:
    """Change a cluster; what is not given stays as it is.

    Example: yard compute update -n cpu-cluster --max-instances 8
    """
    document.fill({"tags": tagged(tags), **given})
    if not document.value:
        raise InvalidInput("nothing is to be changed", "write `--max-instances 4`, or `--set a=b`")
    try:
        found = session.client().computes.update(name, document.value)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    _print(session, found)


@group.command("list")
@click.option("-t", "--type", "kind", default="", help="Only this type.")
@many
@common
def list_computes(session: Session, kind: str, max_results: int | None) -> None:
    """List clusters.

    Example: yard compute list
    """
    found = session.client().computes.list()
    wanted = kind.lower()
    kept = [row for row in found if not wanted or str(row.get("type")).lower() == wanted]
    tables.rows(session.form, at_most(kept, "no", max_results), _COLUMNS)


@group.command("show")
@named("compute", "computes")
@common
def show(session: Session, name: str) -> None:
    """Show one cluster.

    Example: yard compute show -n cpu-cluster
    """
    _print(session, session.client().computes.get(name))


@group.command("delete")
@named("compute", "computes")
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
    tables.done(session.form, {"name": name, "deleted": True}, f"Compute `{name}` is deleted.")


def _print(session: Session, compute: dict[str, Any]) -> None:
    tables.one(session.form, compute, lambda: tables.fields(tables.titled(compute)))
