"""A server with the part of the native API that the command speaks, for tests.

It runs in the test's process (`FakeServer`) or as one of its own, started as the embedded server
is: `python fake_server.py --home H --ready-fd N`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "yard_p_" + "t" * 43
CREATED_AT = "2026-01-01T10:00:00.000000Z"
KNOWN_KEYS = {
    "name", "display_name", "experiment_name", "type", "command", "code", "environment", "inputs",
    "outputs", "resources", "distribution", "compute", "tags", "environment_variables", "limits",
    "description", "properties",
}  # fmt: skip
KNOWN_RESOURCES = {"instance_count", "instance_type"}


@dataclass
class Part:
    """A piece of a job's stream: an event or notice (`fields`), or bytes of a log."""

    fields: dict[str, Any]
    content: bytes = b""


@dataclass
class FakeJob:
    body: dict[str, Any]
    parts: list[Part] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    outputs: dict[str, dict[str, bytes]] = field(default_factory=dict)
    # After so many bytes each connection is cut; the last one, past these, is whole.
    cuts: list[int] = field(default_factory=list)
    # Set by a test to hold the stream's end back.
    may_end: threading.Event = field(default_factory=threading.Event)


def job_body(name: str, status: str = "Completed", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "display_name": f"{name}-display",
        "experiment_name": "digits",
        "type": "command",
        "status": status,
        "spec": {"command": "python train.py"},
        "tags": {},
        "properties": {},
        "compute": "local",
        "node_count": 2,
        "processes_per_node": 4,
        "created_at": CREATED_AT,
        "started_at": "2026-01-01T10:00:01.000000Z",
        "ended_at": "2026-01-01T10:00:13.300000Z",
        "owner": "ann",
        "attempt": 1,
        "exit_code": 0 if status == "Completed" else None,
        "error": None,
        "waiting": "",
        "stages": [
            {
                "name": "Running",
                "start": "2026-01-01T10:00:01.000000Z",
                "end": "2026-01-01T10:00:13.000000Z",
                "waited_for": "",
            }
        ],
        "notices": [],
        "metrics": {"loss": 0.25},
        "params": {"lr": "0.1"},
        "models": [{"name": "digits", "version": "1"}],
        **more,
    }


class State:
    """What the fake server holds; tests look into it."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.slow_s = 0.0
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, Any] = {}
        self.jobs: dict[str, FakeJob] = {}
        self.posted: list[dict[str, Any]] = []
        self.validated: list[dict[str, Any]] = []
        self.computes: dict[str, dict[str, Any]] = {}
        self.models: list[dict[str, Any]] = []
        self.data: list[dict[str, Any]] = []
        self.datastores: dict[str, dict[str, Any]] = {}
        self.url_maps: dict[str, str] = {}
        self.workspaces: list[dict[str, Any]] = []
        self.bundle_bytes: int | None = None
        self.limits = dict.fromkeys(("cpu", "memory", "pids", "network"), True)
        self.model_files: dict[str, bytes] = {"model.pt": b"weights"}


class FakeServer:
    """The fake server on a thread; `url` stays the same over `stop` and `start`."""

    def __init__(self) -> None:
        self.state = State()
        self._port = 0
        self.start()
        # Here, because this file is also a program, which finds no other.
        from kept_port import keep

        keep(self._port, self)

    def start(self) -> None:
        self._server = make_server(self.state, self._port)
        self._port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that go away are what tests do."""


def make_server(state: State, port: int) -> ThreadingHTTPServer:
    class Handler(_Handler):
        pass

    Handler.state = state
    return _Server(("127.0.0.1", port), Handler)


