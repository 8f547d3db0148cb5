"""Invitations: one-time tokens, each of which gives one machine a token of its own.

Owns: making and accepting them.
Leaves: a machine's token to machines.py, who may invite to machine_routes.py.
Always: only the hash of an invitation is stored, and none without an end; it is accepted once, also
when two machines try at the same moment, and stays good when it could not be accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from torchyard.base.clock import Clock, from_text
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput, NotAuthenticated
from torchyard.compute import machines
from torchyard.compute.types import Compute
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces.types import Identity, TokenKind

DEFAULT_LIFE = timedelta(hours=1)
LONGEST_LIFE = timedelta(days=7)


@dataclass(frozen=True)
class Accepted:
    """`token` is the machine's; `machine` its name in the cluster."""

    token: str
    cluster: Compute
    machine: str


def read_end(value: Any, now: datetime) -> datetime:
    """When an invitation ends; by default, an hour from now.

    Raises:
        InvalidInput: that is not a time within the next seven days.
    """
    if value is None:
        return now + DEFAULT_LIFE
    try:
        ends_at = from_text(value)
    except (ValueError, TypeError, AttributeError):
        ends_at = now
    if not now < ends_at <= now + LONGEST_LIFE:
        raise InvalidInput(
            f"an invitation can't end at `{str(value)[:80]}`",
            f"name a time within the next {LONGEST_LIFE.days} days, such as `--expires 1h`",
        )
    return ends_at


def create(
    db: Database,
    clock: Clock,
    workspace: str,
    compute: str,
    machine: str,
    person: str,
    everybody: bool,
    ends_at: datetime,
) -> tuple[str, Compute]:
    """Invite one machine to a cluster.

    Args:
        machine: its name; empty to leave it to the machine.
        everybody: it may take everybody's jobs.

    Returns:
        the invitation, and the cluster.

    Raises:
        InvalidInput: a machine can't be called that.
        NotFound: no such cluster.
        Conflict: the cluster is of another engine, or somebody else's machine has that name.
    """
    if machine:
        machines.check_name(machine)
    token = workspaces.new_token(TokenKind.INVITATION)
    subject = workspaces.machine_subject(workspace, compute, machine)
    taken = machines.EVERYBODY if everybody else ""
    now = clock.now()
    with db.write() as connection:
        cluster = machines.joinable(connection, workspace, compute)
        if machine:
            machines.refuse_others(connection, workspace, compute, machine, person)
        workspaces.drop_expired(connection, TokenKind.INVITATION, now)
        identity = Identity(person, TokenKind.INVITATION, workspace, subject, token=taken)
        workspaces.keep_token(connection, token, identity, now, ends_at)
    return token, cluster


def accept(db: Database, clock: Clock, invitation: Identity, machine: str, host: str) -> Accepted:
    """Make the token of a machine, once.

    Args:
        invitation: as its bearer was authenticated.
        machine: the name that it wants, if any.
        host: its name where neither it nor the invitation says one.

    Raises:
        InvalidInput: a machine can't be called that.
        NotAuthenticated: the invitation was accepted meanwhile.
        NotFound: the cluster is gone.
        Conflict: the invitation is for another machine, or somebody else's has that name.
    """
    workspace, compute, name = invitation.subject.split("/", 2)
    if name and machine and name != machine:
        raise Conflict(
            f"this invitation is for machine `{name}`, not for `{machine[:80]}`",
            f"leave `--name` out, or ask for an invitation of that name: `yard node invite {name}`",
        )
    name = name or machine or host
    everybody = invitation.token == machines.EVERYBODY
    with db.write() as connection:
        if not workspaces.take_token(connection, invitation.token_hash):
            raise NotAuthenticated(
                "this invitation was used before",
                f"ask `{invitation.user}` for another: `yard node invite`",
                code="invitation_used",
            )
        token, cluster = machines.add_token(
            connection, clock, workspace, compute, name, invitation.user, everybody
        )
    return Accepted(token, cluster, name)
