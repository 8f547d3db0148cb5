"""Make hosts machines of a cluster, all at once, and end them again.

Owns: their tokens, waiting until Ray has each, what becomes of a host that fails.
Leaves: the connection to ssh.py, what is done on a host to node_agent/host_program.py.
Always: a host that fails is left as it was, there and at the server; one that has joined is not
touched again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from torchyard.base.errors import InvalidInput, NotFound, TorchyardError
from torchyard.base.home.ray_archive import RayArchives
from torchyard.base.http import Transport
from torchyard.base.logins import LOOPBACK
from torchyard.cli.hosts import ssh
from torchyard.cli.hosts.addresses import Host
from torchyard.cli.hosts.ssh import HostFailed, Session

_AT_ONCE = 16
# The server may have to install Ray first.
_HEAD_S = 1800.0
_RAY_S = 90.0
_POLL_S = 0.5
_THERE = ("joined", "draining")
_USABLE = ("idle", "running")
_LABEL = "torchyard-machine"  # see executors/ray/node_labels.py


@dataclass(frozen=True)
class Cluster:
    """Where hosts join, the connection to the server, and what this machine has of Ray."""

    transport: Transport
    workspace: str
    name: str
    archives: RayArchives

    @property
    def machines(self) -> str:
        return f"/v1/workspaces/{quote(self.workspace, safe='')}/machines"

    def machine(self, host: Host) -> str:
        return f"{self.machines}/{quote(self.name, safe='')}/{host.name}"

    def twin(self) -> Cluster:
        """For another thread."""
        return replace(self, transport=self.transport.twin())


@dataclass(frozen=True)
class Outcome:
    """What became of a host; `state` is joined, was joined, left, was not joined or failed."""

    host: Host
    state: str
    address: str = ""
    message: str = ""
    hint: str = ""

    @property
    def failed(self) -> bool:
        return self.state == "failed"

    def to_json(self) -> dict[str, Any]:
        return {
            "host": self.host.text,
            "name": self.host.name,
            "state": self.state,
            "address": self.address,
            "message": self.message,
            "hint": self.hint,
        }


Say = Callable[[Host, str], object]
"""Called with each line about a host that is being made a node."""


def join(cluster: Cluster, hosts: Sequence[Host], say: Say) -> Iterator[Outcome]:
    """Make hosts nodes; each outcome as soon as it is known.

    Raises:
        TorchyardError: the server lets nobody join, or no host could reach it.
    """
    program = ssh.find()
    there = {
        machine["name"]: machine
        for machine in cluster.transport.get(cluster.machines, {"compute": cluster.name})["value"]
    }
    missing = []
    for host in hosts:
        machine = there.get(host.name)
        if machine is not None and machine["state"] in _THERE:
            yield Outcome(host, "was joined", str(machine["address"]))
        else:
            missing.append(host)
    tickets = _tickets(cluster, missing)

    def handle(host: Host) -> Outcome:
        server = cluster.twin()
        try:
            return _join_one(
                program, server, host, tickets[host.name], lambda line: say(host, line)
            )
        finally:
            server.transport.close()

    yield from _all(missing, handle)


def leave(cluster: Cluster, hosts: Sequence[Host], say: Say) -> Iterator[Outcome]:
    """End the nodes of hosts, and remove them at the server; each outcome as soon as it is known.

    A host that can't be reached is removed at the server all the same: its node ends by itself.
    """
    program = ssh.find()

    def handle(host: Host) -> Outcome:
        server = cluster.twin()
        try:
            return _leave_one(program, server, host, lambda line: say(host, line))
        finally:
            server.transport.close()

    yield from _all(hosts, handle)


def _all(hosts: Sequence[Host], handle: Callable[[Host], Outcome]) -> Iterator[Outcome]:
    if not hosts:
        return
    with ThreadPoolExecutor(min(len(hosts), _AT_ONCE)) as pool:
        for future in as_completed([pool.submit(handle, host) for host in hosts]):
            yield future.result()


def _tickets(cluster: Cluster, hosts: Sequence[Host]) -> dict[str, Mapping[str, Any]]:
    """By machine: its token, and where it reaches the server."""
    patient = cluster.transport.twin(timeout_s=_HEAD_S)
    tickets: dict[str, Mapping[str, Any]] = {}
    try:
        for host in hosts:
            ticket = patient.post(f"{cluster.machine(host)}/token")
            tickets[host.name] = ticket
            _refuse_loopback(ticket["server_urls"])
    except BaseException:
        for host in hosts:
            if host.name in tickets:
                _forget(cluster, host)
        raise
    finally:
        patient.close()
    return tickets


def _refuse_loopback(urls: Sequence[str]) -> None:
    if all(url.startswith((*LOOPBACK, "https://127.0.0.1:", "https://localhost:")) for url in urls):
        raise InvalidInput(
            f"other machines can't reach this server, which listens at {', '.join(urls)}",
            "start it with `yard server start --listen`",
        )


def _join_one(
    program: str,
    cluster: Cluster,
    host: Host,
    ticket: Mapping[str, Any],
    say: Callable[[str], object],
) -> Outcome:
    request = {
        "action": "join",
        "name": host.name,
        "workspace": quote(cluster.workspace, safe=""),
        "compute": quote(cluster.name, safe=""),
        "address": "",
        **ticket,
    }
    is_kept = False
    try:
        with Session(program, host, request, cluster.archives, say) as session:
            address = str(session.wait_for("started")["address"])
            if not _is_in_ray(cluster, host):
                raise _not_in_ray(address, session.undo())
            session.keep()
            session.wait_for("done")
            is_kept = True
        return Outcome(host, "joined", address)
    except HostFailed as failure:
        return Outcome(host, "failed", message=failure.message, hint=failure.hint)
    except TorchyardError as error:
        return Outcome(host, "failed", message=error.message, hint=error.hint)
    finally:
        if not is_kept:
            _forget(cluster, host)


def _is_in_ray(cluster: Cluster, host: Host) -> bool:
    """Whether Ray comes to have the machine."""
    workspace, compute = quote(cluster.workspace, safe=""), quote(cluster.name, safe="")
    path = f"/v1/workspaces/{workspace}/computes/{compute}/engine"
    deadline = time.monotonic() + _RAY_S
    while time.monotonic() < deadline:
        with suppress(TorchyardError):  # its head is being started
            for machine in cluster.transport.get(path)["machines"]:
                is_meant = machine["labels"].get(_LABEL) == host.name
                if is_meant and machine["state"] in _USABLE:
                    return True
        time.sleep(_POLL_S)
    return False


def _not_in_ray(address: str, last_words: str) -> HostFailed:
    text = f": {last_words}" if last_words else ""
    return HostFailed(
        f"it reaches the server, but its Ray, at {address}, did not join the head{text}",
        "open all ports between the machines of the cluster, both ways; see `yard compute check`",
    )


def _leave_one(program: str, cluster: Cluster, host: Host, say: Callable[[str], object]) -> Outcome:
    trouble: HostFailed | None = None
    was_there = False
    try:
        with Session(program, host, {"action": "leave"}, cluster.archives, say) as session:
            was_there = bool(session.wait_for("done")["left"])
    except HostFailed as failure:
        trouble = failure
    was_joined = _forget(cluster, host)
    if trouble is not None:
        ends = "its node ends within ten seconds, and its files stay" if was_joined else ""
        message = f"{trouble.message}; {ends}" if ends else trouble.message
        return Outcome(host, "failed", message=message, hint=trouble.hint)
    return Outcome(host, "left" if was_joined or was_there else "was not joined")


def _forget(cluster: Cluster, host: Host) -> bool:
    """Remove the machine and its token at the server; whether there was one."""
    try:
        cluster.transport.delete(cluster.machine(host))
        return True
    except NotFound:
        with suppress(TorchyardError):
            cluster.transport.delete(f"{cluster.machine(host)}/token")
    except TorchyardError:
        pass  # without its agent it counts as unreachable, and can be removed later
    return False
