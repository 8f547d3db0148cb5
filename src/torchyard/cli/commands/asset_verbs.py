"""The verbs that versioned assets share.

Owns: create, list, show, download, archive and restore.
Leaves: columns and wording to each noun's module, `delete` to asset_deletion.py.
Always: a name may include its version: `digits:1`, `azureml:digits@latest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import TorchyardError
from torchyard.cli.commands import asset_deletion
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
    tagged,
    version_of,
    versioned,
)
from torchyard.cli.terminal import tables
from torchyard.client.assets import Asset, Assets
from torchyard.client.client import Client

if TYPE_CHECKING:
    from torchyard.cli.parsing.documents import Document


@dataclass(frozen=True)
class Kind:
    """How the verbs talk about a kind of asset.

    `attribute` is its name in `Client`, `word` its noun on the command line, `example` a name and
    `path_example` a value of `-p`.
    """

    noun: str
    attribute: str
    word: str
    types: str
    example: str
    path_example: str
    columns: Sequence[tables.Column]

    def of(self, client: Client) -> Assets[Asset]:
        assets: Assets[Asset] = getattr(client, self.attribute)
        return assets


def add(group: click.Group, kind: Kind) -> None:
    """Add the verbs to `group`."""
    for verb in (_create, _list, _show, _download, _archive, _restore):
        verb(group, kind)
    asset_deletion.add(group, kind.noun, kind.attribute, kind.word, kind.example)


def add_without_files(group: click.Group, kind: Kind) -> None:
    """Add the verbs to `group` except those about files; it has its own `create`."""
    for verb in (_list, _show, _archive, _restore):
        verb(group, kind)


def show_one(session: Session, asset: Asset) -> None:
    """Print one version."""
    files = asset.raw.get("files")
    shown = dict(asset.raw)
    if isinstance(files, list):
        shown["files"] = [file["path"] if isinstance(file, dict) else file for file in files]
    tables.one(session.form, asset.raw, lambda: tables.fields(tables.titled(shown)))


def _create(group: click.Group, kind: Kind) -> None:
    @group.command(
        "create",
        help=_page(
            f"Register a version of a {kind.noun}.",
            f"yard {kind.word} create -n {kind.example} -p {kind.path_example}",
        ),
    )
    @click.option("-n", "--name", default=None, help=f"{kind.noun.capitalize()} name.")
    @click.option("-v", "--version", default=None, help="Version. Default: the next one.")
    @click.option(
        "-p",
        "--path",
        default=None,
        help="Local file or folder, azureml://jobs/<job>/outputs/<output>, or another data URI.",
    )
    @click.option("-t", "--type", "type_name", default=None, help=f"{kind.types}.")
    @click.option("--description", default=None, help="Description.")
    @click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags to set.")
    @accepts("--datastore", "--no-wait", "--skip-validation")
    @common
    @filed(kind.noun)
    def create(
        session: Session,
        document: Document,
        path: str | None,
        type_name: str | None,
        tags: tuple[str, ...],
        **options: Any,
    ) -> None:
        from torchyard.cli.terminal import progress

        # A path on the command line is relative to the current folder, not to the file.
        folder = document.folder if path is None else Path.cwd()
        document.fill({"path": path, "type": type_name, "tags": tagged(tags), **options})
        assets = kind.of(session.client())
        try:
            with progress.uploading() as sent:
                asset = assets.create(document.value, folder, sent)
        except TorchyardError as error:
            raise document.locate(error) from error.__cause__
        show_one(session, asset)


def _list(group: click.Group, kind: Kind) -> None:
    @group.command(
        "list",
        help=_page(
            f"List the latest version of each {kind.noun}, or all versions of one.",
            f"yard {kind.word} list -n {kind.example}",
        ),
    )
    @click.option(
        "-n",
        "--name",
        default="",
        help="List all versions of this one.",
        shell_complete=names_of(kind.attribute),
    )
    @many
    @archivable
    @common
    def list_assets(session: Session, name: str, max_results: int | None, archived: str) -> None:
        assets = kind.of(session.client()).list(name, archived=archived != "no")
        tables.rows(session.form, at_most(assets.raw, archived, max_results), kind.columns)


def _show(group: click.Group, kind: Kind) -> None:
    @group.command(
        "show",
        help=_page(
            f"Show one version of a {kind.noun}.", f"yard {kind.word} show -n {kind.example} -v 1"
        ),
    )
    @named(kind.noun, kind.attribute)
    @versioned
    @common
    def show(session: Session, name: str, version: str, label: str) -> None:
        name, version = version_of(name, version, label)
        show_one(session, kind.of(session.client()).get(name, version or "latest"))


def _download(group: click.Group, kind: Kind) -> None:
    @group.command(
        "download",
        help=_page(
            f"Download the files of a {kind.noun}.",
            f"yard {kind.word} download -n {kind.example} -v 1 -p copies",
        ),
    )
    @named(kind.noun, kind.attribute)
    @versioned
    @click.option(
        "-p",
        "--download-path",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("."),
        metavar="DIR",
        help="Download into a folder of the asset's name in DIR. Default: the current folder.",
    )
    @common
    def download(
        session: Session, name: str, version: str, label: str, download_path: Path
    ) -> None:
        from torchyard.cli.terminal import progress

        name, version = version_of(name, version, label)
        assets = kind.of(session.client())
        with progress.bar("Downloading") as count:
            written = assets.download(name, version or "latest", download_path, count)
        tables.files(session.form, written)


def _archive(group: click.Group, kind: Kind) -> None:
    @group.command(
        "archive",
        help=_page(
            f"Hide a {kind.noun}, or one version of it, from lists.",
            f"yard {kind.word} archive -n {kind.example} -v 1",
        ),
    )
    @named(kind.noun, kind.attribute)
    @click.option("-v", "--version", default="", help="Version. Default: all versions.")
    @click.option(
        "-l",
        "--label",
        default="",
        metavar="LABEL",
        help="Label such as latest, instead of a version.",
    )
    @common
    def archive(session: Session, name: str, version: str, label: str) -> None:
        name, version = version_of(name, version, label)
        kind.of(session.client()).archive(name, version)
        _say(session, kind, name, version, archived=True)


def _restore(group: click.Group, kind: Kind) -> None:
    @group.command(
        "restore",
        help=_page(
            f"Show an archived {kind.noun} in lists again.",
            f"yard {kind.word} restore -n {kind.example} -v 1",
        ),
    )
    @named(kind.noun, kind.attribute)
    @click.option("-v", "--version", default="", help="Version. Default: all versions.")
    @click.option(
        "-l",
        "--label",
        default="",
        metavar="LABEL",
        help="Label such as latest, instead of a version.",
    )
    @common
    def restore(session: Session, name: str, version: str, label: str) -> None:
        name, version = version_of(name, version, label)
        kind.of(session.client()).restore(name, version)
        _say(session, kind, name, version, archived=False)


def _say(session: Session, kind: Kind, name: str, version: str, *, archived: bool) -> None:
    which = f"{name}:{version}" if version else name
    result = {"name": name, "version": version or None, "archived": archived}
    word = "is archived" if archived else "is restored"
    tables.done(session.form, result, f"{kind.noun.capitalize()} `{which}` {word}.")


def _page(what: str, example: str) -> str:
    return f"{what}\n\nExample: {example}"
