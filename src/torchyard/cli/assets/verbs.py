"""The verbs that versioned assets share.

Owns: create, update, list, show, download, archive and restore.
Leaves: columns and wording to each noun's module, `delete` to deletion.py, `lineage` to
lineages.py.
Always: a name may include its version: `digits:1`, `azureml:digits@latest`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import TorchyardError
from torchyard.cli.assets import deletion, lineages
from torchyard.cli.parsing.options import (
    Session,
    accepts,
    archivable,
    at_most,
    changes_from,
    common,
    filed,
    many,
    name_argument,
    names_of,
    tagged,
    version_of,
    versioned,
)
from torchyard.cli.terminal import next_steps, tables
from torchyard.client.assets import Asset, Assets, DeletableAssets
from torchyard.client.client import Client

if TYPE_CHECKING:
    from torchyard.cli.parsing.documents import Document


_CHANGEABLE = ("description", "tags", "properties")


@dataclass(frozen=True)
class Kind:
    """How the verbs talk about a kind of asset.

    `attribute` is its name in `Client`, `word` its noun on the command line, `example` a name,
    `path_example` a value of `-p`, `next_steps` the commands that usually follow `create`.
    """

    noun: str
    attribute: str
    word: str
    types: str
    example: str
    path_example: str
    columns: Sequence[tables.Column]
    next_steps: Callable[[Mapping[str, Any]], list[str]] | None = None

    def of(self, client: Client) -> Assets[Asset]:
        assets: Assets[Asset] = getattr(client, self.attribute)
        return assets

    def deletable(self, client: Client) -> DeletableAssets[Asset]:
        """As `of`, for a kind that was added by `add`."""
        assets: DeletableAssets[Asset] = getattr(client, self.attribute)
        return assets


def add(group: click.Group, kind: Kind) -> None:
    """Add the verbs to `group`."""
    for verb in (_create, _update, _list, _show, _download, _archive, _restore):
        verb(group, kind)
    deletion.add(group, kind.noun, kind.attribute, kind.word, kind.example)
    lineages.add(group, kind.noun, kind.attribute, kind.word, kind.example)


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
    if isinstance(steps := shown.pop("jobs", None), dict):
        shown["steps"] = list(steps)
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
        if kind.next_steps is not None:
            next_steps.say(session.form, kind.next_steps(asset.raw))


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
    @name_argument(kind.noun, kind.attribute)
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
    @name_argument(kind.noun, kind.attribute)
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


def _update(group: click.Group, kind: Kind) -> None:
    @group.command(
        "update",
        help=_page(
            f"Change the description, tags or properties of a {kind.noun}.",
            f"yard {kind.word} update -n {kind.example} -v 1 --set tags.stage=production",
        ),
    )
    @name_argument(kind.noun, kind.attribute)
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
        name, version = version_of(name, version, label)
        changes = changes_from(assignments, {"tags": tagged(tags), **options}, _CHANGEABLE)
        assets = kind.deletable(session.client())
        show_one(session, assets.update(name, version or "latest", **changes))


def _archive(group: click.Group, kind: Kind) -> None:
    _hide_or_show(
        group, kind, "archive", f"Hide a {kind.noun}, or one version of it, from lists.", "archived"
    )


def _restore(group: click.Group, kind: Kind) -> None:
    summary = f"Show an archived {kind.noun} in lists again."
    _hide_or_show(group, kind, "restore", summary, "restored")


def _hide_or_show(group: click.Group, kind: Kind, verb: str, summary: str, participle: str) -> None:
    """Add `archive` or `restore`, which are the same call but for its name."""

    @group.command(verb, help=_page(summary, f"yard {kind.word} {verb} -n {kind.example} -v 1"))
    @name_argument(kind.noun, kind.attribute)
    @click.option("-v", "--version", default="", help="Version. Default: all versions.")
    @click.option(
        "-l",
        "--label",
        default="",
        metavar="LABEL",
        help="Label such as latest, instead of a version.",
    )
    @common
    def hide_or_show(session: Session, name: str, version: str, label: str) -> None:
        name, version = version_of(name, version, label)
        getattr(kind.of(session.client()), verb)(name, version)
        which = f"{name}:{version}" if version else name
        result = {"name": name, "version": version or None, "archived": verb == "archive"}
        text = f"{kind.noun.capitalize()} `{which}` is {participle}."
        tables.done(session.form, result, text)


def _page(summary: str, example: str) -> str:
    return f"{summary}\n\nExample: {example}"
