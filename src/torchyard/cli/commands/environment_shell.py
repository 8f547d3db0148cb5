"""`yard environment shell`: a shell, or a command, in an environment.

Owns: the verb: building when it is not there, whether the environment lies on this machine.
Leaves: the thin environment and the shell to the worker's program, which this process becomes.
Always: whatever is installed inside is gone at the end and touches nobody else's; the exit code
is that of what ran inside.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from torchyard.base.errors import InvalidInput, NotFound, TorchyardError
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import (
    Session,
    common,
    document_from,
    names_of,
    reference_of,
    versioned,
)
from torchyard.client.client import Client

_COMMAND = "torchyard.shell_command"


class _WithCommand(Verb):
    """What stands behind `--` is a command, not a name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


@click.command("shell", cls=_WithCommand, options_metavar="[OPTIONS] [-- COMMAND...]")
@click.argument("given", metavar="[NAME]", required=False, shell_complete=names_of("environments"))
@click.option("-n", "--name", default="", help="The environment's name.")
@versioned
@click.option("-f", "--file", default="", metavar="FILE", help="Instead: an environment's file.")
@common
def shell(
    session: Session, given: str | None, name: str, version: str, label: str, file: str
) -> None:
    """Open your shell in an environment, or run the command behind `--` in it.

    It is built first where it has to be. `pip install` inside touches nobody else, and is gone
    when you leave.

    Example: yard environment shell acpt-pytorch-2.13-cpu -- python -c "import torch"
    """
    if given and name and given != name:
        raise click.UsageError(f"Two names are given, '{name}' and '{given}'.")
    name = name or given or ""
    if bool(name) == bool(file):
        raise click.UsageError("Name an environment, or its file with '-f FILE'.")
    command = click.get_current_context().meta.get(_COMMAND, [])
    client = session.client()
    document = document_from(file, ())
    try:
        asked: Any = reference_of(name, version, label) if name else None
        asked = asked or client.environments.uploaded(document.value, document.folder)
        known = client.environments.resolve(asked).raw
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    # An image is refused below, whether or not an engine could build it.
    is_image = known.get("image") or known.get("dockerfile")
    if known.get("refused") and not is_image:
        raise InvalidInput(known["refused"], known.get("hint", ""))
    if known["build"] != "ready" and not is_image:
        client.environments.build(asked, lambda text: click.echo(text, nl=False, err=True))
    found = client.environments.use(asked).raw
    called = found["ref"] or name or Path(file).stem
    _refuse_elsewhere(client, found, called)
    if not command and sys.stdin.isatty():
        click.echo(f"`{called}`; what you install is gone when you leave.", err=True)
    client.close()
    sys.stdout.flush()
    sys.stderr.flush()
    program = [sys.executable, "-I", "-m", "torchyard.worker.launch.environment_shell"]
    os.execv(sys.executable, [*program, called, found["folder"], found["lock"], *command])


def _refuse_elsewhere(client: Client, found: Mapping[str, Any], name: str) -> None:
    """
    Raises:
        NotFound: the environment lies on another machine, or where this person can't look.
    """
    folder = Path(found["folder"])
    # Named by its content: what lies here under this name is what the server means.
    if folder.name == found["hash"] and os.access(folder / "bin" / "python", os.X_OK):
        return
    raise NotFound(
        f"environment `{name}` lies on the server's machine, at `{folder}`, which can't be reached "
        f"from here (the server is {client.transport.url})",
        "run this on that machine, or take the environment here: "
        f"`yard environment export -n {name} --format requirements`",
    )
