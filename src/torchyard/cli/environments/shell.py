"""`yard environment shell`: a shell, or a command, in an environment.

Owns: the verb: building a missing environment, checking that it is on this machine.
Leaves: the overlay environment and the shell to the worker's program, which replaces this process.
Always: packages installed inside are gone at the end and affect nobody else; the exit code is that
of the shell or command.
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
    """Keep the command after `--` apart from the name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


@click.command("shell", cls=_WithCommand, options_metavar="[OPTIONS] [-- COMMAND...]")
@click.argument(
    "argument", metavar="[NAME]", required=False, shell_complete=names_of("environments")
)
@click.option("-n", "--name", default="", help="Environment name.")
@versioned
@click.option(
    "-f",
    "--file",
    default="",
    metavar="FILE",
    help="YAML file of an environment, instead of a name.",
)
@common
def shell(
    session: Session, argument: str | None, name: str, version: str, label: str, file: str
) -> None:
    """Open your shell in an environment, or run the command after `--` in it.

    The environment is built first if necessary. `pip install` inside affects nobody else, and its
    packages are gone when you leave.

    Example: yard environment shell acpt-pytorch-2.13-cpu -- python -c "import torch"
    """
    if argument and name and argument != name:
        raise click.UsageError(f"Two names were given, '{name}' and '{argument}'.")
    name = name or argument or ""
    if bool(name) == bool(file):
        raise click.UsageError("Name either an environment or its file, with '-f FILE'.")
    command = click.get_current_context().meta.get(_COMMAND, [])
    client = session.client()
    document = document_from(file, ())
    try:
        reference: Any = reference_of(name, version, label) if name else None
        reference = reference or client.environments.uploaded(document.value, document.folder)
        resolution = client.environments.resolve(reference).raw
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    # An image is refused below, even if an engine could build it.
    is_image = resolution.get("image") or resolution.get("dockerfile")
    if resolution.get("refused") and not is_image:
        raise InvalidInput(resolution["refused"], resolution.get("hint", ""))
    if resolution["build"] != "ready" and not is_image:
        client.environments.build(reference, lambda text: click.echo(text, nl=False, err=True))
    environment = client.environments.use(reference).raw
    called = environment["ref"] or name or Path(file).stem
    _refuse_elsewhere(client, environment, called)
    if not command and sys.stdin.isatty():
        click.echo(f"`{called}`: packages you install are gone when you leave.", err=True)
    client.close()
    sys.stdout.flush()
    sys.stderr.flush()
    program = [sys.executable, "-I", "-m", "torchyard.worker.launch.environment_shell"]
    os.execv(
        sys.executable, [*program, called, environment["folder"], environment["lock"], *command]
    )


def _refuse_elsewhere(client: Client, environment: Mapping[str, Any], name: str) -> None:
    """
    Raises:
        NotFound: the environment is on another machine, or in a folder this user can't read.
    """
    folder = Path(environment["folder"])
    # The name is a hash of the content, so a folder of this name is the same environment.
    if folder.name == environment["hash"] and os.access(folder / "bin" / "python", os.X_OK):
        return
    raise NotFound(
        f"environment `{name}` is on the server's machine, at `{folder}`, which can't be read "
        f"from here (the server is {client.transport.url})",
        "run this on that machine, or export the environment: "
        f"`yard environment export -n {name} --format requirements`",
    )
