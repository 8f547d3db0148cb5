"""`yard server …`: this machine's server, or the servers that share its home."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import click

from torchyard.base.errors import Conflict, Internal, NotFound
from torchyard.base.machine import host_of
from torchyard.base.settings import Settings
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import Session, common, python_warnings_as_lines
from torchyard.cli.terminal import tables
from torchyard.shared.sizes import size_text

group = noun("server")

_POLL_S = 0.2
_MOST_NAMES = 5
_OF_BACKUPS = {
    "backup": "last_backup",
    "proof": "last_backup_proof",
    "scheduled": "last_scheduled_backup",
}


@group.command("start")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=None,
    metavar="PORT",
    help="Port, also for later starts.",
)
@click.option(
    "--listen/--no-listen",
    default=None,
    help="Listen at all addresses of this machine with TLS, for nodes on other machines; also for "
    "later starts.",
)
@click.option(
    "--jobs-as-server-user",
    is_flag=True,
    help="With `--listen` and without a runner: jobs of everybody who has a token run as you.",
)
@common
def start(
    session: Session, port: int | None, listen: bool | None, jobs_as_server_user: bool
) -> None:
    """Start this machine's server if it isn't running.

    Example: yard server start --listen
    """
    from torchyard.client import embedded

    _refuse_beside_shared(session)
    _warn_of_url(session)
    before = embedded.find(session.settings)
    options = [] if listen is None else ["--listen" if listen else "--no-listen"]
    options += ["--jobs-as-server-user"] if jobs_as_server_user else []
    with python_warnings_as_lines():
        running = embedded.ensure(session.settings, port=port, options=options)
    if before == running and listen is not None:
        click.echo(
            "warning: the server is running as it was started; stop it first with "
            "`yard server stop`",
            err=True,
        )
    if before == running and port is not None and not running.url.endswith(f":{port}"):
        click.echo(
            f"warning: `--port {port}` is ignored: the server is running; stop it first", err=True
        )
    word = "is already running" if before == running else "is running"
    addresses = _addresses(running.url, _own_token(session.settings))
    body = {
        "status": "running",
        "url": running.url,
        "pid": running.pid,
        "addresses_for_others": addresses,
    }
    lines = [f"The server {word} at {running.url}"]
    lines += [f"Other machines reach it at {', '.join(addresses)}"] if addresses else []
    tables.one(session.form, body, lambda: "\n".join(lines))


def _own_token(settings: Settings) -> str:
    """That of this machine's server; empty for who may not read it."""
    try:
        return settings.token_file.read_text().strip()
    except OSError:
        return ""


def _addresses(url: str, token: str, ca_cert: str = "") -> list[str]:
    """Where other machines reach the server."""
    from contextlib import closing

    from torchyard.base.http import Transport
    from torchyard.cli.terminal import server_addresses

    with closing(Transport(url, token, timeout_s=5.0, ca_cert=ca_cert)) as transport:
        return server_addresses.read(transport)


@group.command("stop")
@common
def stop(session: Session) -> None:
    """Stop this machine's server, or all servers that share its home.

    Jobs keep running, and online endpoints keep answering.

    Example: yard server stop
    """
    from torchyard.client import embedded

    _warn_of_url(session)
    settings = session.settings
    lost, running = embedded.killed(settings), embedded.answering(settings)
    jobs = 0 if running is None else embedded.running_jobs(settings, running)
    endpoints = [] if running is None else embedded.answering_endpoints(settings, running)
    ended = embedded.stop_all(settings)
    left = list(embedded.living(settings))
    lines = [f"Stopped the server (pid {server.pid})." for server in ended]
    lines += [
        f"The server at {server.url} keeps running on {host_of(server.machine)}." for server in left
    ]
    if lost is not None:
        lines.append(
            f"No server is running: the last one (pid {lost.pid}) at {lost.url} was killed or "
            "crashed; see `yard server logs`."
        )
    if jobs and not left:
        lines.append(
            f"{'One job keeps' if jobs == 1 else f'{jobs} jobs keep'} running; what "
            f"{'it logs' if jobs == 1 else 'they log'} is kept until `yard server start`."
        )
    if endpoints and not left:
        lines.append(_keep_answering(endpoints))
    body: dict[str, Any] = {"status": "stopped", "pid": ended[0].pid if ended else None}
    body |= {"running_jobs": jobs, "answering_endpoints": endpoints}
    if len(ended) + len(left) > 1:
        body["servers"] = [{"pid": server.pid, "url": server.url} for server in ended]
        body["elsewhere"] = [
            {"url": server.url, "host": host_of(server.machine)} for server in left
        ]
    tables.one(session.form, body, lambda: "\n".join(lines or ["No server is running."]))


