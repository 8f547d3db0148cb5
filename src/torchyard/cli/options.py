"""What every command takes: `-o`, `-w`, and a name given as `-n` or by its place.

Owns: the options common to the commands, the session they make, the workspace meant.
Leaves: connecting to client.py.
Always: the workspace is the first of `-w`, TORCHYARD_WORKSPACE, the nearest `config.json`,
`default`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from torchyard.base import settings as base_settings
from torchyard.base.errors import InvalidInput
from torchyard.base.settings import Settings
from torchyard.cli import tables
from torchyard.client import Client, connect

Command = TypeVar("Command", bound=Callable[..., Any])

_CONFIG_FILES = (".azureml/config.json", "aml_config/config.json", "config.json")


@dataclass(frozen=True)
class Session:
    """One invocation of the command. `output_given` tells `-o table` from no `-o` at all."""

    settings: Settings
    workspace: str
    output: str
    output_given: bool

    def client(self) -> Client:
        name = self.workspace or self.settings.workspace or _configured(Path.cwd())
        client = connect(self.settings, name, on_start=_say_starting)
        click.get_current_context().call_on_close(client.close)
        return client


def common(command: Command) -> Command:
    """Give the command its `Session` as first argument."""

    @click.option(
        "-o",
        "--output",
        type=click.Choice(tables.OUTPUTS, case_sensitive=False),
        default=None,
        help="How to print: table (for people), json, yaml, tsv or none.",
    )
    @click.option("-w", "--workspace-name", metavar="NAME", default="", help="The workspace.")
    @click.option(
        "-g",
        "--resource-group",
        expose_value=False,
        metavar="NAME",
        help="Taken as `az ml` does; says nothing here.",
    )
    @click.option(
        "--subscription",
        expose_value=False,
        metavar="ID",
        help="Taken as `az ml` does; says nothing here.",
    )
    @functools.wraps(command)
    def with_session(
        *arguments: Any, output: str | None, workspace_name: str, **options: Any
    ) -> Any:
        settings = base_settings.read()
        session = Session(settings, workspace_name, output or "table", output is not None)
        return command(session, *arguments, **options)

    return with_session  # type: ignore[return-value]


def named(noun: str) -> Callable[[Command], Command]:
    """Take `-n NAME` or a bare NAME; the command gets `name`."""

    def decorate(command: Command) -> Command:
        @click.argument("given", metavar="[NAME]", required=False)
        @click.option("-n", "--name", default=None, help=f"The {noun}'s name.")
        @functools.wraps(command)
        def with_name(*arguments: Any, given: str | None, name: str | None, **options: Any) -> Any:
            if given and name and given != name:
                raise click.UsageError(f"Two names are given, '{name}' and '{given}'.")
            if not (given or name):
                raise click.UsageError(f"The {noun}'s name is missing: write '-n NAME'.")
            return command(*arguments, name=name or given, **options)

        return with_name  # type: ignore[return-value]

    return decorate


def confirm(question: str, yes: bool) -> None:
    """Ask at a terminal; elsewhere `--yes` is needed.

    Raises:
        InvalidInput: the answer is no, or there is nobody to ask.
    """
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"{question} nobody is here to answer", "say `--yes`")
    if not click.confirm(question, err=True):
        raise InvalidInput("not confirmed, nothing was done")


def _configured(folder: Path) -> str:
    """The workspace that the nearest `config.json` names, from `folder` upwards."""
    for parent in (folder, *folder.parents):
        for name in _CONFIG_FILES:
            file = parent / name
            try:
                body = json.loads(file.read_bytes())
            except (OSError, ValueError):
                continue
            workspace = body.get("workspace_name") if isinstance(body, dict) else None
            if isinstance(workspace, str) and workspace:
                return workspace
    return ""


def _say_starting() -> None:
    click.echo("Starting the torchyard server of this machine…", err=True)
