"""HTTP: machines that people join to clusters."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Body, Depends, Response

from torchyard.base import fields
from torchyard.base.clock import Clock, to_text
from torchyard.base.db import Database
from torchyard.base.dependencies import ClockOf, DatabaseOf, HomeOf, from_state
from torchyard.base.errors import Forbidden, NotFound, Unreachable
from torchyard.compute import actions, machines, port_check
from torchyard.compute.types import JoinedMachine, head_key
from torchyard.executors.engines import Engines
from torchyard.executors.executor import EngineUnreachable
from torchyard.executors.ray.heads import RayHead
from torchyard.executors.ray.labels import EVERYBODY, MACHINE, OWNER, person_label
from torchyard.executors.server_for_nodes import ServerForNodes
from torchyard.workspaces import people
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity, TokenKind


class HeadsOfClusters(Protocol):
    """`app.state.ray_heads`; see executors/ray/heads.py."""

    def ensure(self, key: str) -> RayHead: ...

    def keep(self, needed_homes: Callable[[], Collection[str]]) -> None: ...


JobsAsServerUserOf = Annotated[bool, Depends(from_state("jobs_as_server_user"))]
EnginesOf = Annotated[Engines, Depends(from_state("engines"))]
ForNodesOf = Annotated[ServerForNodes, Depends(from_state("for_nodes"))]
HeadsOf = Annotated[HeadsOfClusters, Depends(from_state("ray_heads"))]
Document = Annotated[Any, Body()]

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/machines", tags=["compute"], route_class=GuardedRoute
)


@router.get("")
@needs(Permission.READ)
def list_machines(
    db: DatabaseOf, clock: ClockOf, workspace: str, compute: str = ""
) -> dict[str, Any]:
    rows = machines.list_in(db, workspace, compute)
    return {"value": [to_json(machine, clock) for machine in rows]}


@router.put("/{compute}/{machine}")
@needs(Permission.JOIN)
def join(
    db: DatabaseOf,
    clock: ClockOf,
    home: HomeOf,
    heads: HeadsOf,
    engines: EnginesOf,
    jobs_as_server_user: JobsAsServerUserOf,
    workspace: str,
    compute: str,
    machine: str,
    identity: Person,
    body: Document,
) -> dict[str, Any]:
    _may_have_token(db, jobs_as_server_user, identity)
    document = fields.mapping(body, "the machine's description")
    description, probe = machines.read(machine, document), port_check.read(document)
    _may_take_everybody(db, description, identity)
    if probe is not None:
        port_check.check(machine, description.address, probe)
    if compute == machines.DEFAULT:
        _make_default(db, clock, workspace, home=home, owner=identity.user, engines=engines.names)
    joined = machines.join(db, clock, workspace, compute, description, identity.user)
    return _answer(joined, heads, clock)


@router.post("/{compute}/{machine}/token")
@needs(Permission.COMPUTE)
def create_token(
    db: DatabaseOf,
    clock: ClockOf,
    home: HomeOf,
    heads: HeadsOf,
    engines: EnginesOf,
    for_nodes: ForNodesOf,
    jobs_as_server_user: JobsAsServerUserOf,
    workspace: str,
    compute: str,
    machine: str,
    identity: Person,
    everybody: bool = False,
) -> dict[str, Any]:
    """Make a token with which this machine alone joins; say where it reaches the server.

    With `everybody` the machine may take everybody's jobs; another token never lets it. The head is
    started first: its installation may take minutes.
    """
    _may_have_token(db, jobs_as_server_user, identity)
    machines.check_name(machine)
    if everybody and not _administers(db, identity):
        raise _for_administrators()
    if compute == machines.DEFAULT:
        _make_default(db, clock, workspace, home=home, owner=identity.user, engines=engines.names)
    token, cluster = machines.new_token(
        db, clock, workspace, compute, machine, identity.user, everybody
    )
    try:
        head = _head(heads, workspace, compute)
        urls = for_nodes.urls_for(cluster.settings)
    except BaseException:
        machines.drop_token(db, workspace, compute, machine)
        raise
    return {
        "token": token,
        "server_urls": urls,
        "certificate": for_nodes.certificate,
        "ray": {"version": head.version, "python": head.python},
    }


@router.delete("/{compute}/{machine}/token", status_code=204)
@needs(Permission.COMPUTE)
def drop_token(db: DatabaseOf, workspace: str, compute: str, machine: str) -> Response:
    machines.drop_token(db, workspace, compute, machine)
    return Response(status_code=204)


@router.post("/{compute}/{machine}/report")
@needs(Permission.JOIN)
def report(
    db: DatabaseOf,
    clock: ClockOf,
    heads: HeadsOf,
    jobs_as_server_user: JobsAsServerUserOf,
    workspace: str,
    compute: str,
    machine: str,
    identity: Person,
    body: Document,
) -> dict[str, Any]:
    _may_have_token(db, jobs_as_server_user, identity)
    machine_report = machines.read(machine, fields.mapping(body, "the machine's description"))
    _may_take_everybody(db, machine_report, identity)
    reported = machines.report(db, clock, workspace, compute, machine_report, identity.user)
    return _answer(reported, heads, clock)


@router.post("/{compute}/{machine}/drain")
@needs(Permission.COMPUTE)
def drain(
    db: DatabaseOf,
    clock: ClockOf,
    workspace: str,
    compute: str,
    machine: str,
    draining: Annotated[bool, Body(embed=True)] = True,
) -> dict[str, Any]:
    return to_json(machines.drain(db, workspace, compute, machine, draining), clock)


@router.delete("/{compute}/{machine}", status_code=204)
@needs(Permission.COMPUTE)
def remove(db: DatabaseOf, workspace: str, compute: str, machine: str) -> Response:
    machines.remove(db, workspace, compute, machine)
    return Response(status_code=204)


def to_json(machine: JoinedMachine, clock: Clock) -> dict[str, Any]:
    return {
        **vars(machine),
        "joined_at": to_text(machine.joined_at),
        "seen_at": to_text(machine.seen_at),
        "state": machine.state(clock.now()),
    }


def _may_have_token(db: Database, jobs_as_server_user: bool, identity: Identity) -> None:
    """
    Raises:
        Forbidden: the server has a runner so that nobody's programs run as its user, and Ray's
            token lets its holder start some beside the head.
    """
    if jobs_as_server_user or _administers(db, identity):
        return
    raise Forbidden(
        "who joins a machine to a server with a runner must administer the server: the token of "
        "its Ray starts programs on every machine of the cluster, the server's too",
        "ask who has the role `owner` of the server to join the machine",
    )


def _may_take_everybody(db: Database, machine: machines.Join, identity: Identity) -> None:
    """
    Raises:
        Forbidden: the machine would get jobs of other people with their tokens and secrets, and
            nothing but the word of who joined it says that it keeps them apart.
    """
    if not machine.facts["runner"]:
        return
    if not _administers(db, identity):
        raise _for_administrators()
    if identity.kind is TokenKind.MACHINE and identity.token != machines.EVERYBODY:
        raise Forbidden(
            f"machine `{machine.name}` has a token to take the jobs of `{identity.user}` alone",
            "join it with a token that was made for everybody's jobs: "
            "`POST …/token?everybody=true`, or `yard node join --runner`",
        )


def _for_administrators() -> Forbidden:
    return Forbidden(
        "who joins a machine that takes everybody's jobs must administer the server: it gets "
        "their tokens and data",
        "leave `--runner` out: the machine then takes your jobs alone; or ask who has the role "
        "`owner` of the server to join it",
    )


def _administers(db: Database, identity: Identity) -> bool:
    if identity.kind is TokenKind.MACHINE:
        # It counts for no more than who made it, and only as long as they do.
        identity = replace(identity, kind=TokenKind.PERSON, workspace="")
    return people.administers(db, identity)


def _make_default(db: Database, clock: Clock, workspace: str, **more: Any) -> None:
    try:
        actions.get(db, workspace, machines.DEFAULT)
    except NotFound:
        actions.create(db, clock, workspace, machines.DEFAULT_DOCUMENT, **more)


def _answer(machine: JoinedMachine, heads: HeadsOfClusters, clock: Clock) -> dict[str, Any]:
    """The machine, and what its agent needs to join Ray."""
    head = _head(heads, machine.workspace, machine.compute)
    owner = EVERYBODY if machine.takes_everybody else person_label(machine.owner)
    return {
        "machine": to_json(machine, clock),
        "ray": {
            "address": head.address,
            "version": head.version,
            "python": head.python,
            "token": head.token,
            "labels": {OWNER: owner, MACHINE: machine.name},
        },
    }


def _head(heads: HeadsOfClusters, workspace: str, compute: str) -> RayHead:
    try:
        return heads.ensure(head_key(workspace, compute))
    except EngineUnreachable as error:
        raise Unreachable(error.message, error.hint) from error
