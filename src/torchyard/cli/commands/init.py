"""`yard init`: lay out a project that trains as it is.

Owns: which files it writes.
Leaves: the files to the example `start`.
Always: no file is replaced; either all are written or none.
"""

from __future__ import annotations

import os
import shlex
import shutil
from contextlib import suppress
from importlib import resources
from pathlib import Path

import click

from torchyard.base.errors import Conflict, InvalidInput
from torchyard.cli import examples
from torchyard.cli.parsing.group import Verb

_SCHEMA = "job.schema.json"


@click.command("init", cls=Verb)
@click.argument("folder", type=click.Path(path_type=Path), default=Path("."), metavar="[FOLDER]")
def init(folder: Path) -> None:
    """Lay out a project: job.yml, train.py with DistributedDataParallel and checkpoints, README.

    Example: yard init digits
    """
    source = examples.folder("start")
    files = {
        str(file.relative_to(source)): file
        for file in sorted(source.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }
    there = [name for name in (*files, _SCHEMA) if os.path.lexists(folder / name)]
    if there:
        raise Conflict(
            f"`{folder / there[0]}` exists, and nothing was written",
            "name another folder: `yard init FOLDER`",
        )
    try:
        for name, file in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / name)
        schema = resources.files("torchyard.schemas").joinpath("job.json")
        (folder / _SCHEMA).write_text(schema.read_text("utf-8"), "utf-8")
    except OSError as error:
        for name in (*files, _SCHEMA):
            with suppress(OSError):
                (folder / name).unlink()
        raise InvalidInput(
            f"`{error.filename or folder}` can't be written ({error.strerror})",
            "name a folder in which you may write",
        ) from error
    for name in (*files, _SCHEMA):
        click.echo(f"wrote {folder / name}")
    go = "" if folder == Path(".") else f"cd {shlex.quote(str(folder))} && "
    click.echo(f"\nTrain: {go}yard job create -f job.yml --stream")
