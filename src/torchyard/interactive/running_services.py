"""The services of running jobs, and who may open them.

Owns: what is known of each, its label and address, links, whether a person may still enter.
Leaves: passing bytes to proxy.py, codes and sessions to links.py, the programs to the nodes.
Always: a service is open to its job's owner and to owners of the workspace, asked again as long as
it is used.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from fastapi.concurrency import run_in_threadpool

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, Forbidden, InvalidInput, NotAuthenticated, NotFound
from torchyard.base.long_connections import CHECK_EVERY_S
from torchyard.interactive import running_nodes
from torchyard.interactive.links import Holder, Links, MemoryLinks
from torchyard.interactive.proxy import SIGN_IN, Proxy, ProxyAddress
from torchyard.interactive.running_nodes import RunningNode
from torchyard.jobs import actions
from torchyard.jobs.attempts import running
from torchyard.jobs.records.types import Job, parse_job
from torchyard.jobs.services import RecordServices, Services
from torchyard.jobs.spec.interactive_services import Service
from torchyard.tunnels.tunnel import Channel
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces import rights
from torchyard.workspaces.types import Identity, Role

_LOCAL = "localhost"
_LABEL_LETTERS = 24
_MOST = 10_000
_FIRST_PATHS = {"jupyter_lab": "/lab"}


@dataclass(frozen=True)
class ServicesAt:
    """Where services are reached. `url` is a pattern such as `https://*.services.example.org`,
    empty for this machine alone; `host` and `port` are the listener's, 0 for any that is free.
    """

    url: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    tls: ssl.SSLContext | None = None

    def address_at(self, port: int) -> ProxyAddress:
        """
        Raises:
            InvalidInput: the pattern is none.
        """
        if not self.url:
            return ProxyAddress("http", _LOCAL, port)
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if parts.scheme not in ("http", "https") or not host.startswith("*.") or parts.path:
            raise InvalidInput(
                f"`{self.url}` is not an address for services",
                "write it as `https://*.services.example.org`, with a host name of its own for "
                "each service in place of the star",
            )
        return ProxyAddress(parts.scheme, host[2:], parts.port or 0)


@dataclass(frozen=True)
class ServiceState:
    """A service on one node, as its worker told last; `endpoint` is empty unless it runs."""

    name: str
    type: str
    node: int
    state: str
    message: str
    restarts: int
    port: int
    label: str
    endpoint: str = ""

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "label"}


class JobServices:
    """Lives as long as the server; `link` and the proxy are of the event loop's thread."""

    def __init__(self, services: Services, at: ServicesAt, links: Links | None = None) -> None:
        self._services = services
        self._at = at
        self._links = links or MemoryLinks(services.clock.now)
        self._entries: dict[str, _Entry] = {}
        self._proxy = Proxy(self._entries.get, self._links, at.address_at)
        self._starting = asyncio.Lock()

    def close(self) -> None:
        self._proxy.close()

    async def listen(self) -> None:
        """Open the listener, if it is not open."""
        async with self._starting:
            if not self._proxy.port:
                await self._proxy.listen(self._at.host, self._at.port, self._at.tls)

    def states(self, job: Job) -> list[ServiceState]:
        """The services of a job's running attempt, each on its nodes."""
        if not _requested(job):
            return []
        attempt = running.attempt_of(self._services.db, job)
        if attempt is None:
            return []
        states = []
        for node, report in running.interactive_of(self._services.db, attempt):
            for name, values in (report.get("services") or {}).items():
                states.append(self._state(job, attempt, node, name, values))
        return sorted(states, key=lambda state: (state.name, state.node))

    def may_enter(self, job: Job, token_hash: str) -> bool:
        services = self._services
        return may_enter(services.db, services.clock, job.workspace, job.owner, token_hash)

    async def link(self, job: Job, name: str, node: int | None, identity: Identity) -> str:
        """A link that opens a service in this person's browser, once.

        Raises:
            NotFound: the job has no such service there.
            Conflict: it does not run.
            Forbidden: it is somebody else's.
        """
        if not await run_in_threadpool(self.may_enter, job, identity.token_hash):
            raise refused(job, identity.user)
        states = await run_in_threadpool(self.states, job)
        by_name = [state for state in states if state.name == name]
        matching = [state for state in by_name if node is None or state.node == node]
        if not matching:
            raise self._unknown(job, name, node, states)
        state = matching[0]
        if state.state != "Running":
            raise Conflict(
                f"service `{name}` of job `{job.name}` is {state.state}: {state.message or 'wait'}",
                f"see `yard job show-services -n {job.name}`",
                code="service_not_running",
            )
        await self.listen()
        code = self._links.code(Holder(identity.token_hash, state.label))
        return f"{self._proxy.base_address.origin(state.label)}{SIGN_IN}?code={code}"

    def _state(
        self, job: Job, attempt: str, node: int, name: str, values: Mapping[str, Any]
    ) -> ServiceState:
        label = hashlib.sha256(f"{attempt}:{node}:{name}".encode()).hexdigest()[:_LABEL_LETTERS]
        kind = str(values.get("type", ""))
        is_running = values.get("state") == "Running"
        if label not in self._entries:
            if len(self._entries) >= _MOST:
                del self._entries[next(iter(self._entries))]
            running_node = RunningNode(attempt, node, 0, 0)
            self._entries[label] = _Entry(self._services, job, running_node, name, kind)
        port = self._proxy.port
        return ServiceState(
            name,
            kind,
            node,
            str(values.get("state", "")),
            str(values.get("message", "")),
            int(values.get("restarts", 0)),
            int(values.get("port", 0)),
            label,
            f"{self._proxy.base_address.origin(label)}/" if is_running and port else "",
        )

    def _unknown(
        self, job: Job, name: str, node: int | None, states: list[ServiceState]
    ) -> NotFound | Conflict:
        if name in _requested(job) and not states:
            return Conflict(
                f"job `{job.name}` is {job.status.value}: its services run with its ranks",
                f"see `yard job show -n {job.name}`",
                code="service_not_running",
            )
        where = "" if node is None else f" on node {node}"
        names = ", ".join(f"`{state.name}`" for state in states) or "none"
        return NotFound(
            f"job `{job.name}` has no service `{name}`{where}",
            f"it has {names}; `services:` of its file says which",
        )


