"""`yard configure`: the user's defaults, as `az configure` sets them.

Owns: the options, the names of the defaults.
Leaves: the file, and which workspace a command means, to client/connection.py.
Always: no server is started; where one runs that does not have the workspace, a warning says so; a
default that torchyard has no use for is refused by name.
"""

from __future__ import annotations

import shlex

import click

from torchyard.base.errors import InvalidInput, TorchyardError, did_you_mean
from torchyard.base.terminal_text import plain
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common, warn
from torchyard.cli.terminal import tables
from torchyard.client import connection
from torchyard.client.client import Client

_NAMES = ("workspace", "group", "location")


@click.command("configure", cls=Verb)
@click.option(
    "-d",
    "--defaults",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set workspace, and group and location of new workspaces; an empty VALUE removes one.",
)
@click.option("-l", "--list-defaults", is_flag=True, help="List the defaults.")
@common
def configure(session: Session, defaults: tuple[str, ...], list_defaults: bool) -> None:
    """Set the defaults of all commands on this machine.

    `-w`, TORCHYARD_WORKSPACE and the nearest config.json take precedence over them.

    Example: yard configure --defaults workspace=vision group=research
    """
    home = session.settings.home
    values = connection.configured_defaults(home)
    if defaults:
        values = {name: value for name, value in (values | _read(defaults)).items() if value}
        connection.configure_defaults(home, values)
        if values.get("workspace"):
            _warn_of_missing(session, values["workspace"])
    elif not list_defaults:
        raise InvalidInput(
            "there is nothing to configure",
            "write `yard configure --defaults workspace=NAME`, or `--list-defaults`",
        )
    rows = [{"name": name, "value": values[name]} for name in _NAMES if name in values]
    columns = [("NAME", lambda row: row["name"]), ("VALUE", lambda row: row["value"])]
    tables.rows(session.form, rows, columns)


def _warn_of_missing(session: Session, workspace: str) -> None:
    try:
        with Client(settings=session.settings, workspace=workspace, start=False) as client:
            names = [each.name for each in client.workspaces.list()]
    except TorchyardError:
        return  # What it has is not known; `az configure` takes any name, too.
    if workspace not in names:
        hint = did_you_mean(
            workspace,
            names,
            f"make it with `{shlex.join(['yard', 'workspace', 'create', '-n', workspace])}`",
        )
        warn(f"workspace `{plain(workspace)}` does not exist; {plain(hint)}")


def _read(defaults: tuple[str, ...]) -> dict[str, str]:
    """
    Raises:
        InvalidInput: a word is not `NAME=VALUE`, or names are not those of defaults: all of these.
    """
    pairs = dict(_pair(each) for each in defaults)
    unknown = [name for name in pairs if name not in _NAMES]
    if unknown:
        raise InvalidInput(
            f"no default is called {', '.join(f'`{name[:80]}`' for name in unknown)}",
            did_you_mean(unknown[0], _NAMES, f"defaults: {', '.join(_NAMES)}"),
        )
    return pairs


def _pair(assignment: str) -> tuple[str, str]:
    name, equals, value = assignment.partition("=")
    if not equals:
        raise InvalidInput(
            f"`{assignment[:80]}` sets no default", "write `--defaults workspace=NAME`"
        )
    return name.strip(), value.strip()