class _Refused(Exception):
    def __init__(self, status: int, message: str, hint: str = "", at: Any = (), code: str = "x"):
        self.status = status
        error = {"code": code, "message": message, "hint": hint, "at": list(at)}
        self.body = {"error": error}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    state: State

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _dispatch(self) -> None:
        url = urlsplit(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        if self.headers.get("Transfer-Encoding") == "chunked":
            raise AssertionError("the command gives its bodies a length")
        body = self.rfile.read(size)
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        self.state.requests.append((self.command, url.path))
        try:
            if parts == ["health"]:
                answer: Any = {"status": "ok", "version": "0.1.0", "pid": os.getpid()}
            elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise _Refused(401, "the token is not good", "set TORCHYARD_TOKEN")
            elif parts == ["v1", "server", "limits"]:
                answer = self.state.limits
            elif parts == ["v1", "whoami"]:
                me = {"user": "ann", "role": "owner", "job": None, "token": None}
                answer = {**me, "workspace": "default", "expires_at": None}
            elif parts == ["v1", "sign-in", "links"]:
                answer = {"path": "/ui/sign-in?code=abc", "code": "abc", "expires_at": CREATED_AT}
            elif parts[:2] == ["v1", "workspaces"] and len(parts) <= 3:
                answer = self._workspaces(parts[2:], body)
            else:
                answer = self._native(parts[3], parts[4:], query, body)
        except _Refused as refused:
            self._answer(refused.status, json.dumps(refused.body).encode())
            return
        if answer is not None:
            raw = isinstance(answer, bytes)
            self._answer(200, answer if raw else json.dumps(answer).encode())

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _dispatch

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _workspaces(self, rest: list[str], body: bytes) -> Any:
        if self.command == "POST":
            self.state.workspaces.append(json.loads(body))
        result = {
            "name": rest[0] if rest else "default",
            "subscription_id": "0" * 8,
            "resource_group": "torchyard",
            "location": "local",
            "id": "x",
            "created_at": CREATED_AT,
        }
        if self.command == "POST":
            return {**result, **json.loads(body)}
        return result if rest else {"value": [result]}

    def _native(self, noun: str, rest: list[str], query: dict[str, str], body: bytes) -> Any:
        handler = getattr(self, f"_{noun.replace('-', '_')}", None)
        if handler is None:
            raise _Refused(404, f"nothing answers `{self.path}`")
        return _dated(handler(rest, query, body))

    def _bundle(self, rest: list[str], query: dict[str, str], body: bytes) -> bytes:
        frames = b""
        for source in json.loads(body)["sources"]:
            noun, *path = [unquote(part) for part in source.split("/")]
            content = self._native(noun, path, {}, b"")
            frames += b"%d\n" % len(content) + content
        return frames[: self.state.bundle_bytes]

    def _blobs(self, rest: list[str], query: dict[str, str], body: bytes) -> Any:
        blobs = self.state.blobs
        if rest == ["missing"]:
            return {"missing": [name for name in json.loads(body)["sha256"] if name not in blobs]}
        if rest and self.command == "GET":
            return blobs[rest[0]]
        if rest:
            time.sleep(self.state.slow_s)
            self._keep(rest[0], body)
            return {}
        stored = 0
        while body:
            header, _, body = body.partition(b"\n")
            name, size = header.decode().split(" ")
            self._keep(name, body[: int(size)])
            body = body[int(size) :]
            stored += 1
        return {"stored": stored}

    def _keep(self, name: str, content: bytes) -> None:
        if hashlib.sha256(content).hexdigest() != name:
            raise _Refused(400, "the blob arrived as another one")
        self.state.blobs[name] = content

    def _snapshots(self, rest: list[str], query: dict[str, str], body: bytes) -> Any:
        if self.command == "GET":
            return self.state.manifests[rest[0]]
        manifest = json.loads(body)
        absent = [f["sha256"] for f in manifest["files"] if f["sha256"] not in self.state.blobs]
        if absent:
            raise _Refused(400, f"{len(absent)} blobs are missing", code="blobs_missing")
        text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
        name = hashlib.sha256(text.encode()).hexdigest()
        self.state.manifests[name] = manifest
        return {"id": name}

    def _jobs(self, rest: list[str], query: dict[str, str], body: bytes) -> Any:
        state = self.state
        if not rest and self.command == "GET":
            result = [job.body for job in reversed(state.jobs.values())]
            if query.get("archived") != "true":
                only = query.get("archived") == "only"
                result = [body for body in result if bool(body.get("archived")) == only]
            if "experiment_name" in query:
                result = [b for b in result if b["experiment_name"] == query["experiment_name"]]
            start = int(query.get("before", 0))
            end = start + min(int(query["limit"]), 3)
            return {"value": result[start:end], "next": end if end < len(result) else None}
        if rest == ["validate"]:
            document = json.loads(body)
            state.validated.append(document)
            _check(document)
            return {"notices": []}
        if not rest:
            document = json.loads(body)
            _check(document)
            state.posted.append(document)
            name = document.get("name") or f"job-{len(state.posted)}"
            is_new = name not in state.jobs
            if is_new:
                made = job_body(name, "Queued", ended_at=None, spec=document)
                state.jobs[name] = FakeJob(made)
            return {**state.jobs[name].body, "submitted": is_new}
        if rest[0] not in state.jobs:
            raise _Refused(404, f"job `{rest[0]}` does not exist", "list jobs with `yard job list`")
        job = state.jobs[rest[0]]
        if rest[1:] == ["stream"]:
            return self._stream(
                job, int(query.get("after", 0)), json.loads(query.get("offsets", "{}"))
            )
        if rest[1:] in (["archive"], ["restore"]):
            job.body["archived"] = rest[1] == "archive"
        if self.command == "PATCH":
            changes = json.loads(body)
            job.body["tags"] |= changes.pop("tags", {})
            job.body |= changes
        if rest[1:] == ["cancel"]:
            job.body["status"] = "CancelRequested"
        if rest[1:2] == ["files"] and rest[2:]:
            return job.files["/".join(rest[2:])]
        if rest[1:2] == ["files"]:
            return {"value": [{"path": p, "size_bytes": len(c)} for p, c in job.files.items()]}
        if rest[1:2] == ["outputs"] and rest[2:]:
            return job.outputs[rest[2]]["/".join(rest[3:])]
        if rest[1:2] == ["outputs"]:
            return {
                "value": [
                    {"output": output, "path": path, "size_bytes": len(content)}
                    for output, files in job.outputs.items()
                    for path, content in files.items()
                ]
            }
        return job.body

    def _stream(self, job: FakeJob, after: int, offsets: dict[str, int]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        left = job.cuts.pop(0) if job.cuts else None
        for block in self._blocks(job, after, offsets):
            if left is not None and len(block) >= left:
                self.wfile.write(b"%x\r\n%b" % (len(block), block[:left]))
                self.close_connection = True
                return None
            left = None if left is None else left - len(block)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(block), block))
        self.wfile.write(b"0\r\n\r\n")
        return None

    def _blocks(self, job: FakeJob, after: int, offsets: dict[str, int]) -> Iterator[bytes]:
        written: dict[str, int] = {}
        for part in job.parts:
            if "seq" in part.fields and part.fields["seq"] <= after:
                continue
            if part.fields["kind"] not in ("log", "build"):
                yield json.dumps(part.fields).encode() + b"\n"
                continue
            key = f"{part.fields['attempt']}/{part.fields['path']}"
            start = written.get(key, 0)
            written[key] = start + len(part.content)
            skipped = max(0, min(len(part.content), offsets.get(key, 0) - start))
            content = part.content[skipped:]
            if content:
                header = {**part.fields, "offset": start + skipped, "size": len(content)}
                yield json.dumps(header).encode() + b"\n" + content
        job.may_end.wait(60)
        yield json.dumps({"kind": "end", "job": job.body}).encode() + b"\n"

    def _instances(self, rest: list[str], query: dict[str, str], body: bytes) -> Any:
        if rest:
            raise _Refused(404, f"compute `{rest[0]}` does not exist", code="not_found")
        return {"value": []}

    def _computes(self, rest: list[str], query: dict[str, str], body: bytes) -> Any:
        computes = self.state.computes
        if not rest:
            return {"value": list(computes.values())}
        if self.command == "PUT":
            computes[rest[0]] = json.loads(body)
        if rest[0] not in computes:
            raise _Refused(404, f"compute `{rest[0]}` does not exist", "see `yard compute list`")
        if self.command == "DELETE":
            del computes[rest[0]]
            return {}
        return computes[rest[0]]

    def _models(self, rest: list[str], query: dict[str, str], body: bytes) -> Any:
        return self._assets(self.state.models, rest, query, body)

    def _data(self, rest: list[str], query: dict[str, str], body: bytes) -> Any:
        return self._assets(self.state.data, rest, query, body)

    def _assets(
        self, assets: list[dict[str, Any]], rest: list[str], query: dict[str, str], body: bytes
    ) -> Any:
        if rest[-1:] in (["archive"], ["restore"]):
            for asset in assets:
                if asset["name"] == rest[0] and (len(rest) == 2 or asset["version"] == rest[2]):
                    asset["archived"] = rest[-1] == "archive"
            return {}
        if self.command == "POST":
            asset = {"version": str(len(assets) + 1), **json.loads(body)}
            assets.append(asset)
            return asset
        if not rest:
            all_of = query.get("archived") == "true"
            return {"value": [a for a in assets if all_of or not a.get("archived")]}
        files = self.state.model_files
        if rest[3:4] == ["files"] and rest[4:]:
            return files["/".join(rest[4:])]
        if rest[3:4] == ["files"]:
            return {"value": [{"path": p, "size_bytes": len(c)} for p, c in files.items()]}
        result = {"name": rest[0], "version": "1" if rest[2] == "latest" else rest[2], "files": []}
        return {**result, **json.loads(body)} if self.command == "PATCH" else result

    def _datastores(self, rest: list[str], query: dict[str, str], body: bytes) -> Any:
        assets = self.state.datastores
        if not rest:
            return {"value": list(assets.values())}
        if self.command == "PUT":
            assets[rest[0]] = json.loads(body)
        if rest[0] not in assets:
            raise _Refused(404, f"datastore `{rest[0]}` does not exist")
        if self.command == "DELETE":
            del assets[rest[0]]
            return {}
        return {key: value for key, value in assets[rest[0]].items() if key != "credentials"}

    def _url_maps(self, rest: list[str], query: dict[str, str], body: bytes) -> Any:
        maps = self.state.url_maps
        if self.command == "PUT":
            options = json.loads(body)
            maps[options["prefix"]] = options["target"]
            return options
        if self.command == "DELETE":
            maps.pop(query["prefix"])
            return {}
        return {"value": [{"prefix": p, "target": t} for p, t in maps.items()]}

    def _experiments(self, rest: list[str], query: dict[str, str], body: bytes) -> Any:
        names = dict.fromkeys(job.body["experiment_name"] for job in self.state.jobs.values())
        return {"value": [{"name": name} for name in names]}

    def _environments(self, rest: list[str], query: dict[str, str], body: bytes) -> Any:
        assets: list[dict[str, Any]] = [
            {"name": "python", "version": version, "description": "plain", "packages": []}
            for version in ("3.11", "3.12")
        ]
        if not rest:
            return {"value": assets}
        name, _, version = rest
        for asset in assets[-1:] if version == "latest" else assets:
            if asset["name"] == name and version in ("latest", asset["version"]):
                return asset
        raise _Refused(404, f"no version `{version}`", "it has 3.11, 3.12", (), "not_found")


