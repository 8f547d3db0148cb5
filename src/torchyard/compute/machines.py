"""Machines that people join to a cluster.

Owns: who may join, drain and remove one, what its agent is told, when it counts as away.
Leaves: the head that machines join to executors/ray/, the agent to node_agent/.
Always: a machine belongs to who joined it. It takes no job of another person, because jobs run
there as its agent's Unix user, unless a runner there starts each as its own person's.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, Forbidden, InvalidInput, NotFound, did_you_mean
from torchyard.compute import machine_store as store
from torchyard.compute import store as clusters
from torchyard.compute.types import Compute, JoinedMachine
from torchyard.executors.ray import node_labels
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces.types import Identity, TokenKind

ENGINE = "ray"
DEFAULT = "machines"
"""The cluster that machines join when none is named; it is made with the first of them."""
DEFAULT_DOCUMENT = {
    "name": DEFAULT,
    "type": "amlcompute",
    "max_instances": 100,
    "description": "machines that were joined with `yard node join`",
    "torchyard": {"engine": ENGINE, "start": True},
}
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_ADDRESS = re.compile(r"[0-9A-Fa-f.:]{2,45}")
EVERYBODY = "everybody"
"""The name of a machine's token that lets it take everybody's jobs; others have none."""
_NUMBERS = ("cpus", "memory_bytes", "gpus")
_TEXTS = ("hostname", "gpu_kind", "system", "version")
_LONGEST = 200


@dataclass(frozen=True)
class Join:
    """What an agent says of its machine."""

    name: str
    address: str
    facts: Mapping[str, Any]


def check_name(name: str) -> None:
    """
    Raises:
        InvalidInput: a machine can't be called that.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"`{name[:80]}` is not a machine's name",
            "use up to 63 small letters, digits and dashes, such as `--name lab-3`",
        )


def read(name: str, body: Mapping[str, Any]) -> Join:
    """
    Raises:
        InvalidInput: the name, the address or a fact is not one.
    """
    check_name(name)
    address = body.get("address", "")
    if not isinstance(address, str) or not _is_address(address):
        raise InvalidInput(
            f"`{str(address)[:80]}` is not the IP address of a machine"
            if address
            else "the machine has no address in the nodes' network",
            "name the one by which the server's machine reaches it: `--address 10.0.0.7`",
        )
    sent = body.get("facts") or {}
    if not isinstance(sent, Mapping):
        raise InvalidInput("`facts` is not an object", "send what the agent found")
    facts: dict[str, Any] = {}
    for key in _NUMBERS:
        value = sent.get(key, 0)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
            raise InvalidInput(f"`facts.{key}` is not a whole number", "send what the agent found")
        facts[key] = value
    if not isinstance(sent.get("runner", False), bool):
        raise InvalidInput("`facts.runner` is not true or false", "send what the agent found")
    facts["runner"] = sent.get("runner", False)
    for key in _TEXTS:
        facts[key] = str(sent.get(key, ""))[:_LONGEST]
    return Join(name, address, facts)


def _is_address(text: str) -> bool:
    try:
        return bool(_ADDRESS.fullmatch(text) and ipaddress.ip_address(text))
    except ValueError:
        return False


def join(
    db: Database, clock: Clock, workspace: str, compute: str, machine: Join, person: str
) -> JoinedMachine:
    """Add a machine, or take it back after it was gone or has changed.

    Raises:
        NotFound: no such cluster.
        Conflict: the cluster is of another engine, or somebody else's machine has that name.
    """
    now = clock.now()
    with db.write() as connection:
        joinable(connection, workspace, compute)
        before = refuse_others(connection, workspace, compute, machine.name, person)
        joined = JoinedMachine(
            workspace,
            compute,
            machine.name,
            person,
            machine.address,
            machine.facts,
            draining=before.draining if before is not None else False,
            joined_at=before.joined_at if before is not None else now,
            seen_at=now,
        )
        store.put(connection, joined)
    return joined


def new_token(
    db: Database,
    clock: Clock,
    workspace: str,
    compute: str,
    name: str,
    person: str,
    everybody: bool = False,
) -> tuple[str, Compute]:
    """Make a token with which one machine joins and stays, and nothing else; an older one ends.

    Args:
        everybody: the machine may take everybody's jobs, which is kept with the token.

    Returns:
        the token, and the cluster.

    Raises:
        InvalidInput: a machine can't be called that.
        NotFound: no such cluster.
        Conflict: the cluster is of another engine, or somebody else's machine has that name.
    """
    with db.write() as connection:
        return add_token(connection, clock, workspace, compute, name, person, everybody)


