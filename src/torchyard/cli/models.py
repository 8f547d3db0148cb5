"""`yard model …`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from torchyard.base.errors import TorchyardError
from torchyard.cli import tables
from torchyard.cli.group import noun
from torchyard.cli.options import Session, common, named

group = noun("model")

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda model: model["name"]),
    ("VERSION", lambda model: model.get("version")),
    ("TYPE", lambda model: model.get("type")),
    ("JOB", lambda model: model.get("job") or model.get("job_name")),
    ("CREATED", lambda model: tables.moment(model.get("created_at"))),
    ("DESCRIPTION", lambda model: model.get("description")),
]


@group.command("create")
@click.option("-f", "--file", default="", metavar="FILE", help="The model's file (YAML).")
@click.option("--set", "assignments", multiple=True, metavar="A.B=VALUE", help="Set a key.")
@click.option("-n", "--name", default=None, help="The model's name.")
@click.option("-v", "--version", default=None, help="The version; the next one when absent.")
@click.option(
    "-p",
    "--path",
    default=None,
    help="A file or folder here, or azureml://jobs/<job>/outputs/artifacts/paths/<path>.",
)
@click.option("-t", "--type", "kind", default=None, help="custom_model or mlflow_model.")
@click.option("--description", default=None, help="In your words.")
@common
def create(
    session: Session,
    file: str,
    assignments: tuple[str, ...],
    path: str | None,
    kind: str | None,
    **given: Any,
) -> None:
    """Register a version of a model.

    Example: yard model create -n digits -p
    azureml://jobs/brave-otter/outputs/artifacts/paths/outputs/model.pt
    """
    from torchyard.cli import documents

    document = documents.read(file) if file else documents.empty("the command", Path.cwd())
    for assignment in assignments:
        document.set(assignment)
    # A path on the command line is relative to where the command is given, not to the file.
    folder = document.folder if path is None else Path.cwd()
    document.fill({"path": path, "type": kind, **given})
    try:
        found = session.client().models.create(document.value, folder)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    _print(session, found)


@group.command("list")
@click.option("-n", "--name", default="", help="All versions of this model.")
@common
def list_models(session: Session, name: str) -> None:
    """List models, the latest version of each.

    Example: yard model list -n digits
    """
    tables.rows(session.output, session.client().models.list(name), _COLUMNS)


@group.command("show")
@named("model")
@click.option("-v", "--version", default="", help="The version; the latest when absent.")
@click.option("-l", "--label", type=click.Choice(["latest"]), default=None, help="latest.")
@common
def show(session: Session, name: str, version: str, label: str | None) -> None:
    """Show one version of a model.

    Example: yard model show -n digits -v 1
    """
    _print(session, session.client().models.get(*_named_version(name, version, label)))


@group.command("download")
@named("model")
@click.option("-v", "--version", default="", help="The version; the latest when absent.")
@click.option(
    "-p",
    "--download-path",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("."),
    metavar="DIR",
    help="Where to; a folder with the model's name is made in it. Default: here.",
)
@common
def download(session: Session, name: str, version: str, download_path: Path) -> None:
    """Download a model's files.

    Example: yard model download -n digits -v 1 -p models
    """
    name, version = _named_version(name, version, None)
    written = session.client().models.download(name, version, download_path)
    found = [{"path": str(path), "size_bytes": path.stat().st_size} for path in written]
    tables.rows(
        session.output,
        found,
        [("FILE", lambda row: row["path"]), ("BYTES", lambda row: row["size_bytes"])],
    )


def _named_version(name: str, version: str, label: str | None) -> tuple[str, str]:
    """`-n digits -v 1`, `digits:1`, `azureml:digits@latest` all name a version."""
    from torchyard.base import refs

    ref = refs.parse(name)
    if version and (label or (ref.version and ref.version != version)):
        raise click.UsageError("Two versions are given; name one.")
    return ref.name, version or label or ref.version or ref.label or "latest"


def _print(session: Session, model: dict[str, Any]) -> None:
    shown = {**model, "files": [file["path"] for file in model.get("files") or []]}
    tables.one(session.output, model, lambda: tables.fields(tables.titled(shown)))
