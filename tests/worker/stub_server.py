"""A server that speaks the worker's HTTP interface and remembers all it was told.

Owns: the answers of CONTRACT's worker section, kept in memory.
Leaves: jobs, people and MLflow to the real server.
Always: repeats are dropped as the real server drops them; it can go away and come back on its port.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import kept_port

_TICK_S = 0.01


class StubServer:
    """Attributes are what arrived; `control` and `over` are what it answers."""

    def __init__(self) -> None:
        self.events: dict[int, list[dict[str, Any]]] = {}
        self.event_times: dict[tuple[int, str], float] = {}
        self.heartbeats: dict[int, int] = {}
        self.logs: dict[str, bytes] = {}
        self.history: dict[int, list[dict[str, Any]]] = {}
        self.files: dict[str, bytes] = {}
        self.previous: dict[str, bytes] = {}  # of named outputs, by `output/path`
        self.outputs: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        self.inputs: dict[str, dict[str, bytes]] = {}
        self.addresses: dict[int, tuple[str, int | None]] = {}
        self.facts: dict[int, dict[str, Any]] = {}
        self.node_count = 1
        self.control = ""
        self.reason = ""
        self.over = False
        self.refuse: Callable[[str, str], tuple[int, dict[str, Any]] | None] = lambda *_: None
        # Of the request that came last.
        self.headers: dict[str, str] = {}
        self.lock = threading.RLock()
        self._connections: set[Any] = set()
        self._httpd: _Listener | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen; after `stop` on the same port again."""
        server = type("Handler", (_Handler,), {"stub": self})
        self._httpd = _Listener(("127.0.0.1", self.port), server)
        if not self.port:
            self.port = self._httpd.server_address[1]
            kept_port.keep(self.port, self)
        serve = self._httpd.serve_forever
        threading.Thread(target=serve, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Be away: nobody listens, and open connections are cut."""
        httpd, self._httpd = self._httpd, None
        if httpd is not None:
            httpd.shutdown()
            httpd.server_close()
        with self.lock:
            for connection in self._connections:
                _cut(connection)
            self._connections.clear()

    def put_snapshot(
        self, files: dict[str, bytes | str], modes: dict[str, str] | None = None
    ) -> str:
        """Keep files as blobs; the answer is the snapshot's id."""
        entries = []
        for path, text in sorted(files.items()):
            content = text.encode() if isinstance(text, str) else text
            mode = (modes or {}).get(path, "0644")
            sha256 = self.put_blob(content)
            entries.append({"path": path, "sha256": sha256, "size": len(content), "mode": mode})
        manifest = json.dumps({"files": entries}, separators=(",", ":"), sort_keys=True)
        return self.put_blob(manifest.encode())

    def put_blob(self, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        self.blobs[sha256] = content
        return sha256

    def write_blobs(self, folder: Path) -> Path:
        """All blobs as the server keeps them on disk."""
        for sha256, content in self.blobs.items():
            file = folder / sha256[:2] / sha256
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                file.write_bytes(content)
                file.chmod(0o444)
        return folder

    def kinds(self, node: int = 0) -> list[str]:
        return [event["kind"] for event in self.events.get(node, [])]

    def find(self, kind: str, node: int = 0) -> dict[str, Any]:
        """The body of the first event of this kind."""
        return next(e["body"] for e in self.events.get(node, []) if e["kind"] == kind)

    def wait_for(self, kind: str, node: int = 0, timeout_s: float = 60.0) -> dict[str, Any]:
        self.wait_until(lambda: kind in self.kinds(node), timeout_s, f"event {kind} of {node}")
        return self.find(kind, node)

    def wait_until(self, true: Callable[[], bool], timeout_s: float = 60.0, goal: str = "") -> None:
        deadline = time.monotonic() + timeout_s
        while not true():
            assert time.monotonic() < deadline, f"waited in vain: {goal or true}; {self.events}"
            time.sleep(_TICK_S)

    def say_stop(self, reason: str, kill: bool = False) -> None:
        self.reason = reason
        self.control = "kill" if kill else "stop"

    # Answers, by path below the attempt

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> Any:
        refusal = self.refuse(method, path)
        if refusal is not None:
            return refusal
        if self.over:
            return 410, {"error": {"code": "attempt_over", "message": "over", "hint": ""}}
        first, _, rest = path.lstrip("/").partition("/")
        if first == "report":
            return 200, self._report(json.loads(body))
        if first == "control":
            wait_s = float(query.get("wait_s", 0))
            after = ("", query.get("after", ""))
            self._wait(lambda: self.control not in after or self.over or not self._httpd, wait_s)
            is_urgent = self.control == "kill"
            control = "stop" if is_urgent else self.control
            return 200, {"control": control, "reason": self.reason, "urgent": is_urgent}
        if first == "rendezvous":
            return 200, self._meet(method, query, body)
        if first == "logs":
            return self._log(query["path"], int(query["offset"]), body)
        if first == "history":
            return 200, self._history(json.loads(body))
        if first == "blobs":
            blob = self.blobs.get(rest)
            return (200, blob) if blob is not None else (404, {"error": {"message": "no blob"}})
        if first == "inputs":
            return self._input(rest)
        if first == "previous-outputs":
            if rest:
                return 200, self.previous[unquote(rest)]
            return 200, {"files": self._previous_outputs()}
        if first in ("files", "outputs"):
            contents = self.files if first == "files" else self.outputs
            if method == "DELETE":
                for name in [name for name in contents if name.startswith(f"{unquote(rest)}/")]:
                    del contents[name]
                return 200, {}
            contents[unquote(rest)] = body
            return 200, {"sha256": hashlib.sha256(body).hexdigest(), "size_bytes": len(body)}
        return 404, {"error": {"code": "not_found", "message": path, "hint": ""}}

    def _previous_outputs(self) -> list[dict[str, Any]]:
        files = {f"/{path.removeprefix('outputs/')}": each for path, each in self.files.items()}
        return [
            {
                "output": key.partition("/")[0],
                "path": key.partition("/")[2],
                "size_bytes": len(each),
            }
            for key, each in {**files, **self.previous}.items()
        ]

    def _input(self, rest: str) -> Any:
        name, _, path = rest.partition("/files/")
        files = self.inputs.get(unquote(name))
        if files is None:
            return 404, {"error": {"message": f"no input {name}"}}
        if path:
            return 200, files[unquote(path)]
        listing = [
            {"path": relative_path, "size_bytes": len(content), "mode": "444"}
            for relative_path, content in files.items()
        ]
        return 200, {"single": len(listing) == 1, "files": listing}

    def _report(self, body: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            node = body["node"]
            events = self.events.setdefault(node, [])
            if not body["events"]:
                self.heartbeats[node] = self.heartbeats.get(node, 0) + 1
            for event in body["events"]:
                if event["seq"] == len(events):
                    events.append(event)
                    self.event_times.setdefault((node, event["kind"]), time.monotonic())
            return {"next": len(events)}

    def _meet(self, method: str, query: dict[str, str], body: bytes) -> dict[str, Any]:
        if method == "POST":
            sent = json.loads(body)
            with self.lock:
                self.facts[sent["node"]] = sent.get("facts") or {}
                self.addresses[sent["node"]] = (sent["address"], sent["port"])
            return {}
        self._wait(lambda: len(self.addresses) >= self.node_count, float(query.get("wait_s", 0)))
        nodes = [self.addresses.get(node, ("", None))[0] for node in range(self.node_count)]
        ready = all(nodes)
        facts = [self.facts.get(node, {}) for node in range(self.node_count)]
        port = self.addresses[0][1] if ready else None
        return {"ready": ready, "nodes": nodes, "port": port, "facts": facts}

    def _log(self, path: str, offset: int, body: bytes) -> tuple[int, dict[str, Any]]:
        with self.lock:
            stored = self.logs.get(path, b"")
            if offset > len(stored):
                error = {"code": "conflict", "message": "a gap", "hint": ""}
                return 409, {"error": error, "size": len(stored)}
            self.logs[path] = stored + body[len(stored) - offset :]
            return 200, {"size": len(self.logs[path])}

    def _history(self, body: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            records = self.history.setdefault(body["node"], [])
            if len(records) < body["seq"]:
                return {"next": len(records), "rejected": []}
            records.extend(body["records"][len(records) - body["seq"] :])
            return {"next": len(records), "rejected": []}

    def _wait(self, true: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not true() and time.monotonic() < deadline:
            time.sleep(_TICK_S)


class _Listener(kept_port.PortKeepingServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    stub: StubServer

    def setup(self) -> None:
        super().setup()
        with self.stub.lock:
            self.stub._connections.add(self.connection)
            # One that was accepted just before the end is served no more than the others.
            if self.stub._httpd is not self.server:
                _cut(self.connection)

    def finish(self) -> None:
        with self.stub.lock:
            self.stub._connections.discard(self.connection)
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _serve(self) -> None:
        body = b"".join(self._body())
        parts = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        below = parts.path.split("/v1/attempts/", 1)[-1]
        _, slash, rest = below.partition("/")
        self.stub.headers = dict(self.headers)
        status, answer = self.stub.answer(self.command, slash + rest, query, body)
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            yield self.rfile.read(int(self.headers.get("Content-Length") or 0))
            return
        while True:
            size = int(self.rfile.readline().split(b";")[0], 16)
            if size:
                yield self.rfile.read(size)
            self.rfile.readline()
            if not size:
                return


def _cut(connection: Any) -> None:
    try:
        connection.shutdown(2)
    except OSError:
        pass


@contextmanager
def running() -> Iterator[StubServer]:
    """A stub server for the length of the block."""
    server = StubServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()
