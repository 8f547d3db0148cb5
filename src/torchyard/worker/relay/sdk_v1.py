"""Azure's paths at the relay: how SDK v1 logs inside jobs.

Owns: which of its requests are kept on the node, which are answered here, its job's own run as the
server last returned it.
Leaves: reading bodies to shared/sdk_v1_records.py, the way to the server to forwarding.py.
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
from torchyard.shared.record_rules import json_object
from torchyard.shared.sdk_v1_records import RunPath
from torchyard.worker.relay import sdk_v1_addresses
from torchyard.worker.relay.forwarding import Forwarder, content_of
from torchyard.worker.relay.http import HttpRequest, ScriptConnection
from torchyard.worker.relay.proxy import ServerResponse, ServerUnreachable
from torchyard.worker.relay.run_state import RunState

_LOG, _RUN, _INGESTED = "metric/batch", "history", "history/metricsingest/wait"
_SERVICES = ("history/v", "metric/v")
_TAKEN = b'{"errors": []}'

Keep = Callable[[ScriptConnection, list[dict[str, Any]], bytes], None]
"""Keep records and respond with these bytes, or with the reason why not."""


class SdkV1Runs:
    """Answers requests about runs on Azure's paths."""

    def __init__(self, plan: LaunchPlan, state: RunState, keep: Keep, forwarder: Forwarder) -> None:
        self._job = plan.job
        self._server = plan.variables.get("AZUREML_SERVICE_ENDPOINT", "")
        self._state = state
        self._keep = keep
        self._forwarder = forwarder
        self._lock = threading.Lock()
        self._own_run: dict[str, Any] | None = None

    def serves(self, request: HttpRequest) -> bool:
        """Whether the path is one of Azure's."""
        return request.path.lstrip("/").startswith(_SERVICES)

    def is_open(self, request: HttpRequest) -> bool:
        """Whether this needs no token, and `discover` answers it."""
        return (
            request.path == sdk_v1_addresses.DISCOVERY
            and request.method == "GET"
            and bool(self._server)
        )

    def discover(self, connection: ScriptConnection) -> None:
        connection.send(200, json.dumps(sdk_v1_addresses.services(self._server)).encode())

    def is_quick(self, request: HttpRequest) -> bool:
        """Whether `at_once` may be able to answer."""
        return request.method == "POST" and request.path.endswith("/batch") and _is_log(request)

    def at_once(self, connection: ScriptConnection, request: HttpRequest, content: bytes) -> bool:
        """Keep what is logged to a known run; False when the server is to say whether it exists.

        Raises:
            InvalidRecord: the body does not log anything.
        """
        path = sdk_v1_records.run_path(request.path)
        if path is None or not self._state.knows(path.run):
            return False
        self._keep(connection, sdk_v1_records.logged(path.run, json_object(content)), _TAKEN)
        return True

    def answer(self, connection: ScriptConnection, request: HttpRequest) -> None:
        """
        Raises:
            ServerUnreachable: only the server could answer, and it does not.
            InvalidRecord: the body does not have the form of such a request.
        """
        path = sdk_v1_records.run_path(request.path)
        method = request.method
        if path is None:
            self._forward(connection, request)
        elif method == "POST" and path.verb == _LOG:
            self._log(connection, request, path)
        elif method == "GET" and path.verb == _RUN:
            self._get(connection, request, path)
        elif method == "PATCH" and path.verb == _RUN:
            self._change(connection, request, path)
        elif method == "GET" and path.verb == _INGESTED and self._state.knows(path.run):
            # What was answered is safe, and is read only after it was delivered.
            self._forwarder.settle()
            connection.send(200, b"{}")
        else:
            self._forward(connection, request)

    def _forward(self, connection: ScriptConnection, request: HttpRequest) -> None:
        if "/artifacts" in request.path and self._server:
            headers = {**request.headers, sdk_v1_records.BASE_HEADER: self._server}
            request = request._replace(headers=headers)
        self._forwarder.forward(connection, request)

    def _log(self, connection: ScriptConnection, request: HttpRequest, path: RunPath) -> None:
        content = content_of(connection, request)
        if self.at_once(connection, request, content):
            return
        # The server takes each value once, known by its id.
        response = self._forwarder.ask(request, content)
        if response.status == 200:
            self._state.learn(path.run)
        connection.send(*response)

    def _get(self, connection: ScriptConnection, request: HttpRequest, path: RunPath) -> None:
        content = content_of(connection, request)
        own_run = self._remembered(path)
        try:
            response = self._forwarder.ask(request, content, own_run is not None)
        except ServerUnreachable:
            if own_run is None:
                raise
            return connection.send(200, json.dumps(own_run).encode())
        self._learn(path, response)
        connection.send(*response)

    def _change(self, connection: ScriptConnection, request: HttpRequest, path: RunPath) -> None:
        content = content_of(connection, request)
        own_run = self._remembered(path)
        records = None
        if own_run is not None:
            records = sdk_v1_records.changed(path.run, json_object(content))
        if own_run is None or records is None or _contradicts(own_run, records):
            response = self._forwarder.ask(request, content)
            self._learn(path, response)
            return connection.send(*response)
        for record in records:
            is_tag = record["kind"] == "tag"
            part, value = "tags" if is_tag else "properties", record["value"]
            # As the server returns a tag without a value.
            value = None if is_tag and not value else value
            own_run[part] = {**(own_run.get(part) or {}), record["key"]: value}
        with self._lock:
            self._own_run = own_run
        self._keep(connection, records, json.dumps(own_run).encode())

    def _remembered(self, path: RunPath) -> dict[str, Any] | None:
        """The job's own run, if this is it and it was read before; a copy."""
        with self._lock:
            return (
                dict(self._own_run) if self._own_run is not None and path.run == self._job else None
            )

    def _learn(self, path: RunPath, response: ServerResponse) -> None:
        if response.status != 200:
            return
        self._state.learn(path.run)
        if path.run == self._job:
            with self._lock:
                self._own_run = json_object(response.content)


def _contradicts(own_run: Mapping[str, Any], records: list[dict[str, Any]]) -> bool:
    """Whether a property has another value already: the server words the refusal."""
    properties = own_run.get("properties") or {}
    return any(
        properties.get(record["key"], record["value"]) != record["value"]
        for record in records
        if record["kind"] == "property"
    )


def _is_log(request: HttpRequest) -> bool:
    path = sdk_v1_records.run_path(request.path)
    return path is not None and path.verb == _LOG
