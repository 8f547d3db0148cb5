"""`yard model …`."""

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

group = noun("model")

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda model: model["name"]),
    ("VERSION", lambda model: model.get("version")),
    ("TYPE", lambda model: model.get("type")),
    ("JOB", lambda model: model.get("job") or model.get("job_name")),
    ("CREATED", lambda model: tables.moment(model.get("created_at"))),
    ("DESCRIPTION", lambda model: model.get("description")),
]

asset_verbs.add(
    group,
    asset_verbs.Kind(
        noun="model",
        attribute="models",
        word="model",
        types="custom_model or mlflow_model",
        example="digits",
        path_example="azureml://jobs/brave-otter/outputs/artifacts/paths/outputs/model.pt",
        columns=_COLUMNS,
    ),
)


@group.command("update")
@named("model", "models")
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
    """Change a model version's description, tags or properties.

    Example: yard model update -n digits -v 1 --set tags.stage=production
    """
    name, version = version_of(name, version, label)
    changeable = ("description", "tags", "properties")
    changes = changes_from(assignments, {"tags": tagged(tags), **options}, changeable)
    model = session.client().models.update(name, version or "latest", **changes)
    asset_verbs.show_one(session, model)
