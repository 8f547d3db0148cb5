"""`yard node …`: machines that join a cluster."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from torchyard import __version__
from torchyard.base import logins, pinned_certificates
from torchyard.base.errors import Conflict, InvalidInput, Unreachable
from torchyard.base.http import Transport
from torchyard.cli.compute.node_invite import INVITATION, invite
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import Session, common, confirm
from torchyard.cli.terminal import tables
from torchyard.shared import runner_messages
from torchyard.shared.sizes import size_text

group = noun("node")
group.add_command(invite)

_DEFAULT_COMPUTE = "machines"
_UNIT = "torchyard-node.service"
_MEMBERSHIP = "membership.json"  # see node_agent/invitations.py
# The folder of a node for everybody, below /var/lib.
_AGENT = "torchyard-agent"
_PIPE_BYTES = 60_000
_RUNNER_S = 60.0
_COLUMNS: list[tables.Column] = [
    ("NAME", lambda machine: machine["name"]),
    ("COMPUTE", lambda machine: machine["compute"]),
    ("STATE", lambda machine: machine["state"]),
    ("OWNER", lambda machine: machine["owner"]),
    ("JOBS OF", lambda machine: _takes(machine)),
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
@click.option(
    "--fingerprint",
    default="",
    metavar="SHA256",
    help="Trust the server's certificate that has this fingerprint.",
)
@_compute
@click.option("-n", "--name", default="", help="The machine's name; default: its host name.")
@click.option(
    "--address", default="", metavar="IP", help="This machine's address in the nodes' network."
)
@click.option(
    "--runner",
    is_flag=True,
    help="Take everybody's jobs, each started by this machine's yard-runner as its own Unix user.",
)
@common
def join(
    session: Session,
    url: str | None,
    token: str,
    token_file: str,
    ca_cert: str,
    fingerprint: str,
    compute: str,
    name: str,
    address: str,
    runner: bool,
) -> None:
    """Make this machine a node of the server at URL, until you press Ctrl-C.

    `yard node invite` prints the whole line, with an invitation in TORCHYARD_INVITATION. Without
    one a token is used, or the login to that server (`yard login`). Without URL, the machine joins
    as it did by its invitation. It takes your jobs alone unless it has a runner.

    \b
    Example: yard node join https://first:8766 --token-file token.txt
             yard node join
    """
    folder = _node_folder(session)
    # Out of the environment of what this machine runs as a node.
    invitation = os.environ.pop(INVITATION, "")
    if invitation:
        if not url or token or token_file or ca_cert:
            raise InvalidInput(
                f"{INVITATION} is set, and stands for a token and a CA certificate",
                "type the line as `yard node invite` printed it, or unset the variable",
            )
        where = {
            "invitation": logins.checked_token(invitation),
            "url": logins.url_of(url),
            "fingerprint": fingerprint,
        }
    elif _is_invited(session, url):
        where = {"url": ""}
    else:
        if fingerprint and url:
            ca_cert = pinned_certificates.trust(folder, logins.url_of(url), fingerprint)
        transport = _transport(session, url, token, token_file, ca_cert)
        where = {
            "url": transport.url,
            "token": transport.token,
            "ca_cert": transport.ca_cert,
            "workspace": quote(session.workspace or _workspace(transport), safe=""),
            "compute": quote(compute, safe=""),
        }
    _become_agent(
        {
            **where,
            "name": name,
            "address": address,
            "runner": _own_runner()[0] if runner else "",
            "folder": str(folder),
        }
    )


def _is_invited(session: Session, url: str | None) -> bool:
    """Whether the machine has joined by an invitation, and no other server is meant."""
    no_other = not url and not session.settings.url
    return no_other and (_node_folder(session) / _MEMBERSHIP).exists()


def _node_folder(session: Session) -> Path:
    return Path(os.environ.get("TORCHYARD_NODE_FOLDER") or session.settings.home / "node")


def _own_runner() -> tuple[str, str]:
    """The socket of this machine's runner, and the Unix user at whose request it starts workers.

    Raises:
        Unreachable: none answers.
        Conflict: it is of another version, or does not answer this user.
    """
    path = os.environ.get("TORCHYARD_RUNNER") or runner_messages.SOCKET
    try:
        answer = runner_messages.ask(path, "hello", _RUNNER_S)
    except (OSError, runner_messages.BadMessage) as error:
        raise Unreachable(
            f"no runner answers at `{path}`: {error}",
            "install it as docs/guides/runner.md says, or name another socket in TORCHYARD_RUNNER",
        ) from error
    if "ok" not in answer:
        refusal = answer.get("error") or {}
        raise Conflict(
            f"the runner at `{path}` refuses: {refusal.get('message')}",
            "join as the Unix user that `server_user` in /etc/torchyard/runner.json names",
        )
    runner = answer["ok"]
    if runner["version"] != __version__:
        raise Conflict(
            f"the runner is of version {runner['version']}, and this is {__version__}",
            "restart it with `systemctl restart torchyard-runner`",
        )
    return path, str(runner["server_user"])


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
@click.option(
    "--runner",
    is_flag=True,
    help="Take everybody's jobs, as `yard node join --runner` does; needs root.",
)
@common
def install(session: Session, url: str | None, compute: str, name: str, runner: bool) -> None:
    """Write a systemd unit that keeps this machine a node.

    Log in first (`yard login`), or join by an invitation. With --runner the node runs as the Unix
    user that the machine's yard-runner answers, and gets your token by systemd, which reads it from
    a file of root's.

    Example: yard node install https://first:8766
    """
    is_root = os.geteuid() == 0
    variables = {"TORCHYARD_HOME": str(session.settings.home)}
    words = [_yard(), "node", "join"]
    if _is_invited(session, url) and not runner:
        unit = _unit_text(words, variables, is_root)
    else:
        transport = _transport(session, url, "", "", "")
        words += [transport.url, "--compute", compute]
        words += ["--name", name] if name else []
        words += ["-w", session.workspace] if session.workspace else []
        if runner:
            unit = _install_for_everybody(words, transport, is_root)
        else:
            unit = _unit_text(words, variables, is_root)
    folder = Path("/etc/systemd/system") if is_root else _user_units()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / _UNIT
    file.write_text(unit)
    who = "" if is_root else " --user"
    text = f"Wrote {file}. Start it now and at every boot:\n  systemctl{who} enable --now {_UNIT}"
    tables.done(session.form, {"file": str(file)}, text)


def _install_for_everybody(
    words: list[str], transport: Transport, is_root: bool, etc: Path = Path("/etc/torchyard")
) -> str:
    """Keep what the unit reads; its text.

    Raises:
        InvalidInput: only root can.
        Unreachable: no runner answers.
    """
    if not is_root:
        raise InvalidInput(
            "only root can install a node for everybody", "type it as root, or leave `--runner` out"
        )
    socket, user = _own_runner()
    etc.mkdir(mode=0o755, parents=True, exist_ok=True)
    token = etc / "node-token"
    token.touch(mode=0o600)
    token.chmod(0o600)  # of an earlier one, too
    token.write_text(transport.token)
    words = [*words, "--runner", "--token-file", "%d/token"]
    if transport.ca_cert:
        trusted = etc / "node-ca.pem"
        trusted.write_text(Path(transport.ca_cert).read_text())
        trusted.chmod(0o644)
        words += ["--ca-cert", str(trusted)]
    variables = {"TORCHYARD_HOME": f"/var/lib/{_AGENT}", "TORCHYARD_RUNNER": socket}
    more = [f"User={user}", f"StateDirectory={_AGENT}", "StateDirectoryMode=0700"]
    return _unit_text(words, variables, is_root, [*more, f"LoadCredential=token:{token}"])


def _unit_text(
    words: Sequence[str],
    variables: Mapping[str, str],
    is_root: bool,
    more: Sequence[str] = (),
) -> str:
    command = " ".join(word if word == "%d/token" else _quoted(word) for word in words)
    environment = [f"Environment={_quoted(f'{name}={path}')}" for name, path in variables.items()]
    lines = "\n".join([*environment, *more])
    target = "multi-user.target" if is_root else "default.target"
    return f"""\
[Unit]
Description=torchyard node
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={command}
{lines}
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
                "type the line that `yard node invite` prints on the server's machine",
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
        token = (sys.stdin.read() if file == "-" else Path(file).read_text()).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"`{file}` can't be read ({error})", "check the path and its permissions"
        ) from error
    return logins.checked_token(token)


def _workspace(transport: Transport) -> str:
    return str(transport.get("/v1/whoami")["workspace"])


def _path(workspace: str) -> str:
    return f"/v1/workspaces/{quote(workspace, safe='')}/machines"


def _takes(machine: dict[str, Any]) -> str:
    return "everybody" if machine["facts"].get("runner") else str(machine["owner"])


def _gpus(facts: dict[str, Any]) -> str:
    count = facts.get("gpus") or 0
    return f"{count} x {facts.get('gpu_kind') or 'GPU'}" if count else ""
