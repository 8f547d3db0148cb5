"""`yard component …`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import TorchyardError
from torchyard.cli.commands import asset_verbs
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import Session, accepts, common, filed, tagged
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from torchyard.cli.parsing.documents import Document

group = noun("component")

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda one: one["name"]),
    ("VERSION", lambda one: one.get("version")),
    ("TYPE", lambda one: one.get("type")),
    ("CREATED", lambda one: tables.moment(one.get("created_at"))),
    ("DESCRIPTION", lambda one: one.get("description") or one.get("display_name")),
]

asset_verbs.add_without_files(
    group,
    asset_verbs.Kind(
        noun="component",
        attribute="components",
        word="component",
        types="command",
        example="train",
        path_example="",
        columns=_COLUMNS,
    ),
)


@group.command("create")
@click.option("-n", "--name", default=None, help="The component's name.")
@click.option("-v", "--version", default=None, help="The version; the next one when absent.")
@click.option("--display-name", default=None, help="A name for people.")
@click.option("--description", default=None, help="In your words.")
@click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags.")
@accepts("--no-wait", "--skip-validation")
@common
@filed("component")
def create(session: Session, document: Document, tags: tuple[str, ...], **given: Any) -> None:
    """Register a version of a component, a step of pipelines.

    Example: yard component create -f train.yml
    """
    from torchyard.cli.terminal import progress

    document.fill({**given, "tags": tagged(tags)})
    try:
        with progress.uploading() as sent:
            found = session.client().components.create(document.value, document.folder, sent)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    asset_verbs.show_one(session, found)
