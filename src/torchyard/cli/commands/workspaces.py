"""`yard workspace …`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import InvalidInput, TorchyardError
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import (
    Session,
    accepts,
    changes_from,
    common,
    confirm,
    filed,
    tagged,
    with_session,
)
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from torchyard.cli.parsing.documents import Document
    from torchyard.client.workspaces import Workspace

group = noun("workspace")

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda workspace: workspace["name"]),
    ("LOCATION", lambda workspace: workspace.get("location")),
    ("RESOURCE GROUP", lambda workspace: workspace.get("resource_group")),
    ("SUBSCRIPTION", lambda workspace: workspace.get("subscription_id")),
]
_MAP_COLUMNS: list[tables.Column] = [
    ("PREFIX", lambda mapping: mapping["prefix"]),
    ("TARGET", lambda mapping: mapping["target"]),
]


@group.command("create")
@click.option("-n", "--name", default=None, help="Workspace name.")
@click.option("-l", "--location", default=None, help="Location, any text.")
@click.option("--display-name", default=None, help="Display name.")
@click.option("--description", default=None, help="Description.")
@click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags to set.")
@click.option(
    "-g", "--resource-group", default=None, metavar="NAME", help="Azure resource group to report."
)
@click.option("--subscription", default=None, metavar="ID", help="Azure subscription ID to report.")
@accepts("--no-wait")
@with_session
@filed("workspace")
def create(
    session: Session,
    document: Document,
    tags: tuple[str, ...],
    resource_group: str | None,
    subscription: str | None,
    **options: Any,
) -> None:
    """Create a workspace, which keeps its jobs, data and models apart from all others.

    Example: yard workspace create -n vision
    """
    azure = {
        "resource_group": resource_group or None,
        "subscription_id": subscription or None,
        "name": session.workspace or None if options["name"] is None else None,
    }
    document.fill(azure)
    document.fill({"tags": tagged(tags), **options})
    if not document.value.get("name"):
        raise InvalidInput("a workspace needs a name", "give one with `--name`")
    try:
        workspace = session.client().workspaces.create(document.value)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    _print(session, workspace)


@group.command("show")
@click.argument("argument", metavar="[NAME]", required=False)
@click.option("-n", "--name", default="", help="Workspace name. Default: the current one.")
@common
def show(session: Session, argument: str | None, name: str) -> None:
    """Show a workspace, by default the current one.

    Example: yard workspace show
    """
    wanted = _one_name(name, argument)
    client = session.client()
    workspace = client.workspaces.get(wanted or client.workspace)
    address = f"{client.transport.url}/mlflow/{workspace.name}"
    _print(session, replace(workspace, raw={**workspace.raw, "mlflow_tracking_uri": address}))


@group.command("list")
@common
def list_workspaces(session: Session) -> None:
    """List workspaces.

    Example: yard workspace list
    """
    tables.rows(session.form, session.client().workspaces.list().raw, _COLUMNS)


@group.command("update")
@click.argument("argument", metavar="[NAME]", required=False)
@click.option("-n", "--name", default="", help="Workspace name. Default: the current one.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="A.B=VALUE",
    help="Set description, retention_days, rehearse_on_cpu, allow_substitutes, max_processes, "
    "disk_quota_mb or network.",
)
@click.option("--description", default=None, help="Description.")
@click.option(
    "--retention-days",
    type=click.IntRange(min=0),
    default=None,
    metavar="DAYS",
    help="Delete jobs so many days after their end; 0 keeps them forever.",
)
@click.option(
    "--rehearse-on-cpu/--no-rehearse-on-cpu",
    default=None,
    help="Rehearse jobs on the CPU by default.",
)
@click.option(
    "--network",
    type=click.Choice(("open", "workspace", "none"), case_sensitive=False),
    default=None,
    help="What jobs may connect to: everything; the server and the job's other nodes; nothing.",
)
@click.option(
    "--allow-substitutes",
    type=click.Choice(("true", "false"), case_sensitive=False),
    default=None,
    callback=lambda context, parameter, value: None if value is None else value == "true",
    help="Replace Azure ML's published environments and images by torchyard's own. Default: true "
    "unless the server is shared.",
)
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@accepts("--no-wait")
@common
def update(
    session: Session,
    argument: str | None,
    name: str,
    assignments: tuple[str, ...],
    yes: bool,
    **options: Any,
) -> None:
    """Change a workspace's settings; for owners.

    Retention never deletes running jobs, nor jobs that models or data were registered from.

    Example: yard workspace update --retention-days 90
    """
    keys = (
        "description", "retention_days", "rehearse_on_cpu", "allow_substitutes", "max_processes",
        "disk_quota_mb", "network",
    )  # fmt: skip
    changes = changes_from(assignments, options, keys)
    wanted = _one_name(name, argument)
    client = session.client()
    workspace = wanted or client.workspace
    days = changes.get("retention_days")
    if isinstance(days, int) and days:
        confirm(f"Delete the jobs of workspace `{workspace}` {days} days after they end?", yes)
    _print(session, client.workspaces.update(workspace, changes))


@group.command("config")
@click.option(
    "-p",
    "--path",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("."),
    metavar="DIR",
    help="Write `.azureml/config.json` in DIR. Default: the current folder.",
)
@common
def config(session: Session, path: Path) -> None:
    """Write config.json, which Azure ML's SDKs and `yard` read, into `.azureml/`.

    Example: yard workspace config -w vision
    """
    client = session.client()
    workspace = client.workspaces.get(client.workspace)
    body = {
        "subscription_id": workspace.subscription_id,
        "resource_group": workspace.resource_group,
        "workspace_name": workspace.name,
    }
    file = path / ".azureml" / "config.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(body, indent=2) + "\n")
    tables.one(session.form, body, lambda: f"Wrote {file}")


@group.command("map-url")
@click.argument("prefix", required=False)
@click.argument("target", required=False)
@common
def map_url(session: Session, prefix: str | None, target: str | None) -> None:
    """Read URLs that begin with PREFIX from TARGET instead; without arguments, list mappings.

    Example: yard workspace map-url https://data.example.org/mnist
    azureml://datastores/nas/paths/mnist
    """
    client = session.client()
    if prefix is None:
        tables.rows(session.form, client.workspaces.url_maps(client.workspace).raw, _MAP_COLUMNS)
        return
    if target is None:
        raise click.UsageError(
            "The target is missing: use 'PREFIX TARGET', the target as "
            "'azureml://datastores/<datastore>/paths/<path>'."
        )
    mapping = client.workspaces.map_url(client.workspace, prefix, target)
    tables.done(
        session.form, mapping.raw, f"URLs that begin with `{prefix}` are read from `{target}`."
    )


@group.command("unmap-url")
@click.argument("prefix")
@common
def unmap_url(session: Session, prefix: str) -> None:
    """Remove a mapping, so that URLs that begin with PREFIX are read as they are.

    Example: yard workspace unmap-url https://data.example.org/mnist
    """
    client = session.client()
    client.workspaces.unmap_url(client.workspace, prefix)
    tables.done(session.form, {"prefix": prefix}, f"`{prefix}` is no longer mapped.")


def _one_name(name: str, argument: str | None) -> str:
    if name and argument and name != argument:
        raise click.UsageError(f"Two names were given, '{name}' and '{argument}'.")
    return name or argument or ""


def _print(session: Session, workspace: Workspace) -> None:
    raw = workspace.raw
    tables.one(session.form, raw, lambda: tables.fields(tables.titled(raw)))
