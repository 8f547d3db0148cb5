"""The relay's door: what scripts talk to on 127.0.0.1.

Owns: HTTP with the script, its token, which request is kept, which passed on, which answered here.
Leaves: keeping and shipping to relay.py, passing on to relay_proxy.py.
Always: a metric, a parameter or a tag of a known run is answered without the server; so are
reading and updating the job's own run while the server is away.
"""

from __future__ import annotations

import http.client
import json
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs, urlsplit

from torchyard.plan import LaunchPlan
from torchyard.worker import relay_records
from torchyard.worker.relay_proxy import CHUNK_BYTES, Away, Proxy, answer_headers, chunks, pieces

_RUNS = "/api/2.0/mlflow/runs/"
_KEPT = frozenset({"log-metric", "log-batch", "log-parameter", "set-tag"})
_PATIENCE_S = 60.0
_SETTLE_S = 10.0
# How long the job's own run is asked for before it is answered from memory.
_OWN_TIMEOUT_S = 5.0


class Keeper(Protocol):
    """What the door needs of the relay."""

    def keep(self, records: list[dict[str, Any]]) -> None: ...

    def settle(self, timeout_s: float) -> None: ...


class Door(ThreadingHTTPServer):
    """Listens from the start; `serve` answers until `close`.

    Knows the runs that the script has made or read, so that records of others go to the server,
    which says that they do not exist.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, plan: LaunchPlan, keeper: Keeper, patience_s: float = _PATIENCE_S) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.plan = plan
        self.keeper = keeper
        self.patience_s = patience_s
        self.proxy = Proxy(plan)
        self.token = ("Bearer " + plan.run_token).encode()
        self._lock = threading.Lock()
        self._known = {plan.job}
        self._params: dict[tuple[str, str], str] = {}
        self._own_run = _run_of_plan(plan)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def server_bind(self) -> None:
        # HTTPServer's own asks the resolver for this machine's name, which can take seconds.
        socketserver.TCPServer.server_bind(self)

    def serve(self) -> None:
        """Not `serve_forever`, which looks only twice a second whether it should end."""
        while True:
            try:
                request, address = self.socket.accept()
            except OSError:
                return
            self.process_request(request, address)

    def close(self) -> None:
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handle_error(request, client_address)

    def knows(self, run: str) -> bool:
        with self._lock:
            return run in self._known

    def learn(self, run: str) -> None:
        with self._lock:
            self._known.add(run)

    def hold_params(self, records: list[dict[str, Any]]) -> None:
        """
        Raises:
            Invalid: one of them has another value already.
        """
        with self._lock:
            fresh: dict[tuple[str, str], str] = {}
            for record in records:
                if record["kind"] != "param":
                    continue
                place, value = (record["run"], record["key"]), record["value"]
                old = self._params.get(place, fresh.setdefault(place, value))
                if old != value:
                    raise relay_records.Invalid(
                        "Changing param values is not allowed. Param with "
                        f"key='{place[1]}' was already logged with value='{old[:200]}' for run "
                        f"ID='{place[0]}'. Attempted logging new value '{value[:200]}'."
                    )
            self._params.update(fresh)

    def own_run(self) -> dict[str, Any]:
        """The job's own run as the server last told it, or as the plan knows it."""
        with self._lock:
            return self._own_run

    def remember_own_run(self, run: dict[str, Any]) -> None:
        with self._lock:
            self._own_run = run


