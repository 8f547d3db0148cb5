"""`yard compute create --hosts` and `yard node leave --host`.

Owns: the cluster that hosts join, a line for each host, the exit code: 1 if one failed.
Leaves: joining and leaving to joining.py.
Always: a cluster that was made for hosts goes again when none of them joined; one that was there
keeps its settings.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import Conflict, InvalidInput, NotFound, TorchyardError
from torchyard.base.home.ray_archive import RayArchives
from torchyard.cli.hosts import addresses, joining
from torchyard.cli.hosts.addresses import Host
from torchyard.cli.hosts.joining import Cluster, Outcome
from torchyard.cli.parsing.options import Session, confirm, warn
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from torchyard.cli.parsing.documents import Document
    from torchyard.client.client import Client

_DEFAULT_NAME = "machines"
_ENGINE = "ray"
_MOST_MACHINES = 100
_WORDS = {
    "joined": ("joined", "green"),
    "was joined": ("has joined before", None),
    "left": ("has left", "green"),
    "was not joined": ("was not joined", None),
    "failed": ("failed", "red"),
}


def create(session: Session, document: Document, texts: Sequence[str]) -> int:
    """Make hosts the machines of a cluster, which is made where it does not exist.

    Raises:
        InvalidInput: a host is not one, or the cluster's engine is not Ray.
    """
    hosts = addresses.read(texts)
    compute_document = document.value
    _refuse_other_engines(compute_document)
    name = str(compute_document.setdefault("name", _DEFAULT_NAME))
    client = session.client()
    is_new = _ensure(client, document, name)
    outcomes: list[Outcome] = []
    try:
        with RayArchives(session.settings.home) as archives:
            cluster = Cluster(client.transport, client.workspace, name, archives)
            _tell_all(session, outcomes, joining.join(cluster, hosts, _say))
    finally:
        if is_new and all(outcome.failed for outcome in outcomes):
            with suppress(TorchyardError):
                client.computes.delete(name)
    return _finish(session, outcomes)


def leave(session: Session, compute: str, texts: Sequence[str], yes: bool) -> int:
    """End the nodes of hosts."""
    hosts = addresses.read(texts)
    client = session.client()
    host_list = ", ".join(f"`{host.text}`" for host in hosts)
    confirm(f"Remove {host_list} from compute `{compute}`?", yes)
    outcomes: list[Outcome] = []
    with RayArchives(session.settings.home) as archives:
        cluster = Cluster(client.transport, client.workspace, compute, archives)
        _tell_all(session, outcomes, joining.leave(cluster, hosts, _say))
    return _finish(session, outcomes)


def _refuse_other_engines(compute_document: dict[str, Any]) -> None:
    more = compute_document.get("torchyard")
    settings = more if isinstance(more, dict) else {}
    engine = compute_document.get("engine") or settings.get("engine") or ""
    if engine != _ENGINE:
        raise InvalidInput(
            f"hosts can't join engine `{engine}`" if engine else "`--hosts` needs an engine",
            "use `--engine ray`",
        )
    if settings.get("address"):
        raise InvalidInput(
            "`--hosts` and `torchyard.address` are both given: hosts join a head that the server "
            "looks after",
            "leave the address out, or attach the cluster without `--hosts`",
        )


def _ensure(client: Client, document: Document, name: str) -> bool:
    """Make the cluster unless it exists; whether it was made."""
    try:
        compute = client.computes.get(name)
    except NotFound:
        compute_document = document.value
        compute_document.setdefault("type", "amlcompute")
        compute_document.setdefault("max_instances", _MOST_MACHINES)
        settings = compute_document.setdefault("torchyard", {})
        settings |= {"engine": compute_document.pop("engine", _ENGINE), "start": True}
        try:
            client.computes.create(compute_document)
        except TorchyardError as error:
            raise document.locate(error) from error.__cause__
        return True
    if compute.engine != _ENGINE:
        raise Conflict(
            f"compute `{name}` exists, and runs on engine `{compute.engine}`",
            "name another with `-n NAME`",
        ) from None
    ignored = set(document.value) - {"name", "type", "engine", "torchyard"}
    if ignored:
        warn(
            f"compute `{name}` exists, and keeps its {', '.join(sorted(ignored))}: change them "
            f"with `yard compute update -n {name}`"
        )
    return False


_lines = threading.Lock()


def _say(host: Host, line: str) -> None:
    with _lines:
        click.echo(f"{host.text}: {line}", err=True)


def _tell_all(session: Session, finished: list[Outcome], outcomes: Iterator[Outcome]) -> None:
    """Print each as it comes, where a person reads."""
    for outcome in outcomes:
        finished.append(outcome)
        if session.form.kind == "table" and not session.form.query:
            with _lines:
                click.echo(_line(outcome))


def _line(outcome: Outcome) -> str:
    word, colour = _WORDS[outcome.state]
    parts = [f"{outcome.host.text}: {click.style(word, fg=colour)}"]
    if outcome.failed:
        parts.append(f": {outcome.message}")
    elif outcome.state == "joined":
        parts.append(f" as `{outcome.host.name}`, at {outcome.address}")
    if outcome.hint:
        hint = click.style("hint:", fg="yellow", bold=True)
        parts.append(f"\n  {hint} {outcome.hint}")
    return "".join(parts)


def _finish(session: Session, outcomes: Sequence[Outcome]) -> int:
    if session.form.kind != "table" or session.form.query:
        tables.rows(session.form, [outcome.to_json() for outcome in outcomes], [])
    return 1 if any(outcome.failed for outcome in outcomes) else 0
