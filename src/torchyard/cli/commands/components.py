"""`yard component …`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import InvalidInput, TorchyardError
from torchyard.cli.assets import verbs
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import Session, accepts, common, filed, tagged
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from torchyard.cli.parsing.documents import Document

group = noun("component")

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda component: component["name"]),
    ("VERSION", lambda component: component.get("version")),
    ("TYPE", lambda component: component.get("type")),
    ("CREATED", lambda component: tables.moment(component.get("created_at"))),
    (
        "DESCRIPTION",
        lambda component: component.get("description") or component.get("display_name"),
    ),
]

verbs.add_without_files(
    group,
    verbs.Kind(
        noun="component",
        attribute="components",
        word="component",
        types="command, pipeline",
        example="train",
        path_example="",
        columns=_COLUMNS,
    ),
)


@group.command("create")
@click.option("-n", "--name", default=None, help="Component name.")
@click.option("-v", "--version", default=None, help="Version. Default: the next one.")
@click.option("--display-name", default=None, help="Display name.")
@click.option("--description", default=None, help="Description.")
@click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags to set.")
@accepts("--no-wait", "--skip-validation")
@common
@filed("component")
def create(session: Session, document: Document, tags: tuple[str, ...], **options: Any) -> None:
    """Register a version of a component: a step of pipelines, or a pipeline of steps.

    Example: yard component create -f train.yml
    """
    document.fill({**options, "tags": tagged(tags)})
    _register(session, document)


@group.command("update")
@click.option("-n", "--name", default=None, help="Component name.")
@click.option("-v", "--version", default=None, help="Version. Default: the latest one.")
@click.option("--description", default=None, help="Description.")
@click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags to set.")
@accepts("--no-wait")
@common
@filed("component")
def update(session: Session, document: Document, tags: tuple[str, ...], **options: Any) -> None:
    """Change a component's description, tags or properties to those of its file.

    Example: yard component update -f train.yml --set description="A step"
    """
    document.fill({**options, "tags": tagged(tags)})
    name = document.value.get("name")
    if not isinstance(name, str) or not {"command", "jobs"} & set(document.value):
        raise InvalidInput("a component is changed by its file", "give it with `-f FILE`")
    version = str(document.value.get("version") or "latest")
    document.fill({"version": session.client().components.get(name, version).version})
    _register(session, document)


def _file(document: Document) -> Path | None:
    return document.folder / Path(document.name).name if document.name else None


def _register(session: Session, document: Document) -> None:
    from torchyard.cli.terminal import progress

    try:
        with progress.uploading() as sent:
            component = session.client().components.create(
                document.value, document.folder, sent, file=_file(document)
            )
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    verbs.show_one(session, component)
