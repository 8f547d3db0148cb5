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
    Command,
    Session,
    accepts,
    changes_from,
    common,
    confirm,
    document_from,
    filed,
    tagged,
    warn,
    with_session,
)
from torchyard.cli.terminal import tables
from torchyard.client import connection

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
# Of Azure's schema, what the server may know a reason about.
_AZURE_KEYS = (
    "hbi_workspace", "image_build_compute", "public_network_access", "container_registry",
    "application_insights", "primary_user_assigned_identity", "identity", "managed_network",
    "network_acls", "serverless_compute", "system_datastores_auth_mode",
    "allow_roleassignment_on_rg",
)  # fmt: skip
# A workspace keeps these from its creation.
_FIXED = ("name", "location", "resource_group", "subscription_id")
# How jobs end, and Azure's names for it.
_EVENTS = {"completed": "JobCompleted", "failed": "JobFailed", "canceled": "JobCancelled"}
_MAP_COLUMNS: list[tables.Column] = [
    ("PREFIX", lambda mapping: mapping["prefix"]),
    ("TARGET", lambda mapping: mapping["target"]),
]


def _azure_options(command: Command) -> Command:
    """Options of `az ml workspace` for keys that the server satisfies or refuses by name."""
    for key in (*_AZURE_KEYS, "storage_account", "key_vault", "enable_data_isolation"):
        is_flag = key in ("hbi_workspace", "enable_data_isolation")
        name = "--" + key.replace("_", "-")
        option = click.option(name, is_flag=is_flag, default=None, hidden=True)
        command = option(command)
    return command


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
@_azure_options
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
    defaults = connection.configured_defaults(session.settings.home)
    for key, default in (("resource_group", "group"), ("location", "location")):
        if not document.value.get(key):
            document.fill({key: defaults.get(default)})
    if not document.value.get("name"):
        raise InvalidInput("a workspace needs a name", "give one with `--name`")
    try:
        workspace = session.client().workspaces.create(document.value)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    _print_changed(session, workspace)


@group.command("show")
@click.argument("argument", metavar="[NAME]", required=False)
@click.option("-n", "--name", default="", help="Workspace name. Default: the current one.")
@common
def show(session: Session, argument: str | None, name: str) -> None:
    """Show a workspace, by default the current one.

    Example: yard workspace show
    """
    workspace_name = _one_name(name, argument)
    client = session.client()
    workspace = client.workspaces.get(workspace_name or client.workspace)
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
@click.option("-f", "--file", default="", metavar="FILE", help="YAML file of the workspace.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="A.B=VALUE",
    help="Set display_name, description, tags.KEY, retention_days, rehearse_on_cpu, "
    "allow_substitutes, max_processes, disk_quota_mb, network, auto_compute, "
    "notification_settings, notify or notify_secrets.NAME.",
)
@click.option("--display-name", default=None, help="Display name.")
@click.option("--description", default=None, help="Description.")
@click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags to set.")
@_azure_options
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
@click.option(
    "--notify",
    "recipients",
    multiple=True,
    metavar="URL|EMAIL",
    help="Tell this webhook or e-mail address of the end of every job, instead of those set now; "
    "repeatable. `none` removes all.",
)
@click.option(
    "--notify-on",
    "events",
    multiple=True,
    type=click.Choice(tuple(_EVENTS), case_sensitive=False),
    help="With --notify: only of jobs that end so; repeatable.",
)
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@accepts("--no-wait", "--update-dependent-resources")
@common
def update(
    session: Session,
    argument: str | None,
    name: str,
    file: str,
    assignments: tuple[str, ...],
    tags: tuple[str, ...],
    recipients: tuple[str, ...],
    events: tuple[str, ...],
    yes: bool,
    **options: Any,
) -> None:
    """Change a workspace's settings; for owners.

    Of a file, all keys are set that can be changed; what can't be must be as it is.

    A file has `notification_settings` and `torchyard: {notify: …}` as a job file has, and what
    `url_env` and `secret_env` name in `torchyard: {notify_secrets: …}`.

    Retention never deletes running jobs, nor jobs that models or data were registered from.

    Example: yard workspace update --retention-days 90
    """
    keys = (
        "display_name", "description", "tags", "retention_days", "rehearse_on_cpu",
        "allow_substitutes", "max_processes", "disk_quota_mb", "network", "auto_compute",
        "notification_settings", "notify", "notify_secrets", *_AZURE_KEYS,
    )  # fmt: skip
    document = document_from(file, ())
    _lift_own_keys(document)
    workspace_name = _one_name(name, argument) or str(document.value.get("name") or "")
    client = session.client()
    workspace = workspace_name or client.workspace
    if file:
        _check_fixed(document, client.workspaces.get(workspace))
    recipient_keys = _notifications(recipients, events)
    changes = changes_from(
        assignments, {"tags": tagged(tags), **options, **recipient_keys}, keys, document
    )
    changes |= {key: None for key, value in recipient_keys.items() if not value}
    days = changes.get("retention_days")
    if isinstance(days, int) and days:
        confirm(f"Delete the jobs of workspace `{workspace}` {days} days after they end?", yes)
    try:
        changed = client.workspaces.update(workspace, changes)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    _print_changed(session, changed)