def _dated(answer: Any) -> Any:
    """As the real server: everything with a name says when it was created."""
    if isinstance(answer, dict) and "value" in answer:
        return {**answer, "value": [_dated(row) for row in answer["value"]]}
    if isinstance(answer, dict) and "name" in answer:
        return {**answer, "created_at": answer.get("created_at", CREATED_AT)}
    return answer


def _check(document: dict[str, Any]) -> None:
    for key in document:
        if key not in KNOWN_KEYS:
            raise _Refused(400, f"unknown key `{key}`", "remove it", (key,), "invalid_spec")
    for key in document.get("resources") or {}:
        if key not in KNOWN_RESOURCES:
            hint = "did you mean `instance_count`?"
            at = ("resources", key)
            raise _Refused(400, f"unknown key `{key}`", hint, at, "invalid_spec")
    if "command" not in document:
        raise _Refused(400, "the key `command` is missing", "", ("command",), "invalid_spec")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path)
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--fail", action="store_true")
    parser.add_argument("--shared", action="store_true", help="as one of several")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM")
    parser.add_argument("--tls-port", default="", help="the one that it writes down")
    options = parser.parse_args()
    if options.fail:
        print("something is wrong with the disk", flush=True)
        raise SystemExit(3)
    with open(options.home / "starts", "a") as starts:
        starts.write(f"{os.getpid()}\n")
    time.sleep(0.2)
    server = make_server(State(), 0)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    start_time = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    (options.home / "token").write_text(TOKEN)
    body = {"url": url, "pid": os.getpid(), "start_time": start_time, "version": "0.1.0"}
    (options.home / "server.json").write_text(json.dumps(body))
    if options.tls_port:
        (options.home / "tls-port").write_text(options.tls_port)
    if options.shared:
        (options.home / "servers").mkdir(exist_ok=True)
        (options.home / "servers" / f"{os.getpid()}.json").write_text(json.dumps(body))
    signal.signal(signal.SIGTERM, signal.SIG_IGN if options.deaf else signal.SIG_DFL)
    os.write(options.ready_fd, f"{url}\n".encode())
    os.close(options.ready_fd)
    server.serve_forever()


if __name__ == "__main__":
    main()