def add_token(
    connection: Connection,
    clock: Clock,
    workspace: str,
    compute: str,
    name: str,
    person: str,
    everybody: bool = False,
) -> tuple[str, Compute]:
    """As `new_token`, in a transaction."""
    check_name(name)
    token = workspaces.new_token(TokenKind.MACHINE)
    subject = workspaces.machine_subject(workspace, compute, name)
    cluster = joinable(connection, workspace, compute)
    refuse_others(connection, workspace, compute, name, person)
    workspaces.drop_machine_tokens(connection, workspace, compute, name)
    token_name = EVERYBODY if everybody else ""
    identity = Identity(person, TokenKind.MACHINE, workspace, subject, token=token_name)
    workspaces.keep_token(connection, token, identity, clock.now())
    return token, cluster


def drop_token(db: Database, workspace: str, compute: str, name: str) -> None:
    """Revoke the token that `new_token` made; its machine ends with its next report."""
    check_name(name)
    with db.write() as connection:
        workspaces.drop_machine_tokens(connection, workspace, compute, name)


def report(
    db: Database, clock: Clock, workspace: str, compute: str, machine: Join, person: str
) -> JoinedMachine:
    """A machine's agent says that it is there.

    Raises:
        NotFound: it was removed: the agent ends.
        Forbidden: it is another person's.
    """
    with db.write() as connection:
        before = _get(connection, workspace, compute, machine.name)
        if before.owner != person:
            raise Forbidden(f"machine `{machine.name}` was joined by `{before.owner}`")
        now = clock.now()
        store.change(
            connection,
            workspace,
            compute,
            machine.name,
            seen_at=now,
            address=machine.address,
            facts=dict(machine.facts),
        )
        return replace(before, seen_at=now, address=machine.address, facts=machine.facts)


def list_in(db: Database, workspace: str, compute: str = "") -> list[JoinedMachine]:
    """Machines of one cluster, or of all."""
    with db.read() as connection:
        return store.list_in(connection, workspace, compute)


def drain(
    db: Database, workspace: str, compute: str, name: str, draining: bool = True
) -> JoinedMachine:
    """Let no further job start there, or let them again; those that run go on.

    Raises:
        NotFound: no such machine.
    """
    with db.write() as connection:
        before = _get(connection, workspace, compute, name)
        store.change(connection, workspace, compute, name, draining=draining)
    return replace(before, draining=draining)


def drained(connection: Connection, workspace: str, compute: str) -> list[str]:
    """The machines that take no further job."""
    rows = store.list_in(connection, workspace, compute)
    return [machine.name for machine in rows if machine.draining]


def joined(connection: Connection, workspace: str, compute: str) -> dict[str, list[str]]:
    """Address and owner's label of the machines that have joined, by name: each joined with a token
    that says whose it is.
    """
    return {
        machine.name: [
            machine.address,
            node_labels.EVERYBODY
            if machine.takes_everybody
            else node_labels.person_label(machine.owner),
        ]
        for machine in store.list_in(connection, workspace, compute)
    }


def remove(db: Database, workspace: str, compute: str, name: str, keep_token: bool = False) -> None:
    """Forget a machine; its agent ends with its next report.

    Args:
        keep_token: it may try again to join.

    Raises:
        NotFound: no such machine.
    """
    with db.write() as connection:
        _get(connection, workspace, compute, name)
        store.forget(connection, workspace, compute, name)
        if not keep_token:
            workspaces.drop_machine_tokens(connection, workspace, compute, name)


def joinable(connection: Connection, workspace: str, compute: str) -> Compute:
    """The cluster.

    Raises:
        NotFound: no such cluster.
        Conflict: it is of another engine.
    """
    cluster = clusters.get(connection, workspace, compute)
    if cluster is None or cluster.deleting:
        raise NotFound(
            f"compute `{compute}` does not exist in workspace `{workspace}`",
            "leave `--compute` out to join the cluster that is made for joined machines",
            code="compute_not_found",
        )
    if cluster.engine != ENGINE:
        raise Conflict(
            f"compute `{compute}` runs on engine `{cluster.engine}`, which machines can't join",
            f"join a cluster of engine `{ENGINE}`, or leave `--compute` out",
        )
    return cluster


def refuse_others(
    connection: Connection, workspace: str, compute: str, name: str, person: str
) -> JoinedMachine | None:
    """The machine of that name, if it has joined.

    Raises:
        Conflict: somebody else has joined it.
    """
    before = store.get(connection, workspace, compute, name)
    if before is not None and before.owner != person:
        raise Conflict(
            f"a machine `{name}` was joined by `{before.owner}`",
            f"choose another name with `--name`, or ask `{before.owner}` to remove it",
        )
    return before


def _get(connection: Connection, workspace: str, compute: str, name: str) -> JoinedMachine:
    machine = store.get(connection, workspace, compute, name)
    if machine is None:
        names = [other.name for other in store.list_in(connection, workspace, compute)]
        raise NotFound(
            f"no machine `{name[:80]}` is joined to compute `{compute}`",
            did_you_mean(name, names, "see `yard node list`"),
            code="machine_not_found",
        )
    return machine
