"""`yard datastore …`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import TorchyardError
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import Session, common, confirm, filed, named
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
@click.option("-n", "--name", default=None, help="The datastore's name.")
@click.option(
    "-t", "--type", "kind", default=None, help="azure_blob, azure_file, adls, s3, gs, sftp, local."
)
@click.option("--path", default=None, metavar="DIR", help="The folder of a local one.")
@click.option("--url", default=None, help="Its fsspec URL, as s3://bucket/prefix.")
@click.option("--description", default=None, help="In your words.")
@common
@filed("datastore")
def create(
    session: Session, document: Document, kind: str | None, path: str | None, **given: Any
) -> None:
    """Create a datastore, or change one.

    Credentials stand in the file, below `credentials`; the server gives them to nobody.

    Example: yard datastore create -n nas --type local --path /mnt/nas/data
    """
    folder = document.folder if path is None else Path.cwd()
    document.fill({"type": kind, "path": path, **given})
    try:
        found = session.client().datastores.create(document.value, folder)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    _print(session, found)


@group.command("list")
@common
def list_datastores(session: Session) -> None:
    """List datastores.

    Example: yard datastore list
    """
    tables.rows(session.form, session.client().datastores.list().raw, _COLUMNS)


@group.command("show")
@named("datastore", "datastores")
@common
def show(session: Session, name: str) -> None:
    """Show one datastore, without its credentials.

    Example: yard datastore show -n workspaceblobstore
    """
    _print(session, session.client().datastores.get(name))


@group.command("delete")
@named("datastore", "datastores")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@common
def delete(session: Session, name: str, yes: bool) -> None:
    """Forget a datastore; the files in it stay where they are.

    Example: yard datastore delete -n nas --yes
    """
    client = session.client()
    client.datastores.get(name)
    confirm(f"Delete datastore `{name}`?", yes)
    client.datastores.delete(name)
    tables.done(session.form, {"name": name, "deleted": True}, f"Datastore `{name}` is forgotten.")


def _print(session: Session, datastore: Datastore) -> None:
    raw = datastore.raw
    tables.one(session.form, raw, lambda: tables.fields(tables.titled(raw)))
