"""`yard environment …`: environments with names and versions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import TorchyardError
from torchyard.cli.assets import deletion
from torchyard.cli.environments import copies, export, releases, shell
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import (
    Session,
    accepts,
    archivable,
    at_most,
    common,
    filed,
    many,
    name_argument,
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
    ("BUILD", lambda environment: environment.get("build")),
    ("DESCRIPTION", lambda environment: environment.get("description")),
]


@group.command("create")
@click.option("-n", "--name", default=None, help="Environment name.")
@click.option("-v", "--version", default=None, help="Version. Default: the next one.")
@click.option("-i", "--image", default=None, help="Docker image.")
@click.option("-c", "--conda-file", default=None, metavar="FILE", help="Conda file.")
@click.option("--pip-requirements", default=None, metavar="FILE", help="Requirements file.")
@click.option(
    "--python", default=None, metavar="VERSION", help="Python, beside --pip-requirements."
)
@click.option("--description", default=None, help="Description.")
@click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags to set.")
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
    **options: Any,
) -> None:
    """Register a version of an environment; jobs name it `azureml:NAME:VERSION`.

    Example: yard environment create -n vision -c conda.yml
    """
    here = {"conda_file": conda_file, "pip_requirements": pip_requirements}
    # A path on the command line is relative to the current folder, not to the file.
    files = {key: str(Path.cwd() / path) for key, path in here.items() if path is not None}
    document.fill({**options, **files, "tags": tagged(tags)})
    try:
        environment = session.client().environments.create(document.value, document.folder)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    _show(session, environment)


@group.command("list")
@click.option(
    "-n",
    "--name",
    default="",
    help="List all versions of this one.",
    shell_complete=names_of("environments"),
)
@many
@archivable
@common
def list_environments(session: Session, name: str, max_results: int | None, archived: str) -> None:
    """List the environments that jobs can use.

    Example: yard environment list
    """
    environments = session.client().environments.list(name, archived=archived != "no")
    tables.rows(session.form, at_most(environments.raw, archived, max_results), _COLUMNS)


@group.command("show")
@name_argument("environment", "environments")
@versioned
@common
def show(session: Session, name: str, version: str, label: str) -> None:
    """Show an environment and its contents.

    Example: yard environment show -n python
    """
    name, version = version_of(name, version, label)
    _show(session, session.client().environments.get(name, version or "latest"))


@group.command("archive")
@name_argument("environment", "environments")
@click.option("-v", "--version", default="", help="Version. Default: all versions.")
@click.option(
    "-l", "--label", default="", metavar="LABEL", help="Label such as latest, instead of a version."
)
@common
def archive(session: Session, name: str, version: str, label: str) -> None:
    """Hide an environment, or one version of it, from lists.

    Example: yard environment archive -n vision -v 1
    """
    _archive(session, *version_of(name, version, label), archived=True)


@group.command("restore")
@name_argument("environment", "environments")
@click.option("-v", "--version", default="", help="Version. Default: all versions.")
@click.option(
    "-l", "--label", default="", metavar="LABEL", help="Label such as latest, instead of a version."
)
@common
def restore(session: Session, name: str, version: str, label: str) -> None:
    """Show an archived environment in lists again.

    Example: yard environment restore -n vision -v 1
    """
    _archive(session, *version_of(name, version, label), archived=False)


@group.command("resolve")
@name_argument("environment", "environments")
@common
def resolve(session: Session, name: str) -> None:
    """Show which environment a name resolves to: Azure ML names, images, versions, labels.

    Example: yard environment resolve AzureML-ACPT-pytorch-1.13-py38-cuda11.7-gpu@latest
    """
    looks_like_image = "/" in name and "://" not in name
    reference = {"image": name} if looks_like_image else name
    resolution = session.client().environments.resolve(reference).raw
    tables.one(session.form, resolution, lambda: tables.fields(tables.titled(resolution)))


@group.command("build")
@name_argument("environment", "environments")
@versioned
@common
def build(session: Session, name: str, version: str, label: str) -> None:
    """Build an environment now, so that jobs don't wait for it.

    Example: yard environment build -n vision
    """
    client = session.client()
    reference = reference_of(name, version, label)

    def say(text: str) -> None:
        click.echo(text, nl=False, err=True)

    environment = client.environments.build(reference, say).raw
    tables.done(session.form, environment, f"Environment `{reference}` is ready.")


deletion.add(group, "environment", "environments", "environment", "vision")
group.add_command(export.export)
group.add_command(export.install)
group.add_command(copies.save)
group.add_command(copies.load)
group.add_command(copies.clone)
group.add_command(shell.shell)
group.add_command(releases.validate)
group.add_command(releases.validations)
group.add_command(releases.audit)
group.add_command(releases.release)
group.add_command(releases.releases)
group.add_command(releases.page)
group.add_command(releases.wheels)


def _archive(session: Session, name: str, version: str, *, archived: bool) -> None:
    environments = session.client().environments
    (environments.archive if archived else environments.restore)(name, version)
    which = f"{name}:{version}" if version else name
    result = {"name": name, "version": version or None, "archived": archived}
    tables.done(
        session.form, result, f"Environment `{which}` is {'archived' if archived else 'restored'}."
    )


def _show(session: Session, environment: Environment) -> None:
    tables.one(session.form, environment.raw, lambda: _page(environment.raw))


def _page(raw: Mapping[str, Any]) -> str:
    """The fields, then the components of a curated environment with what was tested where."""
    plain = {key: value for key, value in raw.items() if key not in ("components", "tests")}
    pairs = tables.titled(plain)
    for number, run in enumerate(raw.get("tests", ())):
        pairs.append(("" if number else "Tested", _run_line(run)))
    text = tables.fields((name or " ", value) for name, value in pairs)
    lines = [(component["name"], _held_line(component)) for component in raw.get("components", ())]
    return f"{text}\n\n{tables.fields(lines)}" if lines else text


def _run_line(run: Mapping[str, Any]) -> str:
    label = f"{len(run['label_differences'])} differences from the label"
    steps = f", {run['steps'] - len(run['failed'])} of {run['steps']} steps" if run["steps"] else ""
    where = f"{run['hardware']}, {run['date']}"
    return f"{run['distributions']} packages, {label}{steps} ({where})"


def _held_line(component: Mapping[str, Any]) -> str:
    if component["state"] == "unavailable":
        instead = f"; instead: {component['instead']}" if component["instead"] else ""
        return f"not available: {component['reason']}{instead}"
    layer = " (torchyard's layer)" if component["state"] == "layer" else ""
    results = [test["error"] or test["result"] for test in component["tests"]]
    version = component["version"].partition("+torchyard")[0]
    return f"{version}{layer}  {'; '.join(results) or 'not tested'}"
