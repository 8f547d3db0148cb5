"""`delete` of models, data and environments.

Owns: the verb, its question, what it says that breaks.
Leaves: what may be deleted to the server.
Always: without `--yes`, it says what will be deleted and asks for confirmation; several versions
are deleted only with `--all`.
"""

from __future__ import annotations

from typing import Any

import click

from torchyard.base.errors import InvalidInput
from torchyard.cli.parsing.options import Session, common, confirm, name_argument, version_of, warn
from torchyard.cli.terminal import tables
from torchyard.shared.sizes import size_text

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda row: row["name"]),
    ("VERSION", lambda row: row["version"]),
    ("SIZE", lambda row: size_text(row["size_bytes"])),
]


def add(group: click.Group, noun: str, attribute: str, word: str, example: str) -> None:
    """Add the verb to `group`.

    Args:
        noun: what messages call one; `word` is the noun on the command line.
        attribute: its name in `Client`.
        example: a name of one.
    """

    @group.command(
        "delete",
        help=f"Delete {'an' if noun[0] in 'aeiou' else 'a'} {noun}, or one version of it, "
        "permanently.\n\nIt is refused while something names it: a job, a component, data, an "
        "alias.\n\n"
        f"Example: yard {word} delete -n {example} -v 1",
    )
    @name_argument(noun, attribute)
    @click.option("-v", "--version", default="", help="Version. Default: the only one.")
    @click.option("-l", "--label", default="", metavar="LABEL", help="Label, instead of a version.")
    @click.option("--all", "everything", is_flag=True, help="Delete all versions.")
    @click.option("--force", is_flag=True, help="Delete it in spite of that; say what breaks.")
    @click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
    @click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
    @common
    def delete(
        session: Session,
        name: str,
        version: str,
        label: str,
        everything: bool,
        force: bool,
        dry_run: bool,
        yes: bool,
    ) -> None:
        name, version = version_of(name, version, label)
        if everything and version:
            raise click.UsageError("'--all' and a version can't be combined.")
        assets = getattr(session.client(), attribute)
        if not (version or everything):
            version = _only_version(noun, name, assets)
        plan = assets.delete(name, version, force=force, dry_run=True)
        for sentence in plan.breaks:
            warn(f"without it, {sentence}")
        if dry_run:
            tables.rows(session.form, plan.raw["deleted"], _COLUMNS)
            return
        which = f"{noun} `{name}:{plan.versions[0].version}`"
        if len(plan.versions) > 1:
            which = f"all {len(plan.versions)} versions of {noun} `{name}`"
        total = size_text(sum(row.size_bytes for row in plan.versions))
        confirm(f"Delete {which} with {total} of files permanently?", yes)
        done = assets.delete(name, version, force=force)
        verb = "are" if len(done.versions) > 1 else "is"
        text = f"{which[:1].upper()}{which[1:]} {verb} deleted."
        tables.done(session.form, done.raw, text)


def _only_version(noun: str, name: str, assets: Any) -> str:
    """
    Raises:
        InvalidInput: it has several.
    """
    versions = [str(asset.version) for asset in assets.list(name, archived=True)]
    if len(versions) > 1:
        shown = ", ".join(versions[:10]) + (", …" if len(versions) > 10 else "")
        raise InvalidInput(
            f"{noun} `{name}` has {len(versions)} versions: {shown}",
            "name one with `-v`, or delete all of them with `--all`",
        )
    return versions[0] if versions else "latest"
