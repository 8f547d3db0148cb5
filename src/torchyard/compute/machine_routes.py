"""HTTP: machines that people join to clusters."""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Annotated, Any, Protocol
from urllib.parse import urlsplit

from fastapi import APIRouter, Body, Depends, Request, Response

from torchyard.base import addresses, fields, pinned_certificates
from torchyard.base.bodies.file_responses import OpenFileResponse
from torchyard.base.clock import Clock, to_text
from torchyard.base.db import Database
from torchyard.base.dependencies import ClockOf, DatabaseOf, HomeOf, from_state
from torchyard.base.errors import Forbidden, InvalidInput, NotFound, Unreachable
from torchyard.base.home.ray_archive import RayArchives
from torchyard.compute import actions, invitations, machines, port_check
from torchyard.compute.types import JoinedMachine, head_key
from torchyard.executors.engines import Engines
from torchyard.executors.executor import EngineUnreachable
from torchyard.executors.ray.head_nodes import RayHead
from torchyard.executors.ray.node_labels import EVERYBODY, MACHINE, OWNER, person_label
from torchyard.executors.server_for_nodes import ServerForNodes, own_addresses
from torchyard.workspaces import people
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity, TokenKind


class HeadsOfClusters(Protocol):
    """`app.state.ray_heads`; see executors/ray/head_nodes.py."""

    def ensure(self, key: str, address: str = "") -> RayHead: ...

    def keep(self, needed_homes: Callable[[], Collection[str]]) -> None: ...


ArchivesOf = Annotated[RayArchives, Depends(from_state("ray_archives"))]
JobsAsServerUserOf = Annotated[bool, Depends(from_state("jobs_as_server_user"))]
EnginesOf = Annotated[Engines, Depends(from_state("engines"))]
ForNodesOf = Annotated[ServerForNodes, Depends(from_state("for_nodes"))]
HeadsOf = Annotated[HeadsOfClusters, Depends(from_state("ray_heads"))]
Document = Annotated[Any, Body()]

_MACHINES = "/v1/workspaces/{workspace}/machines"
router = APIRouter(tags=["compute"], route_class=GuardedRoute)


@router.get(_MACHINES)
@needs(Permission.READ)
def list_machines(
    db: DatabaseOf, clock: ClockOf, workspace: str, compute: str = ""
) -> dict[str, Any]:
    rows = machines.list_in(db, workspace, compute)
    return {"value": [to_json(machine, clock) for machine in rows]}


@router.put(_MACHINES + "/{compute}/{machine}")
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
    request: Request,
) -> dict[str, Any]:
    _may_have_token(db, jobs_as_server_user, identity)
    document = fields.mapping(body, "the machine's description")
    description, probe = machines.read(machine, document), port_check.read(document)
    _may_take_everybody(db, description, identity)
    if probe is not None:
        port_check.check(machine, description.address, probe)
    if compute == machines.DEFAULT:
        _make_default(db, clock, workspace, home=home, owner=identity.user, engines=engines.names)
    reached_at = _head_address(db, workspace, compute, _local_address(request))
    joined = machines.join(db, clock, workspace, compute, description, identity.user)
    return _answer(joined, heads, clock, reached_at)


@router.post(_MACHINES + "/{compute}/{machine}/token")
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


@router.post(_MACHINES + "/{compute}/invitations", status_code=201)
@needs(Permission.COMPUTE)
def invite(
    db: DatabaseOf,
    clock: ClockOf,
    home: HomeOf,
    heads: HeadsOf,
    engines: EnginesOf,
    for_nodes: ForNodesOf,
    jobs_as_server_user: JobsAsServerUserOf,
    workspace: str,
    compute: str,
    identity: Person,
    document: Document,
) -> dict[str, Any]:
    """Make an invitation for one machine: a token that works once.

    `machine` names it, else it names itself; `address` is the one of this server's by which it
    comes; `everybody` lets it take everybody's jobs; `expires_at` is an hour from now by default.
    The head is started first: its installation may take minutes.
    """
    _may_have_token(db, jobs_as_server_user, identity)
    body = fields.mapping(document, "the invitation")
    fields.refuse_unknown(body, ("machine", "address", "everybody", "expires_at"))
    everybody = body.get("everybody", False)
    if type(everybody) is not bool:
        raise InvalidInput("`everybody` is not true or false", "use true or false")
    if everybody and not _administers(db, identity):
        raise _for_administrators()
    ends_at = invitations.read_end(body.get("expires_at"), clock.now())
    if compute == machines.DEFAULT:
        _make_default(db, clock, workspace, home=home, owner=identity.user, engines=engines.names)
    cluster = actions.get(db, workspace, compute)
    urls = _urls_at(for_nodes.urls_for(cluster.settings), fields.text(body, "address"))
    token, _ = invitations.create(
        db,
        clock,
        workspace,
        compute,
        fields.text(body, "machine"),
        identity.user,
        everybody,
        ends_at,
    )
    host = urlsplit(urls[0]).hostname or "" if body.get("address") else ""
    _head(heads, workspace, compute, _head_address(db, workspace, compute, host))
    certificate = for_nodes.certificate
    return {
        "token": token,
        "expires_at": to_text(ends_at),
        "server_urls": urls,
        "fingerprint": pinned_certificates.fingerprint(certificate) if certificate else "",
    }