class _Told(NamedTuple):
    """What the server said, read whole."""

    status: int
    content: bytes
    kind: str


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: Door

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        if not self._admitted():
            return
        target = urlsplit(self.path)
        if target.path == _RUNS + "get":
            run = parse_qs(target.query).get("run_id", [""])[0]
            self._get_run(run)
        else:
            self._pass_on()

    def do_PUT(self) -> None:
        if self._admitted():
            self._pass_on()

    do_HEAD = do_DELETE = do_PATCH = do_PUT

    def do_POST(self) -> None:
        if not self._admitted():
            return
        path = urlsplit(self.path).path
        verb = path[len(_RUNS) :] if path.startswith(_RUNS) else ""
        if verb in _KEPT:
            self._keep(verb)
        elif verb == "update":
            self._update()
        elif verb == "create":
            self._create()
        else:
            self._pass_on()

    # What is answered here

    def _keep(self, verb: str) -> None:
        content = self._content()
        try:
            body = _object(content)
            if not self.server.knows(relay_records.run_of(body)):
                return self._pass_on(content)
            kept = relay_records.records(verb, body)
            self.server.hold_params(kept)
        except relay_records.Invalid as error:
            return self._refuse(400, "INVALID_PARAMETER_VALUE", str(error))
        try:
            self.server.keeper.keep(kept)
        except OSError as error:
            return self._refuse(503, "TEMPORARILY_UNAVAILABLE", f"not kept: {error}")
        self._answer(200, {})

    def _get_run(self, run: str) -> None:
        own = run == self.server.plan.job
        answer = self._ask(b"", own)
        if answer is None:
            return self._answer(200, {"run": self.server.own_run()}) if own else self._say_away()
        if answer.status == 200:
            self.server.learn(run)
            if own:
                self.server.remember_own_run(_object(answer.content)["run"])
        self._send(*answer)

    def _update(self) -> None:
        content = self._content()
        try:
            body = _object(content)
            own = relay_records.run_of(body) == self.server.plan.job
        except relay_records.Invalid as error:
            return self._refuse(400, "INVALID_PARAMETER_VALUE", str(error))
        answer = self._ask(content, own)
        if answer is not None:
            return self._send(*answer)
        if not own:
            return self._say_away()
        # The job's end is told by its worker, so of an update only a name is worth keeping.
        if body.get("run_name"):
            fields = {"run_id": self.server.plan.job, "key": "mlflow.runName"}
            name = str(body["run_name"])
            self.server.keeper.keep(relay_records.records("set-tag", {**fields, "value": name}))
        self._answer(200, {"run_info": self.server.own_run()["info"]})

    def _create(self) -> None:
        answer = self._ask(self._content(), own=False)
        if answer is None:
            return self._say_away()
        if answer.status == 200:
            self.server.learn(_object(answer.content)["run"]["info"]["run_id"])
        self._send(*answer)

    # What is passed on

    def _pass_on(self, content: bytes | None = None) -> None:
        try:
            size = len(content) if content is not None else self._size()
            body = iter([content] if content else []) if content is not None else self._body()
            self.server.keeper.settle(_SETTLE_S)
            answer = self.server.proxy.ask(
                self.command, self.path, self._sent_headers(), body, size, self.server.patience_s
            )
        except Away:
            self.close_connection = True
            return self._say_away()
        with answer:
            self._stream(answer)

    def _ask(self, content: bytes, own: bool) -> _Told | None:
        """None when the server is away or breaks off; the job's own run is not waited for."""
        self.server.keeper.settle(_OWN_TIMEOUT_S if own else _SETTLE_S)
        try:
            body = iter([content] if content else [])
            answer = self.server.proxy.ask(
                self.command,
                self.path,
                self._sent_headers(),
                body,
                len(content),
                0.0 if own else self.server.patience_s,
                timeout_s=_OWN_TIMEOUT_S if own else 60.0,
            )
            with answer:
                kind = answer.getheader("Content-Type") or "application/json"
                told = _Told(answer.status, answer.read(), kind)
        except (Away, http.client.HTTPException, OSError):
            return None
        # A server that is about to end says so; to the script that is away, too.
        return None if told.status in (502, 503, 504) else told

    def _stream(self, answer: http.client.HTTPResponse) -> None:
        self.send_response(answer.status)
        for name, value in answer_headers(answer):
            self.send_header(name, value)
        length = answer.getheader("Content-Length")
        bare = self.command == "HEAD" or answer.status in (204, 304)
        if length is not None:
            self.send_header("Content-Length", length)
        elif not bare:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if bare:
            return
        try:
            while chunk := answer.read(CHUNK_BYTES):
                self.wfile.write(
                    chunk if length is not None else b"%x\r\n%b\r\n" % (len(chunk), chunk)
                )
            if length is None:
                self.wfile.write(b"0\r\n\r\n")
        except (http.client.HTTPException, OSError):
            # Half an answer can't be taken back; an end before its time tells the client.
            self.close_connection = True

    # HTTP with the script

    def _admitted(self) -> bool:
        given = self.headers.get("Authorization", "").encode("latin-1", "replace")
        if _same(given, self.server.token):
            return True
        self.close_connection = True
        self._refuse(401, "UNAUTHENTICATED", "send the run's token as `Authorization: Bearer`")
        return False

    def _sent_headers(self) -> Mapping[str, str]:
        return dict(self.headers.items())

    def _size(self) -> int | None:
        """Of the body in bytes; None when it comes in chunks."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return None
        return int(self.headers.get("Content-Length") or 0)

    def _body(self) -> Iterator[bytes]:
        size = self._size()
        if size is None:
            return chunks(self.rfile.readline, self.rfile.read)
        return pieces(self.rfile.read, size)

    def _content(self) -> bytes:
        return b"".join(self._body())

    def _say_away(self) -> None:
        self._refuse(503, "TEMPORARILY_UNAVAILABLE", "the torchyard server does not answer")

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._answer(status, {"error_code": code, "message": message})

    def _answer(self, status: int, body: Mapping[str, Any]) -> None:
        self._send(status, json.dumps(body).encode(), "application/json")

    def _send(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)


def _same(given: bytes, wanted: bytes) -> bool:
    """Compared in a time that tells nothing; `hmac` would load OpenSSL for this."""
    if len(given) != len(wanted):
        return False
    return int.from_bytes(given, "big") ^ int.from_bytes(wanted, "big") == 0


def _object(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content or b"{}")
    except (ValueError, RecursionError) as error:
        raise relay_records.Invalid(f"the request's body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise relay_records.Invalid("the request's body is no JSON object")
    return body


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
