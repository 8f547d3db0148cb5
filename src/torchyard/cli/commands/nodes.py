"""`yard node …`: machines that join a cluster."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from torchyard.base import logins
from torchyard.base.errors import InvalidInput
from torchyard.base.http import Transport
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import Session, common, confirm
from torchyard.cli.terminal import tables
from torchyard.cli.terminal.tables import size_text

group = noun("node")

_DEFAULT_COMPUTE = "machines"
_UNIT = "torchyard-node.service"
_PIPE_BYTES = 60_000
_COLUMNS: list[tables.Column] = [
    ("NAME", lambda machine: machine["name"]),
    ("COMPUTE", lambda machine: machine["compute"]),
    ("STATE", lambda machine: machine["state"]),
    ("OWNER", lambda machine: machine["owner"]),
    ("ADDRESS", lambda machine: machine["address"]),
    ("CORES", lambda machine: machine["facts"].get("cpus")),
    ("MEMORY", lambda machine: size_text(machine["facts"].get("memory_bytes") or 0)),
    ("GPUS", lambda machine: _gpus(machine["facts"])),
    ("SEEN", lambda machine: tables.moment(machine["seen_at"])),
]

_compute = click.option(
    "--compute",
    default=_DEFAULT_COMPUTE,
    show_default=True,
    metavar="NAME",
    help="The cluster; the default one is made with its first machine.",
)


@group.command("join")
@click.argument("url", required=False)
@click.option(
    "--token",
    default="",
    metavar="TOKEN",
    help="Your token at the server; others on this machine can see it while you type.",
)
@click.option(
    "--token-file",
    default="",
    metavar="FILE",
    help="Read the token from FILE; - is standard input.",
)
@click.option("--ca-cert", default="", metavar="FILE", help="Trust this CA certificate (PEM).")
@_compute
@click.option("-n", "--name", default="", help="The machine's name; default: its host name.")
@click.option(
    "--address", default="", metavar="IP", help="This machine's address in the nodes' network."
)
@common
def join(
    session: Session,
    url: str | None,
    token: str,
    token_file: str,
    ca_cert: str,
    compute: str,
    name: str,
    address: str,
) -> None:
    """Make this machine a node of the server at URL, until you press Ctrl-C.

    Without a token the login to that server is used (`yard login`).

    \b
    Example: yard node join https://first:8765 --token-file token.txt
             yard node join
    """
    transport = _transport(session, url, token, token_file, ca_cert)
    folder = os.environ.get("TORCHYARD_NODE_FOLDER") or session.settings.home / "node"
    _become_agent(
        {
            "url": transport.url,
            "token": transport.token,
            "ca_cert": transport.ca_cert,
            "workspace": quote(session.workspace or _workspace(transport), safe=""),
            "compute": quote(compute, safe=""),
            "name": name,
            "address": address,
            "folder": str(folder),
        }
    )


def _become_agent(request: dict[str, Any]) -> None:
    """Run the agent in place of this process: a service's main process stays the same."""
    receiving, sending = os.pipe()
    content = json.dumps(request).encode()
    assert len(content) < _PIPE_BYTES
    os.write(sending, content)
    os.close(sending)
    os.dup2(receiving, 0)
    os.close(receiving)
    os.execv(sys.executable, [sys.executable, "-m", "torchyard.node_agent"])


@group.command("list")
@click.option("--compute", default="", metavar="NAME", help="List only this cluster's.")
@common
def list_nodes(session: Session, compute: str) -> None:
    """List the machines that have joined.

    Example: yard node list
    """
    client = session.client()
    query = {"compute": compute} if compute else None
    machines = client.transport.get(f"{_path(client.workspace)}", query)["value"]
    tables.rows(session.form, machines, _COLUMNS)


@group.command("drain")
@click.argument("name")
@_compute
@click.option("--undo", is_flag=True, help="Let it take jobs again.")
@common
def drain(session: Session, name: str, compute: str, undo: bool) -> None:
    """Let no further job start on a machine; those that run go on.

    Example: yard node drain lab-3
    """
    client = session.client()
    path = f"{_path(client.workspace)}/{quote(compute, safe='')}/{quote(name, safe='')}/drain"
    machine = client.transport.post(path, {"draining": not undo})
    text = f"`{name}` takes no further job." if not undo else f"`{name}` takes jobs again."
    tables.done(session.form, machine, text)