@group.command("delete")
@click.argument("argument", metavar="[NAME]", required=False)
@click.option("-n", "--name", default="", help="Workspace name.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@accepts("--no-wait", "--all-resources", "--permanently-delete")
@common
def delete(session: Session, argument: str | None, name: str, yes: bool) -> None:
    """Delete an empty workspace.

    Example: yard workspace delete vision
    """
    workspace_name = _one_name(name, argument) or session.workspace
    if not workspace_name:
        raise InvalidInput("no workspace was named", "give one with `--name`")
    confirm(f"Delete workspace `{workspace_name}`?", yes)
    session.client().workspaces.delete(workspace_name)
    tables.done(session.form, {"name": workspace_name}, f"Deleted workspace `{workspace_name}`.")


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


def _lift_own_keys(document: Document) -> None:
    """Move the keys of the mapping `torchyard` of a file, and their positions, to its top."""
    torchyard_keys = document.value.get("torchyard")
    if not isinstance(torchyard_keys, dict):
        return
    del document.value["torchyard"]
    document.value.update(torchyard_keys)
    lifted = {at[1:]: at for at in document.places if at[:1] == ("torchyard",) and len(at) > 1}
    document.places.update({to: document.places[at] for to, at in lifted.items()})


def _notifications(recipients: tuple[str, ...], events: tuple[str, ...]) -> dict[str, Any]:
    """The keys that `--notify` and `--notify-on` set.

    Raises:
        InvalidInput: a recipient is neither a URL nor an e-mail address.
    """
    if not recipients:
        if events:
            raise InvalidInput(
                "`--notify-on` is given without `--notify`",
                "name whom to tell: `--notify ann@example.org`",
            )
        return {}
    if recipients == ("none",):
        return {"notify": [], "notification_settings": {}}
    urls = [text for text in recipients if "://" in text]
    emails = [text for text in recipients if "@" in text and "://" not in text]
    for text in recipients:
        if text not in urls and text not in emails:
            raise InvalidInput(
                f"`--notify {text}` is neither a URL nor an e-mail address",
                "write `--notify https://host/path` or `--notify name@example.org`",
            )
    on = list(events or _EVENTS)
    settings = {"email_on": [_EVENTS[event] for event in on], "emails": emails}
    return {
        "notify": [{"url": url, "on": on} for url in urls],
        "notification_settings": settings if emails else {},
    }


def _check_fixed(document: Document, workspace: Workspace) -> None:
    """Take out of a file what no update changes.

    Raises:
        InvalidInput: the workspace has another name, location or resource group.
    """
    document.value.pop("$schema", None)
    for key in _FIXED:
        new, current = document.value.pop(key, None), workspace.raw.get(key)
        if new is not None and new != current:
            raise InvalidInput(
                f"{document.position_of((key,))}: `{key}` of workspace `{workspace.name}` is "
                f"`{current}`, and can't be changed to `{new}`",
                f"leave `{key}` out, or create another workspace: `yard workspace create`",
            )


def _one_name(name: str, argument: str | None) -> str:
    if name and argument and name != argument:
        raise click.UsageError(f"Two names were given, '{name}' and '{argument}'.")
    return name or argument or ""


def _print_changed(session: Session, workspace: Workspace) -> None:
    for notice in workspace.raw.get("notices") or ():
        warn(notice)
    shown = {key: value for key, value in workspace.raw.items() if key != "notices"}
    _print(session, replace(workspace, raw=shown))


def _print(session: Session, workspace: Workspace) -> None:
    raw = workspace.raw
    tables.one(session.form, raw, lambda: tables.fields(tables.titled(raw)))
