"""`yard node invite`: the line that makes another machine a node.

Owns: the command, the line.
Leaves: the invitation to the server, accepting it to node_agent/invitations.py.
Always: the invitation is a variable in the line and no argument, since everybody on a machine sees
the arguments of its programs.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import quote

import click

from torchyard.base.errors import InvalidInput
from torchyard.cli.parsing import amounts
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common
from torchyard.cli.terminal import tables

INVITATION = "TORCHYARD_INVITATION"
_HEAD_S = 1800.0


@click.command("invite", cls=Verb)
@click.argument("name", required=False, default="")
@click.option(
    "--compute",
    default="machines",
    show_default=True,
    metavar="NAME",
    help="The cluster; the default one is made with its first machine.",
)
@click.option(
    "--expires",
    default="1h",
    show_default=True,
    help="How long the invitation is valid, such as `30m`; at most 7 days.",
)
@click.option(
    "--address",
    default="",
    metavar="HOST",
    help="The address of the server's machine by which the other one reaches it.",
)
@click.option(
    "--runner", is_flag=True, help="The machine has a runner, and takes everybody's jobs."
)
@common
def invite(
    session: Session, name: str, compute: str, expires: str, address: str, runner: bool
) -> None:
    """Print the line that makes another machine a node, once.

    NAME is the machine's name in the cluster; by default its host name.

    \b
    Example: yard node invite
             yard node invite lab-3 --address 10.0.0.5 --expires 10m
    """
    ends_at = amounts.later(expires)
    if ends_at is None:
        raise InvalidInput(
            "an invitation has to end", "write how long it is valid, such as `--expires 1h`"
        )
    client = session.client()
    workspace = quote(client.workspace, safe="")
    # The server may have to install Ray first.
    with closing(client.transport.twin(timeout_s=_HEAD_S)) as transport:
        invited = transport.post(
            f"/v1/workspaces/{workspace}/machines/{quote(compute, safe='')}/invitations",
            {
                "machine": name,
                "address": address,
                "everybody": runner,
                "expires_at": ends_at,
            },
        )
    lines = [_joining_line(invited, url, runner) for url in invited["server_urls"]]
    body = {**invited, "line": lines[0]}
    tables.one(session.form, body, lambda: _invitation_page(invited, lines))


def _joining_line(invited: Mapping[str, Any], url: str, runner: bool) -> str:
    words = ["yard", "node", "join", url]
    words += ["--fingerprint", invited["fingerprint"]] if invited["fingerprint"] else []
    words += ["--runner"] if runner else []
    return f"{INVITATION}={invited['token']} {shlex.join(words)}"


def _invitation_page(invited: Mapping[str, Any], lines: Sequence[str]) -> str:
    ends = tables.moment(invited["expires_at"])
    parts = [
        f"Type this on the other machine; it works once, until {ends}:",
        lines[0],
        "If torchyard is not installed there, write `uvx --from torchyard yard` instead of `yard`.",
    ]
    if len(lines) > 1:
        others = ", ".join(f"`{url}`" for url in invited["server_urls"][1:])
        parts.append(f"If it can't reach that address, use another one of the server: {others}.")
    return "\n\n".join(parts)