@router.post("/v1/invitations/accept")
@needs(Permission.ACCEPT)
def accept(
    db: DatabaseOf,
    clock: ClockOf,
    heads: HeadsOf,
    for_nodes: ForNodesOf,
    jobs_as_server_user: JobsAsServerUserOf,
    identity: Person,
    request: Request,
    machine: Annotated[str, Body(embed=True)] = "",
    host: Annotated[str, Body(embed=True)] = "",
) -> dict[str, Any]:
    """Exchange an invitation for the token of a machine, once.

    `machine` is the name that it wants; `host` the one that it gets where neither it nor the
    invitation says one.
    """
    _may_have_token(db, jobs_as_server_user, identity)
    if identity.token == machines.EVERYBODY and not _administers(db, identity):
        raise _for_administrators()
    workspace, compute, _ = identity.subject.split("/", 2)
    # Not after the token is made: an invitation that could not be accepted is still good.
    reached_at = _head_address(db, workspace, compute, _local_address(request))
    head = _head(heads, workspace, compute, reached_at)
    accepted = invitations.accept(db, clock, identity, machine, host)
    return {
        "token": accepted.token,
        "workspace": workspace,
        "compute": compute,
        "machine": accepted.machine,
        "server_urls": for_nodes.urls_for(accepted.cluster.settings),
        "certificate": for_nodes.certificate,
        "ray": {"version": head.version, "python": head.python},
    }


@router.delete(_MACHINES + "/{compute}/{machine}/token", status_code=204)
@needs(Permission.COMPUTE)
def drop_token(db: DatabaseOf, workspace: str, compute: str, machine: str) -> Response:
    machines.drop_token(db, workspace, compute, machine)
    return Response(status_code=204)


@router.post(_MACHINES + "/{compute}/{machine}/report")
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


@router.get(_MACHINES + "/{compute}/{machine}/ray")
@needs(Permission.JOIN)
def ray_archive(
    heads: HeadsOf, archives: ArchivesOf, workspace: str, compute: str, machine: str, system: str
) -> OpenFileResponse:
    """Ray's environment with its Python, for a machine of this `system` without a package index.

    Raises:
        NotFound: the server has none that could run there.
    """
    machines.check_name(machine)
    head = _head(heads, workspace, compute)
    archive = None
    if system == f"{platform.system()} {platform.machine()}":
        archive = archives.get(head.version, head.python)
    if archive is None:
        raise NotFound(
            f"the server has no Ray {head.version} for Python {head.python} that could run on "
            f"`{system[:80]}`",
            "let uv there reach a package index, with UV_DEFAULT_INDEX in its environment",
            code="no_ray_to_carry",
        )
    return OpenFileResponse(archive, media_type="application/gzip")


@router.post(_MACHINES + "/{compute}/{machine}/withdraw", status_code=204)
@needs(Permission.JOIN)
def withdraw(db: DatabaseOf, workspace: str, compute: str, machine: str) -> Response:
    """Forget a machine that could not join; with its token it may try again."""
    machines.remove(db, workspace, compute, machine, keep_token=True)
    return Response(status_code=204)


@router.post(_MACHINES + "/{compute}/{machine}/drain")
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


@router.delete(_MACHINES + "/{compute}/{machine}", status_code=204)
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


def _urls_at(urls: list[str], address: str) -> list[str]:
    """Where machines reach the server, at this address of it alone if one is given.

    Raises:
        InvalidInput: they can't.
    """
    own = [url for url in urls if not addresses.is_loopback(urlsplit(url).hostname or "")]
    if not own:
        raise InvalidInput(
            f"other machines can't reach this server, which listens at {', '.join(urls)} alone",
            "start it for them: `yard server stop`, then `yard server start --listen`",
            code="not_listening",
        )
    if not address:
        return own
    found = [url for url in own if urlsplit(url).hostname == address.lower().strip("[]")]
    if not found:
        raise InvalidInput(
            f"`{address[:80]}` is not an address of this server",
            f"it has {', '.join(str(urlsplit(url).hostname) for url in own)}",
        )
    return found


def _administers(db: Database, identity: Identity) -> bool:
    if identity.kind in (TokenKind.MACHINE, TokenKind.INVITATION):
        # It counts for no more than who made it, and only as long as they do.
        identity = replace(identity, kind=TokenKind.PERSON, workspace="")
    return people.administers(db, identity)


def _make_default(db: Database, clock: Clock, workspace: str, **more: Any) -> None:
    try:
        actions.get(db, workspace, machines.DEFAULT)
    except NotFound:
        actions.create(db, clock, workspace, machines.DEFAULT_DOCUMENT, **more)


def _answer(
    machine: JoinedMachine, heads: HeadsOfClusters, clock: Clock, head_address: str = ""
) -> dict[str, Any]:
    """The machine, and what its agent needs to join Ray."""
    head = _head(heads, machine.workspace, machine.compute, head_address)
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


def _local_address(request: Request) -> str:
    """This machine's address by which the request came; empty where a proxy passed it on."""
    host = (request.scope.get("server") or ("",))[0] or ""
    return "" if addresses.is_loopback(host) else host


def _head_address(db: Database, workspace: str, compute: str, host: str) -> str:
    """Where the head has to be for a machine that reaches the server at `host`, one of its
    addresses; empty to leave it where it is: other machines have joined it there.
    """
    address = addresses.parse(host)
    if address is None or address.version != 4 or machines.list_in(db, workspace, compute):
        return ""
    return str(address) if str(address) in own_addresses() else ""


def _head(heads: HeadsOfClusters, workspace: str, compute: str, address: str = "") -> RayHead:
    try:
        return heads.ensure(head_key(workspace, compute), address)
    except EngineUnreachable as error:
        raise Unreachable(error.message, error.hint) from error
