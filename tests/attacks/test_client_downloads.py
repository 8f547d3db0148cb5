"""A hostile server, and the real client that writes to the user's disk."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from attacks.paths import NAMES, tree
from torchyard.base.errors import InvalidInput, TorchyardError
from torchyard.base.http import Transport
from torchyard.base.settings import Settings
from torchyard.client import downloads
from torchyard.client.jobs import Jobs
from torchyard.client.models import Models
from torchyard.client.snapshots.snapshots import Snapshots

CONTENT = b"ATTACK"
W = "/v1/workspaces/default"


class Hostile:
    """Names files as it likes; every file has the same content. `frames` are its bundles."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.labels: list[str] = []
        self.frames = b""

    def answer(self, path: str) -> bytes:
        file = {"size_bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}
        if path.endswith("/bundle"):
            return self.frames
        if path.endswith("/outputs"):
            rows = [{"output": label, "path": "x.txt", **file} for label in self.labels]
            return json.dumps({"value": rows}).encode()
        if path.endswith("/files"):
            return json.dumps({"value": [{"path": name, **file} for name in self.names]}).encode()
        if "/snapshots/" in path:
            files = [{"path": name, "mode": "0755", "size": 6, **file} for name in self.names]
            return json.dumps({"id": "1", "files": files}).encode()
        if path.endswith("/jobs/j"):
            return json.dumps({"name": "j", "spec": {"code": "snapshot:" + "0" * 64}}).encode()
        return CONTENT


@contextmanager
def _running(hostile: Hostile) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = hostile.answer(self.path.partition("?")[0])
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


@pytest.fixture
def hostile() -> Hostile:
    return Hostile()


@pytest.fixture
def transport(hostile: Hostile) -> Iterator[Transport]:
    with _running(hostile) as url:
        made = Transport(url, "t", timeout_s=10)
        yield made
        made.close()


def _verbs(transport: Transport, home: Path) -> dict[str, Any]:
    snapshots = Snapshots(transport, W, Settings(home))
    jobs = Jobs(transport, W, snapshots)
    models = Models(transport, W, snapshots)
    return {
        "job download": lambda folder: jobs.download("j", folder),
        "job download --all": lambda folder: jobs.download("j", folder, everything=True),
        "job restore-code": lambda folder: jobs.restore_code("j", folder, overwrite=True),
        "model download": lambda folder: models.download("m", "1", folder),
    }


@pytest.mark.slow
@pytest.mark.fuzz
def test_no_name_of_a_server_leads_out_of_the_users_folder(
    hostile: Hostile, transport: Transport, tmp_path: Path
) -> None:
    inside = tmp_path / "a" / "b" / "mine"
    inside.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    outside = tree(tmp_path, but=inside)
    tried = refused = 0
    for verb, run in _verbs(transport, tmp_path / "a" / "home").items():
        for name in NAMES:
            hostile.names, hostile.labels = [name], [name]
            tried += 1
            try:
                run(inside)
            except (TorchyardError, OSError, ValueError):
                refused += 1
            assert tree(tmp_path, but=inside) == outside, (verb, name)
    print(f"{tried} attacks on the user's folder: 0 got out, {refused} were refused")
    assert not [path for path in inside.rglob("*") if path.is_symlink()]


def test_a_link_that_stands_there_is_not_followed(
    hostile: Hostile, transport: Transport, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for part in ("artifacts", "named-outputs"):
        (tmp_path / "mine" / part).mkdir(parents=True)
        (tmp_path / "mine" / part / "link").symlink_to(outside)
    (tmp_path / "mine" / "link").symlink_to(outside)
    (tmp_path / "mine" / "m").symlink_to(tmp_path / "mine" / "artifacts")
    hostile.names, hostile.labels = ["link/x.txt"], ["link"]
    for run in _verbs(transport, tmp_path / "home").values():
        with pytest.raises(InvalidInput, match="link"):
            run(tmp_path / "mine")
    assert list(outside.iterdir()) == []


def test_no_snapshot_brings_hooks(hostile: Hostile, transport: Transport, tmp_path: Path) -> None:
    restore = _verbs(transport, tmp_path / "home")["job restore-code"]
    for name in (".git/hooks/post-checkout", "sub/.GIT/config", "./.git/x", "GIT~1/hooks/x"):
        hostile.names = ["a.py", name]
        with pytest.raises(InvalidInput, match="not code"):
            restore(tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    "frames",
    [b"", b"-5\n" + b"x" * 100, b"99999999999999999999\nx", b"9" * 100_000, b"6\nATT", b"x\n",
     b"6\nOTHERS" * 2],
)  # fmt: skip
def test_a_broken_bundle_harms_nobody(
    frames: bytes, hostile: Hostile, transport: Transport, tmp_path: Path
) -> None:
    hostile.names = [f"f{number}" for number in range(20)]
    hostile.frames = frames
    jobs = _verbs(transport, tmp_path / "home")["job download"]
    written = jobs(tmp_path / "mine")
    # What the bundle does not hold is asked for file by file.
    assert [path.read_bytes() for path in written][2:] == [CONTENT] * 18
    assert not list((tmp_path / "mine").rglob("*.part"))


@pytest.mark.parametrize(
    "name", ["..\\x", "a\\..\\..\\x", "C:x", "C:\\x", "a:stream", "CON", "nul.txt", "x. ", "COM1"]
)
def test_windows_has_more_ways_out(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads.below(tmp_path, name)
    monkeypatch.setattr(downloads, "_on_windows", lambda: True)
    with pytest.raises(InvalidInput, match="leads out"):
        downloads.below(tmp_path, name)
