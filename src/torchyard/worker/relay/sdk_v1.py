"""Azure's paths at the relay: how SDK v1 logs inside jobs.

Owns: which of its requests are kept on the node, which are answered here, its job's own run as the
server told it last.
Leaves: reading bodies to shared/sdk_v1_records.py, the way to the server to server_requests.py.
Always: what is logged to a known run, and the tags and properties that the job gives itself, are
answered without the server; so is reading the job's own run, once it was read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from torchyard.shared import sdk_v1_records
from torchyard.shared.plan import LaunchPlan
from torchyard.shared.record_rules import InvalidRecord
from torchyard.shared.sdk_v1_records import RunPath
from torchyard.worker.relay import sdk_v1_addresses
from torchyard.worker.relay.http import Connection, Request
from torchyard.worker.relay.proxy import Away, Told
from torchyard.worker.relay.run_state import Memory
from torchyard.worker.relay.server_requests import Passage, content_of

_LOG, _RUN, _INGESTED = "metric/batch", "history", "history/metricsingest/wait"
_SERVICES = ("history/v", "metric/v")
_TAKEN = b'{"errors": []}'

Keep = Callable[[Connection, list[dict[str, Any]], bytes], None]
"""Keep records and answer with these bytes, or say why not."""


class AzureRuns:
    """Answers requests about runs on Azure's paths."""

    def __init__(self, plan: LaunchPlan, memory: Memory, keep: Keep, passage: Passage) -> None:
        self._job = plan.job
        self._server = plan.variables.get("AZUREML_SERVICE_ENDPOINT", "")
        self._memory = memory
        self._keep = keep
        self._passage = passage
        self._lock = threading.Lock()
        self._own: dict[str, Any] | None = None

    def serves(self, request: Request) -> bool:
        """Whether the path is one of Azure's."""
        return request.path.lstrip("/").startswith(_SERVICES)

    def is_open(self, request: Request) -> bool:
        """Whether this is asked without a token, and answered by `discover`."""
        return (
            request.path == sdk_v1_addresses.DISCOVERY
            and request.method == "GET"
            and bool(self._server)
        )

    def discover(self, connection: Connection) -> None:
        connection.send(200, json.dumps(sdk_v1_addresses.services(self._server)).encode())

    def is_quick(self, request: Request) -> bool:
        """Whether `at_once` may be able to answer."""
        return request.method == "POST" and request.path.endswith("/batch") and _is_log(request)

    def at_once(self, connection: Connection, request: Request, content: bytes) -> bool:
        """Keep what is logged to a known run; False when the server is to say whether it exists.

        Raises:
            InvalidRecord: the body is none that logs.
        """
        place = sdk_v1_records.run_path(request.path)
        if place is None or not self._memory.knows(place.run):
            return False
        self._keep(connection, sdk_v1_records.logged(place.run, _object(content)), _TAKEN)
        return True

    def answer(self, connection: Connection, request: Request) -> None:
        """
        Raises:
            Away: only the server could answer, and it is away.
            InvalidRecord: the body is none of such a request.
        """
        place = sdk_v1_records.run_path(request.path)
        method = request.method
        if place is None:
            self._passage.pass_on(connection, request)
        elif method == "POST" and place.verb == _LOG:
            self._log(connection, request, place)
        elif method == "GET" and place.verb == _RUN:
            self._get(connection, request, place)
        elif method == "PATCH" and place.verb == _RUN:
            self._change(connection, request, place)
        elif method == "GET" and place.verb == _INGESTED and self._memory.knows(place.run):
            # What was answered is safe, and is read only after it was delivered.
            self._passage.settle()
            connection.send(200, b"{}")
        else:
            self._passage.pass_on(connection, request)

    def _log(self, connection: Connection, request: Request, place: RunPath) -> None:
        content = content_of(connection, request)
        if self.at_once(connection, request, content):
            return
        # The server takes each value once, known by its id.
        told = self._passage.ask(request, content)
        if told.status == 200:
            self._memory.learn(place.run)
        connection.send(*told)

    def _get(self, connection: Connection, request: Request, place: RunPath) -> None:
        content = content_of(connection, request)
        own = self._known_own(place)
        try:
            told = self._passage.ask(request, content, own is not None)
        except Away:
            if own is None:
                raise
            return connection.send(200, json.dumps(own).encode())
        self._learn(place, told)
        connection.send(*told)

    def _change(self, connection: Connection, request: Request, place: RunPath) -> None:
        content = content_of(connection, request)
        own = self._known_own(place)
        records = None if own is None else sdk_v1_records.changed(place.run, _object(content))
        if own is None or records is None or _contradicts(own, records):
            told = self._passage.ask(request, content)
            self._learn(place, told)
            return connection.send(*told)
        for record in records:
            part = "tags" if record["kind"] == "tag" else "properties"
            own[part] = {**(own.get(part) or {}), record["key"]: record["value"]}
        with self._lock:
            self._own = own
        self._keep(connection, records, json.dumps(own).encode())

    def _known_own(self, place: RunPath) -> dict[str, Any] | None:
        """The job's own run, if this is it and it was read before; a copy."""
        with self._lock:
            return dict(self._own) if self._own is not None and place.run == self._job else None

    def _learn(self, place: RunPath, told: Told) -> None:
        if told.status != 200:
            return
        self._memory.learn(place.run)
        if place.run == self._job:
            with self._lock:
                self._own = _object(told.content)


def _contradicts(own: Mapping[str, Any], records: list[dict[str, Any]]) -> bool:
    """Whether a property has another value already: the server knows what to say."""
    known = own.get("properties") or {}
    given = {one["key"]: one["value"] for one in records if one["kind"] == "property"}
    return any(known.get(key, value) != value for key, value in given.items())


def _is_log(request: Request) -> bool:
    place = sdk_v1_records.run_path(request.path)
    return place is not None and place.verb == _LOG


def _object(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content or b"{}")
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"the request's body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise InvalidRecord("the request's body is no JSON object")
    return body