def _keep_answering(endpoints: Sequence[str]) -> str:
    workspace, _, name = endpoints[0].partition("/")
    shown = ", ".join(f"`{endpoint}`" for endpoint in endpoints[:_MOST_NAMES])
    more = len(endpoints) - _MOST_NAMES
    subject = (
        f"Online endpoint {shown} keeps"
        if len(endpoints) == 1
        else f"{len(endpoints)} online endpoints ({shown}{f', {more} more' * (more > 0)}) keep"
    )
    end = f"yard online-endpoint delete -n {name} -w {workspace}"
    return f"{subject} answering; `{end}` ends {'it' if len(endpoints) == 1 else 'the first'}."


@group.command("status")
@common
def status(session: Session) -> int:
    """Show whether the server is running; the exit code is 1 if it isn't.

    Servers that share the home are all shown, and each of them must be running.

    Example: yard server status -o json
    """
    from torchyard.client import embedded

    settings = session.settings
    running = [] if settings.url else list(embedded.living(settings))
    body: dict[str, Any] = {
        "status": "stopped",
        "url": settings.url or None,
        "pid": None,
        "version": None,
        "home": None if settings.url else str(settings.home),
    }
    shown = [
        {**body, **_health(url, settings.ca_cert)}
        for url in [settings.url, *(server.url for server in running)]
        if url
    ]
    body |= shown[0] if shown else {}
    if body["status"] in ("running", "in trouble"):
        token = settings.token if settings.url else _own_token(settings)
        if token:
            ca_cert = settings.ca_cert if settings.url else ""
            body["addresses_for_others"] = _addresses(body["url"], token, ca_cert)
    if len(shown) > 1:
        hosts = [host_of(server.machine) for server in running]
        body["status"] = next(
            (server["status"] for server in shown if server["status"] != "running"), "running"
        )
        body["servers"] = [
            {"host": host, **{key: server[key] for key in ("url", "pid", "status")}}
            for host, server in zip(hosts, shown, strict=True)
        ]
    if not settings.url:
        body |= _backups(settings.home)
    tables.one(session.form, body, lambda: _status_text(body))
    return 0 if body["status"] == "running" else 1


def _backups(home: Path) -> dict[str, Any]:
    """What this home knows of its backups; empty before the first one."""
    from torchyard.base.home import backup_record

    record = backup_record.read(home).to_json()
    return {_OF_BACKUPS[part]: values for part, values in record.items()}


