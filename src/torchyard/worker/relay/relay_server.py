"""The relay's door: what scripts talk to on 127.0.0.1.

Owns: listening, the script's token, which request is kept, which passed on, which answered here.
Leaves: reading and writing HTTP to http.py, keeping and shipping to relay.py, passing on to
proxy.py, what is known of runs to run_state.py, paths of Azure to sdk_v1.py.
Always: a metric, a parameter or a tag of a known run is answered without the server; so are
reading and updating the job's own run while the server is away.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs

from torchyard.shared import mlflow_records
from torchyard.shared.plan import LaunchPlan
from torchyard.shared.record_rules import InvalidRecord
from torchyard.worker.relay.http import Connection, Listener, Request
from torchyard.worker.relay.proxy import Away, Proxy, Told
from torchyard.worker.relay.run_state import Memory
from torchyard.worker.relay.sdk_v1 import AzureRuns
from torchyard.worker.relay.server_requests import PATIENCE_S, Keeper, Passage, content_of

_RUNS = "/api/2.0/mlflow/runs/"
_KEPT = frozenset({"log-metric", "log-batch", "log-parameter", "set-tag"})
_REQUEST_HEADER = "X-Torchyard-Request"


class Door:
    """Listens from the start; `serve` answers until `close`.

    Records of runs that the memory does not know go to the server, which says whether they exist.
    """

    def __init__(
        self, plan: LaunchPlan, keeper: Keeper, memory: Memory, patience_s: float = PATIENCE_S
    ) -> None:
        # A script that outlived the last relay still knows its port.
        self._listener = Listener(memory.port, self)
        memory.listens_on(self._listener.port)
        self.url = f"http://127.0.0.1:{self._listener.port}"
        self.serve = self._listener.serve
        self.close = self._listener.close
        self._plan = plan
        self._keeper = keeper
        self._memory = memory
        self._passage = Passage(Proxy(plan), keeper, patience_s)
        azure = Passage(Proxy(plan, ""), keeper, patience_s)
        self._azure = AzureRuns(plan, memory, self._keep, azure)
        self._token = "Bearer " + plan.run_token
        # The same right in the form that Azure's clients insist on.
        self._long_token = "Bearer " + plan.variables.get("AZUREML_RUN_TOKEN", plan.run_token)
        self._lock = threading.Lock()
        self._own_run = _run_of_plan(plan)
        self._unanswered: dict[bytes, list[str]] = {}

    # For the listener

    def is_quick(self, request: Request) -> bool:
        if self._azure.is_quick(request):
            return True
        return request.method == "POST" and _verb(request) in _KEPT

    def at_once(self, connection: Connection, request: Request, content: bytes) -> bool:
        if not self._admits(request):
            return False
        try:
            if self._azure.is_quick(request):
                return self._azure.at_once(connection, request, content)
            body = _object(content)
            if not self._memory.knows(mlflow_records.run_of(body)):
                return False
            self._keep(connection, mlflow_records.records(_verb(request), body))
        except InvalidRecord as error:
            _refuse(connection, 400, "INVALID_PARAMETER_VALUE", str(error))
        return True

    def answer(self, connection: Connection, request: Request) -> None:
        if self._azure.is_open(request):
            return self._azure.discover(connection)
        if not self._admits(request):
            connection.closing = True
            why = "send the run's token as `Authorization: Bearer`"
            return _refuse(connection, 401, "UNAUTHENTICATED", why)
        try:
            self._answer(connection, request)
        except InvalidRecord as error:
            _refuse(connection, 400, "INVALID_PARAMETER_VALUE", str(error))
        except Away:
            why = "the torchyard server does not answer"
            _refuse(connection, 503, "TEMPORARILY_UNAVAILABLE", why)

    def _answer(self, connection: Connection, request: Request) -> None:
        verb = _verb(request)
        if self._azure.serves(request):
            self._azure.answer(connection, request)
        elif request.method == "GET" and verb == "get":
            self._get_run(connection, request)
        elif request.method != "POST":
            self._passage.pass_on(connection, request)
        elif verb in _KEPT:
            self._log(connection, request, verb)
        elif verb == "update":
            self._update(connection, request)
        elif verb == "create":
            self._create(connection, request)
        elif verb == "delete":
            self._delete(connection, request)
        else:
            self._passage.pass_on(connection, request)

    def _admits(self, request: Request) -> bool:
        said = request.headers.get("authorization", "")
        return _same(said, self._token) or _same(said, self._long_token)

    # What is answered here

    def _keep(
        self, connection: Connection, records: list[dict[str, Any]], answer: bytes = b"{}"
    ) -> None:
        fresh = self._memory.hold(records)
        try:
            self._keeper.keep(records)
            self._memory.keep(fresh)
        except OSError as error:
            self._memory.let_go(fresh)
            why = f"not kept: {error}"
            return _refuse(connection, 503, "TEMPORARILY_UNAVAILABLE", why)
        connection.send(200, answer)

    def _log(self, connection: Connection, request: Request, verb: str) -> None:
        content = content_of(connection, request)
        body = _object(content)
        run = mlflow_records.run_of(body)
        if self._memory.knows(run):
            return self._keep(connection, mlflow_records.records(verb, body))
        told = self._passage.ask(request, content)
        if told.status == 200:
            self._memory.learn(run)
        connection.send(*told)

    def _get_run(self, connection: Connection, request: Request) -> None:
        content = content_of(connection, request)
        run = parse_qs(request.target.partition("?")[2]).get("run_id", [""])[0]
        own = run == self._plan.job
        try:
            told = self._passage.ask(request, content, own)
        except Away:
            if not own:
                raise
            return self._tell_own(connection, "run")
        if told.status == 200:
            self._memory.learn(run)
        found = _run_in(told)
        if own and found:
            with self._lock:
                self._own_run = found
        connection.send(*told)

    def _update(self, connection: Connection, request: Request) -> None:
        content = content_of(connection, request)
        body = _object(content)
        own = mlflow_records.run_of(body) == self._plan.job
        try:
            return connection.send(*self._passage.ask(request, content, own))
        except Away:
            if not own:
                raise
        # The job's end is told by its worker, so of an update only a name is worth keeping.
        if body.get("run_name"):
            fields = {"run_id": self._plan.job, "key": "mlflow.runName"}
            name = str(body["run_name"])
            self._keeper.keep(mlflow_records.records("set-tag", {**fields, "value": name}))
        self._tell_own(connection, "run_info")

    def _create(self, connection: Connection, request: Request) -> None:
        content = content_of(connection, request)
        with self._naming(content) as name:
            told = self._passage.ask(request, content, more={_REQUEST_HEADER: name})
        made = _run_in(told).get("info", {}).get("run_id")
        if isinstance(made, str):
            self._memory.learn(made)
        connection.send(*told)

    def _delete(self, connection: Connection, request: Request) -> None:
        content = content_of(connection, request)
        told = self._passage.ask(request, content)
        if told.status == 200:
            # What is logged to it from now on is the server's to refuse.
            self._memory.forget(mlflow_records.run_of(_object(content)))
        connection.send(*told)

    def _tell_own(self, connection: Connection, part: str) -> None:
        """The job's own run as the server last told it, or as the plan knows it."""
        with self._lock:
            run = self._own_run
        body = {part: run if part == "run" else run["info"]}
        connection.send(200, json.dumps(body).encode())

    @contextmanager
    def _naming(self, content: bytes) -> Iterator[str]:
        """An id for a request that makes something, the same when it is asked for again.

        A block that raises `Away` leaves it open whether the server has done it: the client's
        next request with this content is the same one.
        """
        with self._lock:
            waiting = self._unanswered.pop(content, [])
            name = waiting.pop() if waiting else os.urandom(16).hex()
            if waiting:
                self._unanswered[content] = waiting
        try:
            yield name
        except Away:
            with self._lock:
                self._unanswered.setdefault(content, []).append(name)
            raise


def _verb(request: Request) -> str:
    path = request.path
    return path[len(_RUNS) :] if path.startswith(_RUNS) else ""


def _refuse(connection: Connection, status: int, code: str, message: str) -> None:
    connection.send(status, json.dumps({"error_code": code, "message": message}).encode())


def _same(given: str, wanted: str) -> bool:
    """Compared in a time that tells nothing; `hmac` would load OpenSSL for this."""
    one, other = given.encode("latin-1", "replace"), wanted.encode()
    if len(one) != len(other):
        return False
    return int.from_bytes(one, "big") ^ int.from_bytes(other, "big") == 0


def _object(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content or b"{}")
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"the request's body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise InvalidRecord("the request's body is no JSON object")
    return body


def _run_in(told: Told) -> dict[str, Any]:
    """The run that the server told of; empty when it did not."""
    run = _object(told.content).get("run") if told.status == 200 else None
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