class _Entry:
    """A service behind its label; see proxy.Target."""

    def __init__(
        self, services: Services, job: Job, running_node: RunningNode, name: str, kind: str
    ) -> None:
        self._services = services
        self._job = job
        self._running_node = running_node
        self._checked: dict[str, tuple[float, bool]] = {}
        self.name = name
        self.first_path = _FIRST_PATHS.get(kind, "/")

    async def may_enter(self, token_hash: str) -> bool:
        at, allowed = self._checked.get(token_hash, (-CHECK_EVERY_S, False))
        if time.monotonic() - at >= CHECK_EVERY_S:
            services, job = self._services, self._job
            allowed = await run_in_threadpool(
                may_enter, services.db, services.clock, job.workspace, job.owner, token_hash
            )
            self._checked[token_hash] = time.monotonic(), allowed
        return allowed

    async def connect(self) -> Channel:
        attempt = await run_in_threadpool(running.attempt_of, self._services.db, self._job)
        if attempt != self._running_node.attempt_id:
            raise Conflict(
                f"job `{self._job.name}` has ended", "services end with the ranks of their job"
            )
        request = {"kind": "service", "name": self.name}
        return await running_nodes.open_channel(self._services, self._running_node, request)

    async def trouble(self) -> str:
        """What its worker said of it last."""
        nodes = dict(
            await run_in_threadpool(
                running.interactive_of, self._services.db, self._running_node.attempt_id
            )
        )
        values = ((nodes.get(self._running_node.node) or {}).get("services") or {}).get(
            self.name
        ) or {}
        return f"It is {values.get('state', 'gone')}. {values.get('message', '')}"


def may_enter(db: Database, clock: Clock, workspace: str, owner: str, token_hash: str) -> bool:
    """Whether a token's holder may enter somebody's job: their own with a role, or as an owner."""
    try:
        identity = workspaces.holder(db, clock, token_hash, workspace)
    except (NotAuthenticated, Forbidden):
        return False
    is_own = identity.user == owner and rights.suffices(identity.role)
    return is_own or identity.role is Role.OWNER


def _requested(job: Job) -> Mapping[str, Service]:
    return parse_job(job).spec.services if job.has_ranks else {}


def refused(job: Job, user: str) -> Forbidden:
    return Forbidden(
        f"job `{job.name}` belongs to `{job.owner}`, and `{user}` does not own workspace "
        f"`{job.workspace}`",
        f"ask `{job.owner}`",
    )


def release(services: RecordServices, workspace: str, name: str) -> Job:
    """End the time that a job is held after its script.

    Raises:
        Conflict: it is not held.
    """
    job = actions.get(services, workspace, name)
    attempt = running.attempt_of(services.db, job) if job.has_ranks else None
    if attempt is None or not running.release(services, attempt):
        hint = f"`yard job cancel -n {name}` ends a job whose script runs"
        if job.status.ended:
            hint = "`torchyard: {hold: 30m}` in a job's file holds it after its script"
        raise Conflict(
            f"job `{name}` is {job.status.value} and not held after its script",
            hint,
            code="job_not_held",
        )
    return actions.get(services, workspace, name)
