"""`yard job show-services` and `yard job release`.

Owns: the verbs, the link of each service.
Leaves: requests to client/.
Always: links are made for who may open them; others see which services there are.
"""

from __future__ import annotations

from typing import Any

import click

from torchyard.base.errors import Conflict, Forbidden
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common, name_argument
from torchyard.cli.terminal import tables


@click.command("show-services", cls=Verb)
@name_argument("job", "jobs")
@click.option(
    "--node-index",
    "-i",
    type=click.IntRange(min=0),
    default=None,
    metavar="NODE",
    help="Show the services of this node. Default: all nodes.",
)
@click.option("--open", "opened", default="", metavar="SERVICE", help="Open it in the browser.")
@common
def show_services(session: Session, name: str, node_index: int | None, opened: str) -> None:
    """List the services of a running job, with a link that opens each.

    A link is good once, for a minute, and lets in anyone who opens it.

    Example: yard job show-services -n brave-otter --open notebook
    """
    jobs = session.client().jobs
    if opened:
        link = jobs.service_link(name, opened, node_index)
        click.echo(link)
        click.launch(link)
        return
    rows: list[dict[str, Any]] = []
    for service in jobs.services(name):
        if node_index is None or service.node == node_index:
            rows.append({**service.raw, "link": _link(jobs, name, service)})
    tables.rows(
        session.form,
        rows,
        [
            ("NAME", lambda row: row["name"]),
            ("TYPE", lambda row: row["type"]),
            ("NODE", lambda row: row["node"]),
            ("STATE", lambda row: row["state"]),
            ("LINK", lambda row: row["link"] or row["message"]),
        ],
    )


@click.command("release", cls=Verb)
@name_argument("job", "jobs")
@common
def release(session: Session, name: str) -> None:
    """End the time that a job is held after its script has ended.

    Example: yard job release -n brave-otter
    """
    job = session.client().jobs.release(name)
    tables.one(session.form, job.raw, lambda: f"{job.name}  {tables.status(job.status)}")


def _link(jobs: Any, name: str, service: Any) -> str:
    if service.state != "Running":
        return ""
    try:
        return str(jobs.service_link(name, service.name, service.node))
    except (Forbidden, Conflict):
        return ""
