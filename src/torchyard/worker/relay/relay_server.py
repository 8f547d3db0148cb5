"""The relay's HTTP server, which scripts reach on 127.0.0.1.

Owns: listening, the script's token, which request is kept, passed on or answered here.
Leaves: reading and writing HTTP to http.py, keeping and shipping to relay.py, passing on to
forwarding.py, what is known of runs to run_state.py, Azure's paths to sdk_v1.py, clients that send
no token with files to artifact_tickets.py.
Always: a metric, a parameter or a tag of a known run is answered without the server; so are
reading and updating the job's own run while the server is unreachable.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs

from torchyard.shared.plan import LaunchPlan
from torchyard.shared.record_rules import InvalidRecord, json_object
from torchyard.worker.relay import mlflow_records
from torchyard.worker.relay.artifact_tickets import ArtifactTickets
from torchyard.worker.relay.forwarding import WAIT_S, Forwarder, Recorder, content_of
from torchyard.worker.relay.http import HttpRequest, Listener, ScriptConnection
from torchyard.worker.relay.proxy import Proxy, ServerResponse, ServerUnreachable
from torchyard.worker.relay.run_state import RunState
from torchyard.worker.relay.sdk_v1 import SdkV1Runs

_RUNS = "/api/2.0/mlflow/runs/"
# The second is the registry's in MLflow 1.
_APIS = ("/api/2.0/mlflow/", "/api/2.0/preview/mlflow/")
# Where azureml-mlflow's paths begin: the API's version and the workspace, then MLflow's own path.
_PLUGIN_PATH = "/mlflow/v"
_KEPT = frozenset({"log-metric", "log-batch", "log-parameter", "set-tag"})
_REQUEST_HEADER = "X-Torchyard-Request"


class RelayServer:
    """Listens from the start; `serve` answers until `close`.

    Records of unknown runs go to the server, which says whether the runs exist.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        recorder: Recorder,
        state: RunState,
        wait_s: float = WAIT_S,
        listener: socket.socket | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        # A script that outlived the last relay still knows its port.
        self._listener = Listener(state.port, self, listener)
        state.set_port(self._listener.port)
        self.url = f"http://127.0.0.1:{self._listener.port}"
        self.serve = self._listener.serve
        self.close = self._listener.close
        self._plan = plan
        self._recorder = recorder
        self._state = state
        self._forwarder = Forwarder(Proxy(plan, environ=environ), recorder, wait_s)
        self._azure = Forwarder(Proxy(plan, "", environ), recorder, wait_s)
        self._sdk_v1 = SdkV1Runs(plan, state, self._keep, self._azure)
        self._token = "Bearer " + plan.run_token
        # The same permission in the form that Azure's clients insist on.
        self._long_token = "Bearer " + plan.variables.get("AZUREML_RUN_TOKEN", plan.run_token)
        self._tickets = ArtifactTickets(plan.run_token)
        self._lock = threading.Lock()
        # By whether the plug-in reads it, which knows other addresses of artifacts.
        self._own_runs = {is_plugin: _run_of_plan(plan) for is_plugin in (False, True)}
        self._unanswered: dict[bytes, list[str]] = {}

    # For the listener

    def is_quick(self, request: HttpRequest) -> bool:
        if self._sdk_v1.is_quick(request):
            return True
        return request.method == "POST" and _verb(request) in _KEPT

    def at_once(self, connection: ScriptConnection, request: HttpRequest, content: bytes) -> bool:
        if not self._is_authorized(request):
            return False
        try:
            if self._sdk_v1.is_quick(request):
                return self._sdk_v1.at_once(connection, request, content)
            body = json_object(self._sent(request, content))
            if not self._state.knows(mlflow_records.run_of(body)):
                return False
            self._keep(connection, mlflow_records.records(_verb(request), body))
        except InvalidRecord as error:
            _refuse(connection, 400, "INVALID_PARAMETER_VALUE", str(error))
        return True

    def answer(self, connection: ScriptConnection, request: HttpRequest) -> None:
        if self._sdk_v1.is_open(request):
            return self._sdk_v1.discover(connection)
        admitted = self._tickets.admit(request)
        if admitted is None and not self._is_authorized(request):
            connection.closing = True
            reason = "send the run's token as `Authorization: Bearer`"
            return _refuse(connection, 401, "UNAUTHENTICATED", reason)
        try:
            self._answer(connection, admitted or request)
        except InvalidRecord as error:
            _refuse(connection, 400, "INVALID_PARAMETER_VALUE", str(error))
        except ServerUnreachable:
            reason = "the torchyard server does not respond"
            _refuse(connection, 503, "TEMPORARILY_UNAVAILABLE", reason)

    def _answer(self, connection: ScriptConnection, request: HttpRequest) -> None:
        verb = _verb(request)
        if self._sdk_v1.serves(request):
            self._sdk_v1.answer(connection, request)
        elif request.method == "GET" and verb == "get":
            self._get_run(connection, request)
        elif self._names_files(request):
            self._forward_with_tickets(connection, request)
        elif request.method != "POST":
            self._way(request).forward(connection, request)
        elif verb in _KEPT:
            self._log(connection, request, verb)
        elif verb == "update":
            self._update(connection, request)
        elif verb == "create":
            self._create(connection, request)
        elif verb == "delete":
            self._delete(connection, request)
        else:
            self._way(request).forward(connection, request)

    def _is_authorized(self, request: HttpRequest) -> bool:
        header = request.headers.get("authorization", "")
        return _equal(header, self._token) or _equal(header, self._long_token)

    def _way(self, request: HttpRequest) -> Forwarder:
        return self._azure if _is_plugin(request) else self._forwarder

    # For clients that send no token with files

    def _names_files(self, request: HttpRequest) -> bool:
        """Whether the client expects URIs in the response that admit it without a token."""
        if request.method == "POST" and _verb(request) not in ("", "search"):
            return False
        return request.path.startswith(_APIS) and self._tickets.are_for(request)

    def _forward_with_tickets(self, connection: ScriptConnection, request: HttpRequest) -> None:
        content = self._sent(request, content_of(connection, request))
        response = self._forwarder.ask_once(request, content)
        self._send(connection, request, response)

    def _sent(self, request: HttpRequest, content: bytes) -> bytes:
        """The body of a request as the server is to see it."""
        return self._tickets.remove(content) if self._tickets.are_for(request) else content

    def _send(
        self, connection: ScriptConnection, request: HttpRequest, answer: ServerResponse
    ) -> None:
        """Answer with the server's response, as the client reads it."""
        if self._tickets.are_for(request):
            answer = answer._replace(content=self._tickets.add(answer.content))
        connection.send(*answer)

    # What is answered here

    def _keep(
        self, connection: ScriptConnection, records: list[dict[str, Any]], response: bytes = b"{}"
    ) -> None:
        params = self._state.reserve(records)
        try:
            self._recorder.keep(records)
            self._state.commit(params)
        except OSError as error:
            self._state.release(params)
            reason = f"not kept: {error}"
            return _refuse(connection, 503, "TEMPORARILY_UNAVAILABLE", reason)
        connection.send(200, response)

    def _log(self, connection: ScriptConnection, request: HttpRequest, verb: str) -> None:
        content = self._sent(request, content_of(connection, request))
        body = json_object(content)
        run = mlflow_records.run_of(body)
        if self._state.knows(run):
            return self._keep(connection, mlflow_records.records(verb, body))
        response = self._way(request).ask(request, content)
        if response.status == 200:
            self._state.learn(run)
        connection.send(*response)

    def _get_run(self, connection: ScriptConnection, request: HttpRequest) -> None:
        content = content_of(connection, request)
        run = parse_qs(request.target.partition("?")[2]).get("run_id", [""])[0]
        is_own_run = run == self._plan.job
        try:
            response = self._way(request).ask(request, content, is_own_run)
        except ServerUnreachable:
            if not is_own_run:
                raise
            return self._send_own_run(connection, request, "run")
        if response.status == 200:
            self._state.learn(run)
        read_run = _run_in(response)
        if is_own_run and read_run:
            with self._lock:
                self._own_runs[_is_plugin(request)] = read_run
        self._send(connection, request, response)

    def _update(self, connection: ScriptConnection, request: HttpRequest) -> None:
        content = self._sent(request, content_of(connection, request))
        body = json_object(content)
        is_own_run = mlflow_records.run_of(body) == self._plan.job
        try:
            return self._send(
                connection, request, self._way(request).ask(request, content, is_own_run)
            )
        except ServerUnreachable:
            if not is_own_run:
                raise
        # The job's end comes from its worker, so of an update only a name is worth keeping.
        if body.get("run_name"):
            fields = {"run_id": self._plan.job, "key": "mlflow.runName"}
            name = str(body["run_name"])
            self._recorder.keep(mlflow_records.records("set-tag", {**fields, "value": name}))
        self._send_own_run(connection, request, "run_info")

    def _create(self, connection: ScriptConnection, request: HttpRequest) -> None:
        content = self._sent(request, content_of(connection, request))
        with self._request_id(content) as request_id:
            response = self._way(request).ask(
                request, content, headers={_REQUEST_HEADER: request_id}
            )
        run = _run_in(response).get("info", {}).get("run_id")
        if isinstance(run, str):
            self._state.learn(run)
        self._send(connection, request, response)

    def _delete(self, connection: ScriptConnection, request: HttpRequest) -> None:
        content = self._sent(request, content_of(connection, request))
        response = self._way(request).ask(request, content)
        if response.status == 200:
            # What is logged to it from now on is the server's to refuse.
            self._state.forget(mlflow_records.run_of(json_object(content)))
        connection.send(*response)

    def _send_own_run(self, connection: ScriptConnection, request: HttpRequest, part: str) -> None:
        """The job's own run as the server last returned it, or as the plan describes it."""
        with self._lock:
            run = self._own_runs[_is_plugin(request)]
        body = {part: run if part == "run" else run["info"]}
        answer = ServerResponse(200, json.dumps(body).encode(), "application/json")
        self._send(connection, request, answer)

    @contextmanager
    def _request_id(self, content: bytes) -> Iterator[str]:
        """An id for a request that creates something, the same when the client repeats it.

        A block that raises `ServerUnreachable` leaves it open whether the server has done it: the
        client's next request with this content is the same one.
        """
        with self._lock:
            waiting = self._unanswered.pop(content, [])
            request_id = waiting.pop() if waiting else os.urandom(16).hex()
            if waiting:
                self._unanswered[content] = waiting
        try:
            yield request_id
        except ServerUnreachable:
            with self._lock:
                self._unanswered.setdefault(content, []).append(request_id)
            raise


