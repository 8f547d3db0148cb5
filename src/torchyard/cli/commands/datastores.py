"""`yard datastore …`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import TorchyardError
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import Session, common, confirm, filed, name_argument
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from torchyard.cli.parsing.documents import Document
    from torchyard.client.datastores import Datastore

group = noun("datastore")

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda datastore: datastore["name"]),
    ("TYPE", lambda datastore: datastore.get("type")),
    ("URL", lambda datastore: datastore.get("url") or datastore.get("path")),
    ("DEFAULT", lambda datastore: datastore.get("is_default")),
    ("DESCRIPTION", lambda datastore: datastore.get("description")),
]


@group.command("create")
@click.option("-n", "--name", default=None, help="Datastore name.")
@click.option(
    "-t",
    "--type",
    "kind",
    default=None,
    help="azure_blob, azure_file, adls, s3, gs, sftp or local.",
)
@click.option("--path", default=None, metavar="DIR", help="Folder of a local datastore.")
@click.option("--url", default=None, help="fsspec URL, such as s3://bucket/prefix.")
@click.option("--description", default=None, help="Description.")
@common
@filed("datastore")
def create(
    session: Session, document: Document, kind: str | None, path: str | None, **options: Any
) -> None:
    """Create or change a datastore.

    Put credentials into the file, below `credentials`; the server never returns them.

    Example: yard datastore create -n nas --type local --path /mnt/nas/data
    """
    folder = document.folder if path is None else Path.cwd()
    document.fill({"type": kind, "path": path, **options})
    try:
        datastore = session.client().datastores.create(document.value, folder)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    _print(session, datastore)


@group.command("list")
@common
def list_datastores(session: Session) -> None:
    """List datastores.

    Example: yard datastore list
    """
    tables.rows(session.form, session.client().datastores.list().raw, _COLUMNS)


@group.command("show")
@name_argument("datastore", "datastores")
@common
def show(session: Session, name: str) -> None:
    """Show a datastore, without its credentials.

    Example: yard datastore show -n workspaceblobstore
    """
    _print(session, session.client().datastores.get(name))


@group.command("delete")
@name_argument("datastore", "datastores")
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@common
def delete(session: Session, name: str, yes: bool) -> None:
    """Delete a datastore; the files in it stay.

    Example: yard datastore delete -n nas --yes
    """
    client = session.client()
    client.datastores.get(name)
    confirm(f"Delete datastore `{name}`?", yes)
    client.datastores.delete(name)
    tables.done(session.form, {"name": name, "deleted": True}, f"Datastore `{name}` is deleted.")


def _print(session: Session, datastore: Datastore) -> None:
    raw = datastore.raw
    tables.one(session.form, raw, lambda: tables.fields(tables.titled(raw)))