def _backup_rows(body: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    if backup := body.get("last_backup"):
        size = size_text(backup["size_bytes"])
        rows.append(
            ("Last backup", f"{tables.moment(backup['at'])}, {backup['files']:,} files, {size}")
        )
        rows.append(("", backup["path"]))
    if proof := body.get("last_backup_proof"):
        result = f"held: {proof['rows']:,} rows, {proof['files']:,} files"
        result = result if proof["held"] else f"did not hold: {proof['error']}"
        rows.append(("Last proof", f"{tables.moment(proof['at'])}, {result}"))
    scheduled = body.get("last_scheduled_backup")
    if scheduled and scheduled["error"]:
        failure = f"{tables.moment(scheduled['at'])}: {scheduled['error']}"
        rows.append(("Scheduled backup", f"failed {failure}"))
    return rows


def _status_text(body: dict[str, Any]) -> str:
    """One server's fields, and a line per server if there are several."""
    servers = body.get("servers", ())
    hidden = ("servers", "addresses_for_others", *_OF_BACKUPS.values())
    rows = tables.titled({k: v for k, v in body.items() if k not in hidden})
    if "addresses_for_others" in body:
        rows += [("Others use", ", ".join(body["addresses_for_others"]) or "none")]
    rows += _backup_rows(body)
    text = tables.fields(rows)
    lines = [
        f"  {server['url']} on {server['host']} (pid {server['pid']}): {server['status']}"
        for server in servers
    ]
    return "\n".join([text, "Servers:", *lines]) if lines else text


def _health(url: str, ca_cert: str) -> dict[str, Any]:
    """A server's health, or that it doesn't answer."""
    from torchyard.base.errors import Unreachable
    from torchyard.base.http import Transport

    transport = Transport(url, "", timeout_s=5.0, ca_cert=ca_cert)
    try:
        health = transport.get("/health")
    except Unreachable:
        return {"url": url, "status": "not answering"}
    finally:
        transport.close()
    if not isinstance(health, dict) or not {"pid", "version"} <= set(health):
        return {"url": url, "status": "not a torchyard server"}
    result = {"url": url, "status": "running", "pid": health["pid"], "version": health["version"]}
    if health.get("trouble"):
        result |= {"status": "in trouble", "trouble": health["trouble"]}
    return result


@group.command("logs")
@click.option("-f", "--follow", is_flag=True, help="Keep printing as the log grows.")
@click.option(
    "--lines",
    type=click.IntRange(min=1),
    default=100,
    metavar="COUNT",
    show_default=True,
    help="Number of lines to print, from the end.",
)
@common
def logs(session: Session, follow: bool, lines: int) -> None:
    """Print the server's log.

    At 10 MB the log is renamed to `server.log.1`, that one to `server.log.2`, up to 5.

    Example: yard server logs -f
    """
    from torchyard.client import embedded

    file = session.settings.server_log
    if not file.exists():
        raise NotFound(
            f"there is no log `{file}`",
            "no server has run here yet; start one with `yard server start`",
        )
    log: BinaryIO = open(file, "rb")
    log.seek(0, os.SEEK_END)
    text = embedded.log_tail(session.settings, lines)
    if text:
        click.echo(text)
    sys.stdout.flush()
    while follow:
        _copy(log)
        after = _successor(log, file)
        if after is not None:
            _copy(log)  # What was written before the change.
            log.close()
            log = after
        time.sleep(_POLL_S)


def _copy(log: BinaryIO) -> None:
    """Print what has come since; from the start if somebody truncated the log."""
    if os.fstat(log.fileno()).st_size < log.tell():
        log.seek(0)
    from torchyard.client.printing import bytes_of

    out = bytes_of(sys.stdout)
    out.write(log.read())
    out.flush()


def _successor(log: BinaryIO, file: Path) -> BinaryIO | None:
    """The log that has taken the place of this one; None while it has none."""
    try:
        after = open(file, "rb")
    except FileNotFoundError:
        return None  # It is being rotated.
    if os.path.sameopenfile(after.fileno(), log.fileno()):
        after.close()
        return None
    return after


_passphrase = click.option(
    "--passphrase-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File with the passphrase of the secrets.",
)


@group.command("backup")
@click.argument("target", type=click.Path(path_type=Path))
@_passphrase
@click.option(
    "--prove",
    is_flag=True,
    help="Restore the backup beside itself, compare it, and remove what was restored.",
)
@common
def backup(session: Session, target: Path, passphrase_file: Path | None, prove: bool) -> None:
    """Back up the records and files of this machine's server to TARGET.

    TARGET is a folder, or a file that ends with `.tar` or `.tar.gz`. The server may keep running.
    Secrets are encrypted with a passphrase, or left out: credentials of datastores, secret
    variables of jobs, signing keys.

    Example: yard server backup /mnt/backups/monday.tar --prove
    """
    _warn_of_url(session)
    options = _options(passphrase_file=passphrase_file)
    done = _run_backups(session, "backup", str(target), *options, *(["--prove"] if prove else []))
    text = f"{done['files']:,} files, {size_text(done['size_bytes'])}, saved to {done['path']}"
    text += f"\n{_proved(done['proof'])}" if prove else ""
    text += _without(done, "left out; encrypt them into it with `--passphrase-file`")
    tables.one(session.form, done, lambda: text)


@group.command("prove")
@click.argument("backup", type=click.Path(path_type=Path))
@_passphrase
@common
def prove(session: Session, backup: Path, passphrase_file: Path | None) -> None:
    """Prove that BACKUP can be restored.

    It is restored into a folder beside it, which needs that much space and is removed again. The
    rows of every table and the checksum of every file must be those of the backup, and the records
    must open with this version. `yard server status` shows the result.

    Example: yard server prove /mnt/backups/monday.tar
    """
    _warn_of_url(session)
    done = _run_backups(session, "prove", str(backup), *_options(passphrase_file=passphrase_file))
    text = f"{done['path']} of {done['made_at']}\n{_proved(done)}"
    text += _without(done, "not proved; open them with `--passphrase-file`")
    tables.one(session.form, done, lambda: text)


def _proved(proof: dict[str, Any]) -> str:
    return (
        f"proved: {proof['rows']:,} rows in {proof['tables']} tables and {proof['files']:,} files "
        f"({size_text(proof['size_bytes'])}) come back as they were"
    )


@group.command("restore")
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--database",
    metavar="URL",
    default="",
    help="Database for the records. Default: one in the home.",
)
@click.option(
    "--database-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File with the database's URL and password.",
)
@_passphrase
@common
def restore(
    session: Session,
    source: Path,
    database: str,
    database_file: Path | None,
    passphrase_file: Path | None,
) -> None:
    """Restore a backup into the home folder TORCHYARD_HOME, which must be empty.

    Example: yard server restore /mnt/backups/monday.tar
    """
    _warn_of_url(session)
    options = _options(
        database=database, database_file=database_file, passphrase_file=passphrase_file
    )
    done = _run_backups(session, "restore", str(source), *options)
    text = (
        f"{done['files']:,} files, {size_text(done['size_bytes'])}, restored to {done['path']}; "
        "look at it with `yard server start`; `yard server resume` lets it start jobs, instances "
        "and schedules, once the server that was backed up has ended for good"
    )
    text += _without(done, "missing: give them again")
    tables.one(session.form, done, lambda: text)