@group.command("leave")
@click.argument("name", required=False)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST,…",
    help="Hosts that `yard compute create --hosts` joined: end their nodes by ssh.",
)
@_compute
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@common
def leave(
    session: Session, name: str | None, hosts: tuple[str, ...], compute: str, yes: bool
) -> int:
    """Remove a machine from its cluster; jobs that run there are lost, or retried elsewhere.

    \b
    Example: yard node leave lab-3
             yard node leave --host lab-1,ann@lab-2:2222
    """
    if (name is None) == (not hosts):
        raise InvalidInput(
            "name one machine, or hosts with `--host`", "see the machines with `yard node list`"
        )
    if name is None:
        from torchyard.cli.hosts import clusters_of_hosts

        return clusters_of_hosts.leave(session, compute, hosts, yes)
    client = session.client()
    confirm(f"Remove machine `{name}` from compute `{compute}`?", yes)
    client.transport.delete(
        f"{_path(client.workspace)}/{quote(compute, safe='')}/{quote(name, safe='')}"
    )
    tables.done(session.form, {"name": name}, f"`{name}` leaves within ten seconds.")
    return 0


@group.command("install")
@click.argument("url", required=False)
@_compute
@click.option("-n", "--name", default="", help="The machine's name; default: its host name.")
@common
def install(session: Session, url: str | None, compute: str, name: str) -> None:
    """Write a systemd unit that keeps this machine a node; log in first (`yard login`).

    Example: yard node install https://first:8765
    """
    address = _transport(session, url, "", "", "").url
    is_root = os.geteuid() == 0
    folder = Path("/etc/systemd/system") if is_root else _user_units()
    folder.mkdir(parents=True, exist_ok=True)
    words = [_yard(), "node", "join", address, "--compute", compute]
    words += ["--name", name] if name else []
    words += ["-w", session.workspace] if session.workspace else []
    file = folder / _UNIT
    file.write_text(_unit_text(words, session.settings.home, is_root))
    who = "" if is_root else " --user"
    text = f"Wrote {file}. Start it now and at every boot:\n  systemctl{who} enable --now {_UNIT}"
    tables.done(session.form, {"file": str(file)}, text)


def _unit_text(words: list[str], home: Path, is_root: bool) -> str:
    command = " ".join(_quoted(word) for word in words)
    target = "multi-user.target" if is_root else "default.target"
    return f"""\
[Unit]
Description=torchyard node
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={command}
Environment={_quoted(f"TORCHYARD_HOME={home}")}
Restart=always
RestartSec=5
TimeoutStopSec=90
Delegate=yes

[Install]
WantedBy={target}
"""


def _quoted(word: str) -> str:
    """As systemd.syntax(7) reads it."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _user_units() -> Path:
    configuration = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(configuration, "systemd", "user")


def _yard() -> str:
    return shutil.which("yard") or str(Path(sys.argv[0]).absolute())


def _transport(
    session: Session, url: str | None, token: str, token_file: str, ca_cert: str
) -> Transport:
    if token and token_file:
        raise InvalidInput("`--token` and `--token-file` are both given", "give one of them")
    if not url and not token and not token_file:
        if not session.settings.url:
            raise InvalidInput(
                "no server is named, and you are not logged in to one",
                "give its address: `yard node join https://first:8765 --token-file FILE`",
            )
        return session.client().transport
    address = logins.url_of(url) if url else session.settings.url
    saved = logins.read(session.settings.home).servers.get(address, logins.Login(address))
    new_token = token or _read_token(token_file)
    if not new_token and not saved.token:
        raise InvalidInput(
            f"you are not logged in to `{address}`",
            f"give `--token-file FILE`, or log in first with `yard login {address}`",
        )
    trusted = str(Path(ca_cert).absolute()) if ca_cert else saved.ca_cert
    return Transport(address, new_token or saved.token, ca_cert=trusted)


def _read_token(file: str) -> str:
    if not file:
        return ""
    try:
        return (sys.stdin.read() if file == "-" else Path(file).read_text()).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"`{file}` can't be read ({error})", "check the path and its permissions"
        ) from error


def _workspace(transport: Transport) -> str:
    return str(transport.get("/v1/whoami")["workspace"])


def _path(workspace: str) -> str:
    return f"/v1/workspaces/{quote(workspace, safe='')}/machines"


def _gpus(facts: dict[str, Any]) -> str:
    count = facts.get("gpus") or 0
    return f"{count} x {facts.get('gpu_kind') or 'GPU'}" if count else ""
