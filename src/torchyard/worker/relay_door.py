"""The relay's door: what scripts talk to on 127.0.0.1.

Owns: listening, the script's token, which request is kept, which passed on, which answered here.
Leaves: reading and writing HTTP to relay_http.py, keeping and shipping to relay.py, passing on to
relay_proxy.py, what is known of runs to relay_memory.py.
Always: a metric, a parameter or a tag of a known run is answered without the server; so are
reading and updating the job's own run while the server is away.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import parse_qs

from torchyard.plan import LaunchPlan
from torchyard.worker import relay_records
from torchyard.worker.relay_http import Connection, Listener, Request
from torchyard.worker.relay_memory import Memory
from torchyard.worker.relay_proxy import CHUNK_BYTES, Away, Proxy, Told, answer_headers

_RUNS = "/api/2.0/mlflow/runs/"
_KEPT = frozenset({"log-metric", "log-batch", "log-parameter", "set-tag"})
# A script waits so long for each thing that only the server can answer. The client asks again
# after a 503, 7 times with growing pauses unless told otherwise.
PATIENCE_S = 60.0
_SETTLE_S = 10.0
# How long the job's own run is asked for before it is answered from memory.
_OWN_TIMEOUT_S = 5.0
_REQUEST_HEADER = "X-Torchyard-Request"


class Keeper(Protocol):
    """What the door needs of the relay."""

    def keep(self, records: list[dict[str, Any]]) -> None: ...

    def settle(self, timeout_s: float) -> None: ...


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
        self._patience_s = patience_s
        self._proxy = Proxy(plan)
        self._token = "Bearer " + plan.run_token
        # The same right in the form that Azure's clients insist on.
        self._long_token = "Bearer " + plan.variables.get("AZUREML_RUN_TOKEN", plan.run_token)
        self._lock = threading.Lock()
        self._own_run = _run_of_plan(plan)
        self._unanswered: dict[bytes, list[str]] = {}

    # For the listener

    def is_quick(self, request: Request) -> bool:
        return request.method == "POST" and _verb(request) in _KEPT

    def at_once(self, connection: Connection, request: Request, content: bytes) -> bool:
        if not self._admits(request):
            return False
        try:
            body = _object(content)
            if not self._memory.knows(relay_records.run_of(body)):
                return False
            self._keep(connection, relay_records.records(_verb(request), body))
        except relay_records.Invalid as error:
            _refuse(connection, 400, "INVALID_PARAMETER_VALUE", str(error))
        return True

    def answer(self, connection: Connection, request: Request) -> None:
        if not self._admits(request):
            connection.closing = True
            why = "send the run's token as `Authorization: Bearer`"
            return _refuse(connection, 401, "UNAUTHENTICATED", why)
        try:
            self._answer(connection, request)
        except relay_records.Invalid as error:
            _refuse(connection, 400, "INVALID_PARAMETER_VALUE", str(error))
        except Away:
            why = "the torchyard server does not answer"
            _refuse(connection, 503, "TEMPORARILY_UNAVAILABLE", why)

    def _answer(self, connection: Connection, request: Request) -> None:
        verb = _verb(request)
        if request.method == "GET" and verb == "get":
            self._get_run(connection, request)
        elif request.method != "POST":
            self._pass_on(connection, request)
        elif verb in _KEPT:
            self._log(connection, request, verb)
        elif verb == "update":
            self._update(connection, request)
        elif verb == "create":
            self._create(connection, request)
        elif verb == "delete":
            self._delete(connection, request)
        else:
            self._pass_on(connection, request)

    def _admits(self, request: Request) -> bool:
        said = request.headers.get("authorization", "")
        return _same(said, self._token) or _same(said, self._long_token)

    # What is answered here

    def _keep(self, connection: Connection, records: list[dict[str, Any]]) -> None:
        fresh = self._memory.hold(records)
        try:
            self._keeper.keep(records)
            self._memory.keep(fresh)
        except OSError as error:
            self._memory.let_go(fresh)
            why = f"not kept: {error}"
            return _refuse(connection, 503, "TEMPORARILY_UNAVAILABLE", why)
        connection.send(200, b"{}")

    def _log(self, connection: Connection, request: Request, verb: str) -> None:
        content = _content(connection, request)
        body = _object(content)
        run = relay_records.run_of(body)
        if self._memory.knows(run):
            return self._keep(connection, relay_records.records(verb, body))
        told = self._ask(request, content)
        if told.status == 200:
            self._memory.learn(run)
        connection.send(*told)

    def _get_run(self, connection: Connection, request: Request) -> None:
        content = _content(connection, request)
        run = parse_qs(request.target.partition("?")[2]).get("run_id", [""])[0]
        own = run == self._plan.job
        try:
            told = self._ask(request, content, own)
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
        content = _content(connection, request)
        body = _object(content)
        own = relay_records.run_of(body) == self._plan.job
        try:
            return connection.send(*self._ask(request, content, own))
        except Away:
            if not own:
                raise
        # The job's end is told by its worker, so of an update only a name is worth keeping.
        if body.get("run_name"):
            fields = {"run_id": self._plan.job, "key": "mlflow.runName"}
            name = str(body["run_name"])
            self._keeper.keep(relay_records.records("set-tag", {**fields, "value": name}))
        self._tell_own(connection, "run_info")

    def _create(self, connection: Connection, request: Request) -> None:
        content = _content(connection, request)
        with self._naming(content) as name:
            told = self._ask(request, content, more={_REQUEST_HEADER: name})
        made = _run_in(told).get("info", {}).get("run_id")
        if isinstance(made, str):
            self._memory.learn(made)
        connection.send(*told)

    def _delete(self, connection: Connection, request: Request) -> None:
        content = _content(connection, request)
        told = self._ask(request, content)
        if told.status == 200:
            # What is logged to it from now on is the server's to refuse.
            self._memory.forget(relay_records.run_of(_object(content)))
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

    # What is passed on

    def _pass_on(self, connection: Connection, request: Request) -> None:
        self._keeper.settle(_SETTLE_S)
        body = connection.body(request)
        try:
            answer = self._proxy.stream(
                request.method,
                request.target,
                request.headers,
                body,
                request.size_bytes,
                self._patience_s,
            )
        except Away:
            # Perhaps not all of the body was read, which the next request would begin with.
            connection.closing = True
            raise
        with answer:
            # A server that refuses early leaves some of the body unread.
            connection.closing = connection.closing or next(body, None) is not None
            _stream(connection, answer, bare=request.method == "HEAD")

    def _ask(
        self,
        request: Request,
        content: bytes,
        own: bool = False,
        more: Mapping[str, str] | None = None,
    ) -> Told:
        """For what may be done twice; the job's own run is not waited for.

        Raises:
            Away: the server is away, or breaks off.
        """
        self._keeper.settle(_OWN_TIMEOUT_S if own else _SETTLE_S)
        headers = {**request.headers, **(more or {})}
        waits = (0.0, _OWN_TIMEOUT_S) if own else (self._patience_s,)
        return self._proxy.ask(request.method, request.target, headers, content, *waits)


def _stream(connection: Connection, answer: http.client.HTTPResponse, bare: bool) -> None:
    headers = list(answer_headers(answer))
    length = answer.getheader("Content-Length")
    bare = bare or answer.status in (204, 304)
    if length is not None:
        headers.append(("Content-Length", length))
    elif not bare:
        headers.append(("Transfer-Encoding", "chunked"))
    connection.send_head(answer.status, headers)
    if bare:
        return
    try:
        while chunk := answer.read(CHUNK_BYTES):
            framed = chunk if length is not None else b"%x\r\n%b\r\n" % (len(chunk), chunk)
            connection.write(framed)
        if length is None:
            connection.write(b"0\r\n\r\n")
    except (http.client.HTTPException, OSError):
        # Half an answer can't be taken back; an end before its time tells the client.
        connection.closing = True


def _verb(request: Request) -> str:
    path = request.path
    return path[len(_RUNS) :] if path.startswith(_RUNS) else ""


def _content(connection: Connection, request: Request) -> bytes:
    return b"".join(connection.body(request))


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
        raise relay_records.Invalid(f"the request's body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise relay_records.Invalid("the request's body is no JSON object")
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