@group.command("rotate-key")
@click.option(
    "--to",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File of the new key, made if it is absent. Needed if the server gets its key by the "
    "environment or as a credential.",
)
@common
def rotate_key(session: Session, to: Path | None) -> None:
    """Encrypt the secrets in the database with a new key.

    Server and jobs keep running. If the command is interrupted, both keys stay valid, and typing it
    again finishes. The old key's file is removed once no secret needs it.

    Example: yard server rotate-key
    """
    _warn_of_url(session)
    done = _run_backups(session, "rotate-key", *_options(to=to.absolute() if to else None))
    text = (
        f"{done['resealed']:,} secrets are encrypted with the new key (id {done['id']}), and none "
        f"with the old one; the key is {done['file']}"
    )
    if done["resumed"]:
        text += "\nThis finished what an interrupted run had begun."
    if done["lost"]:
        text += f"\n{done['lost']:,} secrets could be read with neither key, and stay so."
    if to is not None:
        text += "\nThe next start of the server needs this key: hand it over as the old one was."
    tables.one(session.form, done, lambda: text)


@group.command("resume")
@common
def resume(session: Session) -> None:
    """Let a restored home start its jobs, instances and schedules.

    Until then it can be read, and changes nothing: the server that was backed up may still run.

    Example: yard server resume
    """
    from torchyard.base.home import hold
    from torchyard.client import embedded

    _warn_of_url(session)
    settings = session.settings
    if not hold.resume(settings.home):
        raise Conflict(
            f"the home `{settings.home}` is not held",
            "only a home that `yard server restore` has made is; set TORCHYARD_HOME to it",
            code="not_held",
        )
    running = list(embedded.living(settings))
    if running:
        text = "takes effect when the server starts again: `yard server stop`"
    else:
        text = "the next server of this home starts what it has"
    body = {"home": str(settings.home), "held": False, "running": bool(running)}
    tables.one(session.form, body, lambda: text)


def _options(**values: object) -> list[str]:
    """Those that were given, as the backup program takes them."""
    options = {name.replace("_", "-"): str(value) for name, value in values.items() if value}
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def _without(done: dict[str, Any], state: str) -> str:
    names = done["missing"]
    return "".join(f"\n{line}" for line in [f"secrets that are {state}:", *names]) if names else ""


def _run_backups(session: Session, *arguments: str) -> dict[str, Any]:
    """Run the backup program and return its result; its errors become the command's."""
    import json
    import subprocess

    command = [sys.executable, "-m", "torchyard.backups", arguments[0]]
    command += ["--home", str(session.settings.home), *arguments[1:]]
    ended = subprocess.run(command, stdout=subprocess.PIPE)
    if ended.returncode < 0:
        rotates = arguments[0] == "rotate-key"
        left = "both keys are valid until it is finished" if rotates else "nothing was written"
        raise Internal(
            f"the {arguments[0]} was killed by signal {-ended.returncode}",
            f"{left}; check whether memory ran out (`dmesg`) and try again",
        )
    if ended.returncode != 0:
        raise SystemExit(ended.returncode)
    done: dict[str, Any] = json.loads(ended.stdout)
    return done


def _warn_of_url(session: Session) -> None:
    settings = session.settings
    if not settings.url:
        return
    where = "TORCHYARD_URL" if settings.url_from == "TORCHYARD_URL" else f"({settings.url_from})"
    click.echo(
        f"warning: other commands use {where}, {settings.url}, not this machine's server",
        err=True,
    )


def _refuse_beside_shared(session: Session) -> None:
    """
    Raises:
        Conflict: the machine's administrator configured a shared server, and the user no other.
    """
    settings = session.settings
    if settings.url and settings.url_from not in ("TORCHYARD_URL", "yard login"):
        raise Conflict(
            f"this machine has a shared server at `{settings.url}` ({settings.url_from})",
            f"use that one: `yard login {settings.url}`; for your own server, set TORCHYARD_HOME "
            "to a folder",
        )
