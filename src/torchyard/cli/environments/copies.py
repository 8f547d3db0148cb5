"""`yard environment save`, `load`, `clone`: copies of environments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import (
    Session,
    common,
    name_argument,
    reference_of,
    version_of,
    versioned,
    warn,
)
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from torchyard.client.environments import Environment


@click.command("save", cls=Verb)
@name_argument("environment", "environments")
@versioned
@click.option(
    "-d",
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    metavar="DIR",
    help="Target folder. Default: one with the environment's name.",
)
@click.option("--overwrite", is_flag=True, help="Write into an existing folder.")
@common
def save(
    session: Session,
    name: str,
    version: str,
    label: str,
    directory: Path | None,
    overwrite: bool,
) -> None:
    """Save an environment as editable files, which azureml-core reads as well.

    Example: yard environment save -n acpt-pytorch-2.13-cpu -d mine
    """
    reference = reference_of(name, version, label)
    folder = directory or Path(version_of(name, "", "")[0])
    environments = session.client().environments
    written = environments.save_to_directory(reference, folder, overwrite=overwrite, say=warn)
    body = {"directory": str(folder), "files": [str(file) for file in written]}
    tables.done(session.form, body, "\n".join(f"Wrote `{file}`." for file in written))


@click.command("load", cls=Verb)
@click.argument("argument", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option(
    "-d",
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    metavar="DIR",
    help="Folder written by `save` or by azureml-core's `save_to_directory`.",
)
@click.option("-n", "--name", default="", help="Name. Default: the saved one.")
@common
def load(session: Session, argument: Path | None, directory: Path | None, name: str) -> None:
    """Register the next version of an environment from a saved folder.

    Example: yard environment load -d mine -n vision
    """
    folder = directory or argument
    if folder is None:
        raise click.UsageError("The folder is missing: use '-d DIR'.")
    environments = session.client().environments
    document = environments.load_from_directory(folder, warn)
    if name:
        document["name"] = name
    _print(session, environments.create(document, folder))


@click.command("clone", cls=Verb)
@name_argument("environment", "environments")
@versioned
@click.option("--new-name", required=True, metavar="NAME", help="Name of the copy.")
@common
def clone(session: Session, name: str, version: str, label: str, new_name: str) -> None:
    """Register a copy of an environment under another name.

    Example: yard environment clone -n acpt-pytorch-2.13-cpu --new-name vision
    """
    reference = reference_of(name, version, label)
    _print(session, session.client().environments.clone(reference, new_name))


def _print(session: Session, environment: Environment) -> None:
    raw = environment.raw
    tables.one(session.form, raw, lambda: tables.fields(tables.titled(raw)))
