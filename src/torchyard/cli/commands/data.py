"""`yard data …`: data assets."""

from __future__ import annotations

from typing import Any

import click

from torchyard.cli.commands import asset_verbs
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import (
    Session,
    changes_from,
    common,
    named,
    tagged,
    version_of,
    versioned,
)
from torchyard.cli.terminal import tables

group = noun("data")

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda data: data["name"]),
    ("VERSION", lambda data: data.get("version")),
    ("TYPE", lambda data: data.get("type")),
    ("PATH", lambda data: data.get("path") or data.get("uri")),
    ("CREATED", lambda data: tables.moment(data.get("created_at"))),
    ("DESCRIPTION", lambda data: data.get("description")),
]

asset_verbs.add(
    group,
    asset_verbs.Kind(
        noun="data asset",
        attribute="data",
        word="data",
        types="uri_file, uri_folder or mltable",
        example="digits",
        path_example="./digits --type uri_folder",
        columns=_COLUMNS,
    ),
)


@group.command("update")
@named("data asset", "data")
@versioned
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="A.B=VALUE",
    help="Set description, tags.<tag> or properties.<key>.",
)
@click.option("--description", default=None, help="Description.")
@click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags to add or change.")
@common
def update(
    session: Session,
    name: str,
    version: str,
    label: str,
    assignments: tuple[str, ...],
    tags: tuple[str, ...],
    **options: Any,
) -> None:
    """Change a data asset's description, tags or properties.

    Example: yard data update -n digits -v 1 --set tags.stage=production
    """
    name, version = version_of(name, version, label)
    changeable = ("description", "tags", "properties")
    changes = changes_from(assignments, {"tags": tagged(tags), **options}, changeable)
    asset = session.client().data.update(name, version or "latest", **changes)
    asset_verbs.show_one(session, asset)
