"""`yard mcp`: jobs for AI agents, by the Model Context Protocol.

Owns: the verb, whether the package that it needs is installed.
Leaves: the protocol to protocol.py, the tools to tools.py.
Always: standard output is the protocol's alone.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import click

from torchyard.base import settings as base_settings
from torchyard.base.errors import InvalidInput
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import accepts
from torchyard.client import connection
from torchyard.client.client import Client

_LEAST = 2


@click.command("mcp", cls=Verb)
@click.option("--allow-writes", is_flag=True, help="Let agents submit, cancel and rerun jobs.")
@click.option("-w", "--workspace-name", metavar="NAME", default="", help="Workspace name.")
@accepts("--debug", "--verbose", "--only-show-errors")
def mcp(allow_writes: bool, workspace_name: str) -> None:
    """Serve jobs to AI agents by the Model Context Protocol on stdin and stdout.

    An agent's program starts it. Without `--allow-writes` agents only read.

    Example: claude mcp add torchyard -- yard mcp
    """
    _require_package()
    from torchyard.cli.mcp import protocol, tools

    settings = base_settings.read()
    workspace = workspace_name or connection.default_workspace(settings, Path.cwd())
    # A connection for each call: calls may run beside each other, and servers may be restarted.
    protocol.serve(
        tools.offered(allow_writes),
        lambda: Client(workspace=workspace, settings=settings),
        workspace,
    )


def _require_package() -> None:
    try:
        version = metadata.version("mcp")
    except metadata.PackageNotFoundError:
        version = ""
    if not version:
        problem = "which is not installed"
    elif int(version.partition(".")[0]) < _LEAST:
        problem = f"version {_LEAST} or later; {version} is installed"
    else:
        return
    raise InvalidInput(
        f"`yard mcp` needs the package mcp, {problem}",
        "install it here: `pip install 'torchyard[mcp]'`",
        code="extra_missing",
    )
