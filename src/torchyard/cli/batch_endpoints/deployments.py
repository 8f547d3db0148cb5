"""`yard batch-deployment …`, with the verbs and options of `az ml batch-deployment`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torchyard.cli.batch_endpoints.endpoints import JOB_COLUMNS
from torchyard.cli.parsing import deployments
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import (
    Session,
    accepts,
    common,
    confirm,
    filed,
    name_argument,
    tagged,
    takes_over,
)
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from torchyard.cli.parsing.documents import Document
    from torchyard.client.batch_endpoints.deployments import BatchDeployment

group = noun("batch-deployment")

_HIDDEN = ("notices", "$schema", "changed_at", "environment")
_COLUMNS: list[tables.Column] = [
    ("NAME", lambda row: row["name"]),
    ("COMPUTE", lambda row: row["compute"]),
    ("INSTANCES", lambda row: row["resources"]["instance_count"]),
    ("MODEL", lambda row: row["model"] if isinstance(row.get("model"), str) else ""),
    ("OWNER", lambda row: row["owner"]),
]
_endpoint_name = click.option(
    "-e", "--endpoint-name", "--endpoint", required=True, metavar="NAME", help="Endpoint name."
)


@group.command("create")
@click.option("-n", "--name", default=None, help="Deployment name.")
@click.option("-e", "--endpoint-name", "--endpoint", default=None, help="Endpoint name.")
@click.option("--set-default", is_flag=True, help="Make it the endpoint's default.")
@click.option("--skip-script-validation", is_flag=True, hidden=True, expose_value=False)
@accepts("--no-wait")
@common
@filed("deployment")
def create(session: Session, document: Document, set_default: bool, **options: Any) -> None:
    """Create a deployment of a batch endpoint; the first one becomes its default.

    Example: yard batch-deployment create -f deployment.yml --set-default
    """
    document.fill(options)
    client = session.client()
    deployment = deployments.create(client.batch_deployments, document)
    if set_default:
        changes = {"defaults": {"deployment_name": deployment.name}}
        client.batch_endpoints.update(deployment.endpoint_name, changes)
    show_one(session, deployment)


@group.command("update")
@click.option("-n", "--name", default=None, help="Deployment name.")
@click.option("-e", "--endpoint-name", "--endpoint", default=None, help="Endpoint name.")
@click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags to set.")
@click.option("--skip-script-validation", is_flag=True, hidden=True, expose_value=False)
@takes_over
@accepts("--no-wait")
@common
@filed("deployment")
def update(
    session: Session,
    document: Document,
    name: str | None,
    endpoint_name: str | None,
    tags: tuple[str, ...],
    take_over: bool,
) -> None:
    """Change a deployment; jobs that are there stay as they are.

    `-f` gives the whole deployment, `--set` alone single keys.

    Example: yard batch-deployment update -n blue -e digits --set settings.mini_batch_size=50
    """
    document.fill({"tags": tagged(tags)})
    document.take_over(take_over)
    client = session.client()
    deployment = deployments.update(client.batch_deployments, document, endpoint_name, name)
    show_one(session, deployment)


@group.command("show")
@name_argument("deployment")
@_endpoint_name
@common
def show(session: Session, name: str, endpoint_name: str) -> None:
    """Show a deployment of a batch endpoint.

    Example: yard batch-deployment show -n blue -e digits
    """
    show_one(session, session.client().batch_deployments.get(endpoint_name, name))


@group.command("list")
@_endpoint_name
@common
def list_deployments(session: Session, endpoint_name: str) -> None:
    """List the deployments of a batch endpoint.

    Example: yard batch-deployment list -e digits
    """
    rows = session.client().batch_deployments.list(endpoint_name).raw
    tables.rows(session.form, rows, _COLUMNS)


@group.command("delete")
@name_argument("deployment")
@_endpoint_name
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@accepts("--no-wait")
@common
def delete(session: Session, name: str, endpoint_name: str, yes: bool) -> None:
    """Delete a deployment of a batch endpoint; its jobs stay.

    Example: yard batch-deployment delete -n blue -e digits --yes
    """
    client = session.client()
    client.batch_deployments.get(endpoint_name, name)
    confirm(f"Delete deployment `{name}` of batch endpoint `{endpoint_name}`?", yes)
    client.batch_deployments.delete(endpoint_name, name)
    text = f"Deployment `{name}` is deleted."
    tables.done(session.form, {"name": name, "deleted": True}, text)


@group.command("list-jobs")
@name_argument("deployment")
@_endpoint_name
@common
def list_jobs(session: Session, name: str, endpoint_name: str) -> None:
    """List the jobs that a deployment was invoked for.

    Example: yard batch-deployment list-jobs -n blue -e digits
    """
    rows = session.client().batch_endpoints.list_jobs(endpoint_name, name).raw
    tables.rows(session.form, rows, JOB_COLUMNS)


def show_one(session: Session, deployment: BatchDeployment) -> None:
    shown = {key: value for key, value in deployment.raw.items() if key not in _HIDDEN}
    tables.one(session.form, deployment.raw, lambda: tables.fields(tables.titled(shown)))
