"""`yard online-deployment …`, with the verbs and options of `az ml online-deployment`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import InvalidInput
from torchyard.base.terminal_text import plain
from torchyard.cli.endpoints.online_endpoints import without_local
from torchyard.cli.parsing import deployments
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import (
    Session,
    common,
    confirm,
    filed,
    name_argument,
    tagged,
    takes_over,
    warn,
)
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from torchyard.cli.parsing.documents import Document
    from torchyard.client.endpoints.online_deployments import OnlineDeployment

group = noun("online-deployment")

_HIDDEN = ("notices", "$schema", "changed_at", "instances", "environment", "served_revision")
_COLUMNS: list[tables.Column] = [
    ("NAME", lambda row: row["name"]),
    ("STATE", lambda row: row["provisioning_state"]),
    ("INSTANCES", lambda row: f"{_ready(row)}/{row['instance_count']}"),
    ("REVISION", lambda row: row["revision"]),
    ("MODEL", lambda row: row["model"] if isinstance(row.get("model"), str) else ""),
    ("OWNER", lambda row: row["owner"]),
    ("MESSAGE", lambda row: row["message"]),
]
_endpoint_name = click.option(
    "-e", "--endpoint-name", required=True, metavar="NAME", help="Endpoint name."
)


@group.command("create")
@click.option("-n", "--name", default=None, help="Deployment name.")
@click.option("-e", "--endpoint-name", default=None, help="Endpoint name.")
@click.option("--all-traffic", is_flag=True, help="Send all of the endpoint's traffic to it.")
@click.option("--no-wait", is_flag=True, help="Return before it answers.")
@click.option("--skip-script-validation", is_flag=True, hidden=True, expose_value=False)
@without_local
@common
@filed("deployment")
def create(
    session: Session, document: Document, all_traffic: bool, no_wait: bool, **options: Any
) -> None:
    """Create a deployment of an endpoint, and wait until it answers.

    Example: yard online-deployment create -f blue.yml --all-traffic
    """
    if all_traffic and no_wait:
        raise InvalidInput(
            "`--all-traffic` and `--no-wait` can't be combined: traffic follows once it answers",
            "leave one out",
        )
    document.fill(options)
    client = session.client()
    deployment = deployments.create(client.online_deployments, document)
    if not no_wait:
        deployment = client.online_deployments.wait(deployment)
    if all_traffic:
        client.online_endpoints.update(
            deployment.endpoint_name, {"traffic": {deployment.name: 100}}
        )
    show_one(session, deployment)


@group.command("update")
@click.option("-n", "--name", default=None, help="Deployment name.")
@click.option("-e", "--endpoint-name", default=None, help="Endpoint name.")
@click.option("--instance-count", type=int, default=None, help="How many instances.")
@click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags to set.")
@click.option("--no-wait", is_flag=True, help="Return before the change is served.")
@takes_over
@click.option("--skip-script-validation", is_flag=True, hidden=True, expose_value=False)
@without_local
@common
@filed("deployment")
def update(
    session: Session,
    document: Document,
    name: str | None,
    endpoint_name: str | None,
    tags: tuple[str, ...],
    no_wait: bool,
    take_over: bool,
    **options: Any,
) -> None:
    """Change a deployment, and wait until the change is served; no request fails meanwhile.

    `-f` gives the whole deployment, `--set` alone single keys.

    Example: yard online-deployment update -n blue -e digits --set instance_count=2
    """
    document.fill({**options, "tags": tagged(tags)})
    document.take_over(take_over)
    client = session.client()
    deployment = deployments.update(client.online_deployments, document, endpoint_name, name)
    if not no_wait:
        deployment = client.online_deployments.wait(deployment)
    show_one(session, deployment)


@group.command("show")
@name_argument("deployment")
@_endpoint_name
@without_local
@common
def show(session: Session, name: str, endpoint_name: str) -> None:
    """Show a deployment, its state and its instances.

    Example: yard online-deployment show -n blue -e digits
    """
    show_one(session, session.client().online_deployments.get(endpoint_name, name))


@group.command("list")
@_endpoint_name
@without_local
@common
def list_deployments(session: Session, endpoint_name: str) -> None:
    """List the deployments of an endpoint.

    Example: yard online-deployment list -e digits
    """
    rows = session.client().online_deployments.list(endpoint_name).raw
    tables.rows(session.form, rows, _COLUMNS)


@group.command("delete")
@name_argument("deployment")
@_endpoint_name
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@click.option("--no-wait", is_flag=True, help="Return before it is gone.")
@without_local
@common
def delete(session: Session, name: str, endpoint_name: str, yes: bool, no_wait: bool) -> None:
    """Delete a deployment that has no traffic.

    Example: yard online-deployment delete -n blue -e digits --yes
    """
    client = session.client()
    client.online_deployments.get(endpoint_name, name)
    confirm(f"Delete deployment `{name}` of endpoint `{endpoint_name}`?", yes)
    client.online_deployments.delete(endpoint_name, name, wait=not no_wait)
    text = f"Deployment `{name}` is {'being ' if no_wait else ''}deleted."
    tables.done(session.form, {"name": name, "deleted": not no_wait}, text)


@group.command("get-logs")
@name_argument("deployment")
@_endpoint_name
@click.option("-l", "--lines", type=int, default=50, help="How many lines. Default: 50.")
@click.option("--instance", default="", help="Id of an instance. Default: one that answers.")
@click.option(
    "-c", "--container", default="", hidden=True, expose_value=False, help="Of az; ignored."
)
@without_local
@common
def get_logs(session: Session, name: str, endpoint_name: str, lines: int, instance: str) -> None:
    """Print the last lines that a deployment's instance printed.

    Example: yard online-deployment get-logs -n blue -e digits --lines 100
    """
    client = session.client()
    click.echo(plain(client.online_deployments.logs(endpoint_name, name, lines, instance)))


@group.command("drift")
@name_argument("deployment")
@_endpoint_name
@click.option(
    "--data",
    required=True,
    metavar="DATA",
    help="Training data: a data asset as NAME[:VERSION], or a file here.",
)
@click.option("--since", default=None, metavar="TIME", help="How far back, as 24h or 7d.")
@click.option("--column", "columns", multiple=True, help="A column to compare. Default: all.")
@click.option("--categorical", multiple=True, help="A column whose numbers are names.")
@click.option("--names", default="", metavar="A,B,C", help="Columns of rows sent as lists.")
@click.option("--collection", default="", help="Default: model_inputs, or request.")
@click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="NAME=VALUE",
    help="psi, moderate_psi, p_value, missing, new_categories or out_of_range.",
)
@click.option("--max-rows", type=int, default=None, help="Rows of each side. Default: 50000.")
@click.option("--seed", type=int, default=0, help="Of the sample of more rows. Default: 0.")
@common
def drift(
    session: Session,
    name: str,
    endpoint_name: str,
    data: str,
    names: str,
    thresholds: tuple[str, ...],
    **options: Any,
) -> None:
    """Compare a deployment's collected inputs with the training data, column by column.

    Example: yard online-deployment drift -n blue -e digits --data digits-train:1 --since 24h
    """
    from torchyard.cli.endpoints import drift_page

    report = session.client().online_deployments.drift(
        endpoint_name,
        name,
        data,
        names=[each.strip() for each in names.split(",") if each.strip()],
        thresholds=drift_page.read_thresholds(thresholds),
        **options,
    )
    for notice in report.notices:
        warn(notice)
    tables.one(session.form, report.to_json(), lambda: drift_page.text_of(report))


def show_one(session: Session, deployment: OnlineDeployment) -> None:
    shown = {key: value for key, value in deployment.raw.items() if key not in _HIDDEN}
    rows = [
        (f"Instance {each['id']}", f"{each['state']} (job {each['job']}) {each['message']}".strip())
        for each in deployment.raw["instances"]
    ]
    tables.one(session.form, deployment.raw, lambda: tables.fields([*tables.titled(shown), *rows]))


def _ready(row: dict[str, Any]) -> int:
    return sum(each["state"] == "Ready" for each in row["instances"])
