"""Which deployment answers a request.

Owns: endpoints at work, their traffic, access, what one request means to statistics.
Leaves: slots and queues to deployments.py, bytes to client_side.py and instance_side.py.
Always: a new table changes settings and instances in place; requests at work and in line go on.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from torchyard.endpoints.router import access, errors
from torchyard.endpoints.router.access import Permissions
from torchyard.endpoints.router.batching import Batches, rows_of
from torchyard.endpoints.router.calls import Call
from torchyard.endpoints.router.client_side import ClientCall
from torchyard.endpoints.router.collecting import Collector
from torchyard.endpoints.router.connections import Connections
from torchyard.endpoints.router.deployments import Deployment
from torchyard.endpoints.router.errors import Refusal
from torchyard.endpoints.router.mirroring import MirrorCall
from torchyard.endpoints.router.statistics import Counters
from torchyard.endpoints.router.table import Collect, DeploymentRow, EndpointRow, Table
from torchyard.endpoints.router.traffic import Shares, Split

_HELD_MOST_BYTES = 128 << 20


class Endpoint:
    """One endpoint at work."""

    def __init__(self, key: str, row: EndpointRow) -> None:
        self.key = key
        self.row = row
        self.split = Split(row.traffic)
        self.mirror = Shares(row.mirror)
        self.deployments: dict[str, Deployment] = {}
        self.refusals = Counters()

    def update(self, row: EndpointRow) -> None:
        self.row = row
        if self.split.weights != row.traffic:
            self.split = Split(row.traffic)
        if self.mirror.percents != row.mirror:
            self.mirror = Shares(row.mirror)


class Router:
    """All that a request needs.

    Attributes:
        held_bytes: of bodies that wait for their instance, of all requests.
        is_stopping: each answer is the last one of its connection.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.connections = Connections()
        self.held_bytes = 0
        self.is_stopping = False
        self.demand = asyncio.Event()
        self.table = Table()
        self._batches = Batches(loop)
        self._collector = Collector()
        self._permissions = Permissions(loop)
        self._endpoints: dict[str, Endpoint] = {}
        self._draining: list[Deployment] = []

    @property
    def is_full(self) -> bool:
        return self.held_bytes > _HELD_MOST_BYTES

    def update(self, table: Table) -> None:
        """Go on with another table."""
        self.table = table
        for key in [key for key in self._endpoints if key not in table.endpoints]:
            for deployment in self._endpoints.pop(key).deployments.values():
                self._retire(deployment)
        for key, row in table.endpoints.items():
            endpoint = self._endpoints.get(key)
            if endpoint is None:
                endpoint = self._endpoints[key] = Endpoint(key, row)
            endpoint.update(row)
            for name in [name for name in endpoint.deployments if name not in row.deployments]:
                self._retire(endpoint.deployments.pop(name))
            for name, of_deployment in row.deployments.items():
                self._put(endpoint, name, of_deployment)
        self._draining = [
            each for each in self._draining if any(each.statistics().in_flight.values())
        ]

    def route(self, call: ClientCall) -> None:
        """Find the deployment that answers; tells the client's connection, at once or later."""
        endpoint = self._endpoints.get(call.request.key)
        if call.request.method == b"CONNECT":
            call.refused(errors.NOT_ALLOWED)
        elif endpoint is None:
            call.refused(errors.NO_ENDPOINT)
        elif call.request.is_preflight:
            # Browsers send it without a key, and the request itself with one.
            self._checked(call, endpoint, None)
        elif endpoint.row.auth.mode == "aad_token":
            self._permissions.ask(
                self.table.server,
                self.table.server_ca,
                endpoint.key,
                call.request.authorization,
                lambda refusal: self._checked(call, endpoint, refusal),
            )
        else:
            is_good = access.passes(endpoint.row.auth, call.request.authorization, time.time())
            self._checked(call, endpoint, None if is_good else errors.UNAUTHORIZED)

    def admit(self, call: ClientCall, target: Deployment) -> None:
        """Send a routed call on its way, alone or with others, and copies of it."""
        row = target.row
        request = call.request
        if row.collect is not None and not call.upgrade:
            self._sample(call, target, row.collect)
        copies = self._copies(call, target)
        rows = None
        if row.batching is not None and call.is_whole and request.method == b"POST":
            rows = rows_of(b"".join(call.parts), request.header(b"content-type"))
        if rows is None:
            target.admit(call)
        else:
            call.sent()
            call.parts = []
            self._batches.add(call, target, request.path, request.header(b"host"), rows)
        for deployment, copy in copies:
            self.loop.call_soon(_send_copy, deployment, copy)

    def record(self, call: ClientCall, seconds: float) -> None:
        """Count an answer."""
        if call.target is None:
            return
        call.target.counters.answered(call.status, seconds)
        sample, call.sample = call.sample, None
        if sample is not None:
            counters = call.target.counters
            self._collector.write(sample, lambda is_kept: _count(counters, is_kept))

    def record_refusal(self, call: ClientCall, refusal: Refusal) -> None:
        """Count what the router itself said."""
        if call.target is not None:
            call.target.counters.refused(refusal.status)
        else:
            endpoint = self._endpoints.get(call.request.key)
            if endpoint is not None:
                endpoint.refusals.refused(refusal.status)

    def statistics(self) -> dict[str, Any]:
        """By endpoint: its deployments, and refusals before a deployment was chosen."""
        return {
            key: {
                "deployments": {
                    name: each.statistics().to_json() for name, each in endpoint.deployments.items()
                },
                "refusals": dict(endpoint.refusals.refusals),
            }
            for key, endpoint in self._endpoints.items()
        }

    def waiting_deployments(self) -> list[dict[str, Any]]:
        """The deployments that requests wait for, without an instance."""
        return [
            {"endpoint": key, "deployment": name, "since": each.waiting_since}
            for key, endpoint in self._endpoints.items()
            for name, each in endpoint.deployments.items()
            if each.waiting_since is not None
        ]

    def close_idle(self, older_than_s: float = 0.0) -> None:
        """Close connections to instances that were not used for a while."""
        for endpoint in self._endpoints.values():
            for deployment in endpoint.deployments.values():
                deployment.close_idle(older_than_s)

    def close(self) -> None:
        self.close_idle()
        self._permissions.close()
        self._collector.close()

    def _sample(self, call: ClientCall, target: Deployment, collect: Collect) -> None:
        request = call.request
        call.sample = self._collector.sample(
            collect,
            f"/endpoints/{target.key}/deployments/{target.name}",
            request.request_id.decode("ascii"),
            request.header(b"content-type"),
        )
        if call.sample is not None:
            for part in call.parts:
                call.sample.add_input(part)

    def _copies(self, call: ClientCall, target: Deployment) -> list[tuple[Deployment, Call]]:
        endpoint = self._endpoints.get(target.key)
        if endpoint is None or not endpoint.mirror.percents or call.upgrade:
            return []
        copies: list[tuple[Deployment, Call]] = []
        for name in endpoint.mirror.next():
            deployment = endpoint.deployments.get(name)
            if deployment is None or deployment is target:
                continue
            if call.is_whole and deployment.is_idle():
                copies.append((deployment, MirrorCall(call)))
            else:
                deployment.counters.mirror_skipped += 1
        return copies

    def _put(self, endpoint: Endpoint, name: str, row: DeploymentRow) -> None:
        deployment = endpoint.deployments.get(name)
        if deployment is None:
            endpoint.deployments[name] = Deployment(
                endpoint.key, name, row, self.loop, self.demand.set
            )
        elif deployment.row != row:
            deployment.update(row)

    def _retire(self, deployment: Deployment) -> None:
        deployment.remove()
        self._draining.append(deployment)

    def _checked(self, call: ClientCall, endpoint: Endpoint, refusal: Refusal | None) -> None:
        if call.is_done:
            return
        if refusal is not None:
            call.refused(refusal)
            return
        deployment = call.request.deployment
        name = deployment.decode("latin-1") if deployment else endpoint.split.next()
        target = endpoint.deployments.get(name)
        if target is None:
            call.refused(errors.NO_DEPLOYMENT)
        elif call.request.is_preflight and not target.row.has_cors:
            call.refused(errors.UNAUTHORIZED)  # as without a key: it costs no slot and no script
        elif call.request.is_preflight and not target.has_instance:
            call.refused(errors.NO_INSTANCE)  # it wakes nothing
        else:
            call.client.routed(call, target)


def _send_copy(deployment: Deployment, copy: Call) -> None:
    """Unless another request has taken the slot."""
    if deployment.is_idle():
        deployment.counters.mirrored += 1
        deployment.admit(copy)
    else:
        deployment.counters.mirror_skipped += 1


def _count(counters: Counters, is_kept: bool) -> None:
    # In the collector's thread, the only one that writes these two but for what it is refused.
    if is_kept:
        counters.collected += 1
    else:
        counters.collect_dropped += 1
