"""`yard batch-endpoint …`, with the verbs and options of `az ml batch-endpoint`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import TorchyardError
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import (
    Session,
    accepts,
    changes_from,
    common,
    confirm,
    document_from,
    filed,
    name_argument,
    tagged,
    takes_over,
    warn,
)
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from torchyard.cli.parsing.documents import Document
    from torchyard.client.batch_endpoints.endpoints import BatchEndpoint

group = noun("batch-endpoint")

CHANGEABLE = (
    "defaults", "tags", "properties", "description", "auth_mode", "identity",
    "public_network_access",
)  # fmt: skip
_HIDDEN = ("notices", "$schema", "changed_at")
_COLUMNS: list[tables.Column] = [
    ("NAME", lambda endpoint: endpoint["name"]),
    ("DEFAULT DEPLOYMENT", lambda endpoint: endpoint["defaults"]["deployment_name"]),
    ("OWNER", lambda endpoint: endpoint["owner"]),
    ("CREATED", lambda endpoint: tables.moment(endpoint["created_at"])),
]
JOB_COLUMNS: list[tables.Column] = [
    ("NAME", lambda job: job["name"]),
    ("STATUS", lambda job: job["status"]),
    ("DEPLOYMENT", lambda job: job["tags"].get("deployment", "")),
    ("OWNER", lambda job: job["owner"]),
    ("CREATED", lambda job: tables.moment(job["created_at"])),
]
_SHOWN_OF_JOB = ("name", "status", "display_name", "experiment_name", "compute", "owner")


@group.command("create")
@click.option("-n", "--name", default=None, help="Endpoint name.")
@click.option("--description", default=None, help="Description.")
@click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags to set.")
@click.option("--auth-mode", default=None, help="aad_token, the only one.", hidden=True)
@accepts("--no-wait")
@common
@filed("endpoint")
def create(session: Session, document: Document, tags: tuple[str, ...], **options: Any) -> None:
    """Create a batch endpoint; deployments come next.

    Example: yard batch-endpoint create -f endpoint.yml
    """
    document.fill({**options, "tags": tagged(tags)})
    try:
        endpoint = session.client().batch_endpoints.create(document.value)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    show_one(session, endpoint)


@group.command("update")
@name_argument("endpoint", "batch_endpoints")
@click.option("-f", "--file", default="", metavar="FILE", help="YAML file of the endpoint.")
@click.option("--set", "assignments", multiple=True, metavar="A.B=VALUE", help="Set a key.")
@click.option("--description", default=None, help="Description.")
@click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags to set.")
@click.option("--defaults", default=None, metavar="deployment_name=NAME", hidden=True)
@takes_over
@accepts("--no-wait")
@common
def update(
    session: Session,
    name: str,
    file: str,
    assignments: tuple[str, ...],
    tags: tuple[str, ...],
    defaults: str | None,
    take_over: bool,
    **options: Any,
) -> None:
    """Change an endpoint's default deployment, tags or description.

    Example: yard batch-endpoint update -n digits --set defaults.deployment_name=green
    """
    document = document_from(file, ())
    for key in ("name", "$schema"):
        document.value.pop(key, None)
    endpoints = session.client().batch_endpoints
    if defaults:
        assignments = (f"defaults.{defaults}", *assignments)
    options |= {"tags": tagged(tags)}
    before = endpoints.get(name).raw
    changes = changes_from(assignments, options, CHANGEABLE, document, before, take_over)
    try:
        show_one(session, endpoints.update(name, changes))
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__


@group.command("show")
@name_argument("endpoint", "batch_endpoints")
@common
def show(session: Session, name: str) -> None:
    """Show a batch endpoint.

    Example: yard batch-endpoint show -n digits --query defaults.deployment_name
    """
    show_one(session, session.client().batch_endpoints.get(name))


@group.command("list")
@common
def list_endpoints(session: Session) -> None:
    """List the workspace's batch endpoints.

    Example: yard batch-endpoint list
    """
    tables.rows(session.form, session.client().batch_endpoints.list().raw, _COLUMNS)


@group.command("delete")
@name_argument("endpoint", "batch_endpoints")
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@accepts("--no-wait")
@common
def delete(session: Session, name: str, yes: bool) -> None:
    """Delete a batch endpoint with all of its deployments; its jobs stay.

    Example: yard batch-endpoint delete -n digits --yes
    """
    endpoints = session.client().batch_endpoints
    endpoints.get(name)
    confirm(f"Delete batch endpoint `{name}` and its deployments?", yes)
    endpoints.delete(name)
    tables.done(session.form, {"name": name, "deleted": True}, f"Endpoint `{name}` is deleted.")


@group.command("invoke")
@name_argument("endpoint", "batch_endpoints")
@click.option("--input", "data", default=None, metavar="DATA", help="Files to score.")
@click.option("--input-type", default=None, help="uri_folder, uri_file or mltable.")
@click.option("-d", "--deployment-name", default=None, help="Default: the endpoint's default.")
@click.option("--job-name", default=None, help="Job name. Default: a generated one.")
@click.option("--experiment-name", default=None, help="Default: the endpoint's name.")
@click.option("--output-path", default=None, metavar="URI", help="Where the predictions go.")
@click.option("-m", "--mini-batch-size", type=int, default=None, help="Files of one run().")
@click.option("-c", "--instance-count", type=int, default=None, help="How many nodes score.")
@common
@filed("invocation")
def invoke(
    session: Session,
    name: str,
    document: Document,
    data: str | None,
    input_type: str | None,
    output_path: str | None,
    **options: Any,
) -> None:
    """Score files by a job; its predictions are the job's output `score`.

    DATA is a folder or file here, `azureml:NAME:VERSION`, a path of a datastore, or a URL.

    \b
    Example: yard batch-endpoint invoke -n digits --input ./images --query name -o tsv
    """
    from torchyard.cli.terminal import progress

    if data is not None:
        written = {"path": data, **({"type": input_type} if input_type else {})}
        document.fill({"inputs": {"data": written}})
        document.places[("inputs",)] = "--input"
    if output_path is not None:
        document.fill({"outputs": {"score": {"path": output_path}}})
        document.places[("outputs",)] = "--output-path"
    document.fill(options)
    try:
        with progress.uploading() as sent:
            job = session.client().batch_endpoints.invoke(
                name, document=document.value, folder=document.folder, progress=sent
            )
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    for notice in job.raw.get("notices") or ():
        warn(str(notice))
    shown = {key: job.raw[key] for key in _SHOWN_OF_JOB}
    tables.one(session.form, job.raw, lambda: tables.fields(tables.titled(shown)))


@group.command("list-jobs")
@name_argument("endpoint", "batch_endpoints")
@common
def list_jobs(session: Session, name: str) -> None:
    """List the jobs that a batch endpoint was invoked for.

    Example: yard batch-endpoint list-jobs -n digits
    """
    rows = session.client().batch_endpoints.list_jobs(name).raw
    tables.rows(session.form, rows, JOB_COLUMNS)


def show_one(session: Session, endpoint: BatchEndpoint) -> None:
    shown = {key: value for key, value in endpoint.raw.items() if key not in _HIDDEN}
    shown["defaults"] = endpoint.default_deployment
    tables.one(session.form, endpoint.raw, lambda: tables.fields(tables.titled(shown)))
