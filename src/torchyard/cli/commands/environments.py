"""`yard environment …`: environments with names and versions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import TorchyardError
from torchyard.cli.commands import environment_copies, environment_shell
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import (
    Session,
    accepts,
    archivable,
    at_most,
    common,
    filed,
    many,
    named,
    names_of,
    reference_of,
    tagged,
    version_of,
    versioned,
)
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from torchyard.cli.parsing.documents import Document
    from torchyard.client.environments import Environment

group = noun("environment")

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda environment: environment["name"]),
    ("VERSION", lambda environment: environment.get("version")),
    ("PYTHON", lambda environment: environment.get("python")),
    ("TORCH", lambda environment: environment.get("torch")),
    ("STATUS", lambda environment: environment.get("status")),
    ("DESCRIPTION", lambda environment: environment.get("description")),
]


@group.command("create")
@click.option("-n", "--name", default=None, help="The environment's name.")
@click.option("-v", "--version", default=None, help="The version; the next one when absent.")
@click.option("-i", "--image", default=None, help="A Docker image's name.")
@click.option("-c", "--conda-file", default=None, metavar="FILE", help="A conda file.")
@click.option("--pip-requirements", default=None, metavar="FILE", help="A requirements.txt.")
@click.option("--description", default=None, help="In your words.")
@click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags.")
@click.option("--os-type", default=None, metavar="OS", help="Operating system; only linux.")
@accepts("--datastore", "--no-wait")
@common
@filed("environment")
def create(
    session: Session,
    document: Document,
    conda_file: str | None,
    pip_requirements: str | None,
    tags: tuple[str, ...],
    **given: Any,
) -> None:
    """Register a version of an environment; jobs name it `azureml:NAME:VERSION`.

    Example: yard environment create -n vision -c conda.yml
    """
    here = {"conda_file": conda_file, "pip_requirements": pip_requirements}
    # A path on the command line is relative to where the command is given, not to the file.
    files = {key: str(Path.cwd() / path) for key, path in here.items() if path is not None}
    document.fill({**given, **files, "tags": tagged(tags)})
    try:
        found = session.client().environments.create(document.value, document.folder)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    _show(session, found)


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
    tables.rows(session.form, at_most(found.raw, archived, max_results), _COLUMNS)


@group.command("show")
@named("environment", "environments")
@versioned
@common
def show(session: Session, name: str, version: str, label: str) -> None:
    """Show one environment: what is in it.

    Example: yard environment show -n python
    """
    name, version = version_of(name, version, label)
    _show(session, session.client().environments.get(name, version or "latest"))


@group.command("archive")
@named("environment", "environments")
@click.option("-v", "--version", default="", help="Only this version; all when absent.")
@click.option("-l", "--label", default="", metavar="LABEL", help="Instead: latest.")
@common
def archive(session: Session, name: str, version: str, label: str) -> None:
    """Hide an environment, or one version of it, from lists.

    Example: yard environment archive -n vision -v 1
    """
    _archive(session, *version_of(name, version, label), archived=True)


@group.command("restore")
@named("environment", "environments")
@click.option("-v", "--version", default="", help="Only this version; all when absent.")
@click.option("-l", "--label", default="", metavar="LABEL", help="Instead: latest.")
@common
def restore(session: Session, name: str, version: str, label: str) -> None:
    """Take back `archive`.

    Example: yard environment restore -n vision -v 1
    """
    _archive(session, *version_of(name, version, label), archived=False)


@group.command("resolve")
@named("environment", "environments")
@common
def resolve(session: Session, name: str) -> None:
    """Explain what a name becomes here: Azure ML's names, images, versions and labels.

    Example: yard environment resolve AzureML-ACPT-pytorch-1.13-py38-cuda11.7-gpu@latest
    """
    looks_like_image = "/" in name and "://" not in name
    asked = {"image": name} if looks_like_image else name
    found = session.client().environments.resolve(asked).raw
    tables.one(session.form, found, lambda: tables.fields(tables.titled(found)))


@group.command("build")
@named("environment", "environments")
@versioned
@common
def build(session: Session, name: str, version: str, label: str) -> None:
    """Build an environment now, so that no job has to wait for it.

    Example: yard environment build -n vision
    """
    client = session.client()
    reference = reference_of(name, version, label)

    def say(text: str) -> None:
        click.echo(text, nl=False, err=True)

    found = client.environments.build(reference, say).raw
    tables.done(session.form, found, f"Environment `{reference}` is ready.")


group.add_command(environment_copies.export)
group.add_command(environment_copies.save)
group.add_command(environment_copies.load)
group.add_command(environment_copies.clone)
group.add_command(environment_shell.shell)


def _archive(session: Session, name: str, version: str, *, archived: bool) -> None:
    environments = session.client().environments
    (environments.archive if archived else environments.restore)(name, version)
    which = f"{name}:{version}" if version else name
    found = {"name": name, "version": version or None, "archived": archived}
    tables.done(
        session.form, found, f"Environment `{which}` is {'archived' if archived else 'back'}."
    )


def _show(session: Session, environment: Environment) -> None:
    raw = environment.raw
    tables.one(session.form, raw, lambda: tables.fields(tables.titled(raw)))