def _verb(request: HttpRequest) -> str:
    before, _, verb = request.path.partition(_RUNS)
    return verb if not before or _is_plugin(request) else ""


def _is_plugin(request: HttpRequest) -> bool:
    return request.path.startswith(_PLUGIN_PATH)


def _refuse(connection: ScriptConnection, status: int, code: str, message: str) -> None:
    connection.send(status, json.dumps({"error_code": code, "message": message}).encode())


def _equal(header: str, expected: str) -> bool:
    """Compared in constant time; `hmac` would load OpenSSL for this."""
    left, right = header.encode("latin-1", "replace"), expected.encode()
    if len(left) != len(right):
        return False
    return int.from_bytes(left, "big") ^ int.from_bytes(right, "big") == 0


def _run_in(response: ServerResponse) -> dict[str, Any]:
    """The run in the server's response; empty when there is none."""
    run = json_object(response.content).get("run") if response.status == 200 else None
    return run if isinstance(run, dict) else {}


def _run_of_plan(plan: LaunchPlan) -> dict[str, Any]:
    experiment_id = plan.variables.get("MLFLOW_EXPERIMENT_ID", "0")
    return {
        "info": {
            "run_uuid": plan.job,
            "run_id": plan.job,
            "run_name": plan.job,
            "experiment_id": experiment_id,
            "user_id": "",
            "status": "RUNNING",
            "start_time": int(time.time() * 1000),
            "artifact_uri": f"mlflow-artifacts:/{experiment_id}/{plan.job}/artifacts",
            "lifecycle_stage": "active",
        },
        "data": {"metrics": [], "params": [], "tags": []},
    }
