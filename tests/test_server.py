"""The whole app in-process, over HTTP as clients see it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from eventually import eventually
from jobs.support import Worker, attempt_of
from torchyard import server, server_options
from torchyard.app import application
from torchyard.base.errors import InvalidInput
from torchyard.base.settings import Settings
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts

JOBS = "/v1/workspaces/default/jobs"
OPEN = {
    "/health": {200},
    "/livez": {200, 503},
    "/readyz": {200, 503},
    # What TLS shows anyway: a machine that joins compares it with its invitation.
    "/v1/server/certificate": {200},
    # Who signs in has no token yet; this server offers no provider.
    "/v1/sign-in": {200},
    "/v1/sign-in/start": {404},
    "/v1/sign-in/callback": {404},
    "/v1/sign-in/token": {404},
    "/v1/sign-in/page": {404},
    # A code or a token must be in the body; only the page itself signs out.
    "/v1/sign-in/session": {400, 403},
}


@pytest.fixture
def parts(tmp_path: Path, database_url: str) -> Iterator[application.Parts]:
    made = application.build(
        tmp_path,
        "http://127.0.0.1:1",
        os.environ,
        executor=FakeExecutor(),
        database=database_url,
    )
    server.ensure_token(made, Settings(tmp_path).token_file)
    yield made
    made.services.db.close()


@pytest.fixture
def client(parts: application.Parts, tmp_path: Path) -> Iterator[TestClient]:
    token = Settings(tmp_path).token_file.read_text().strip()
    with TestClient(application.create_app(parts), raise_server_exceptions=False) as made:
        made.headers["Authorization"] = f"Bearer {token}"
        yield made


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _create(client: TestClient, **changes: Any) -> dict[str, Any]:
    answer = client.post(JOBS, json={"command": "true", "environment": "python", **changes})
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


def _prepare(parts: application.Parts) -> None:
    """Build the environment by hand and let the scheduler claim."""
    spec = parts.services.environments.resolver.resolve("python")
    parts.services.environments.builds.run(spec)


def test_nothing_but_what_is_listed_answers_without_a_token(parts: application.Parts) -> None:
    face = application.create_app(parts)
    seen = 0
    for path, methods in face.openapi()["paths"].items():
        # Too many wrong tokens from one address are refused before the route is looked for.
        address = (f"192.0.2.{seen % 250}", 1)
        bare = TestClient(face, raise_server_exceptions=False, client=address)
        url = path.replace("{", "").replace("}", "")
        for method in methods:
            for headers in ({}, {"Authorization": "Bearer yard_p_wrong"}):
                answer = bare.request(method, url, headers=headers)
                assert answer.status_code in OPEN.get(path, {401}), (method, path, answer.text)
            seen += 1
    assert seen > 35


def test_the_owners_token_is_only_the_owners(parts: application.Parts, tmp_path: Path) -> None:
    file = Settings(tmp_path).token_file
    before = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    server.ensure_token(parts, file)
    assert file.read_text() == before
    with parts.services.db.read() as connection:
        stored = connection.exec_driver_sql("SELECT * FROM tokens").all()
    assert before.strip() not in str(stored)


def test_errors_have_one_shape(client: TestClient) -> None:
    unknown = client.get("/v1/workspaces/default/jobs/none")
    assert unknown.status_code == 404
    assert unknown.json()["error"]["code"] == "job_not_found"
    assert client.get("/v1/workspaces/other/jobs").json()["error"]["code"] == "not_found"
    assert client.get("/nothing/here").json()["error"]["code"] == "not_found"
    assert client.get(f"{JOBS}?limit=x").status_code == 400
    wrong = client.post(JOBS, json={"command": "x", "environment": "python", "envirnment": 1})
    assert wrong.json()["error"] == {
        "code": "invalid_spec",
        "message": "unknown key `envirnment`",
        "hint": "did you mean `environment`?",
        "at": ["envirnment"],
    }
    assert client.post(JOBS, json=[1]).status_code == 400
    assert client.post(JOBS, content=b"{").status_code == 400


def test_a_folder_comes_in_by_content(client: TestClient) -> None:
    files = {"a.py": b"print(1)\n", "b/c.bin": bytes(range(256)) * 100, "empty": b""}
    base = "/v1/workspaces/default"
    hashes = [_sha(content) for content in files.values()]
    missing = client.post(f"{base}/blobs/missing", json={"sha256": hashes}).json()["missing"]
    assert missing == hashes
    manifest = {
        "files": [
            {"path": path, "sha256": _sha(content), "size": len(content), "mode": "0644"}
            for path, content in files.items()
        ]
    }
    early = client.put(f"{base}/snapshots", json=manifest)
    assert (early.status_code, early.json()["error"]["code"]) == (400, "blobs_missing")
    bundle = b"".join(
        f"{_sha(content)} {len(content)}\n".encode() + content for content in files.values()
    )
    assert client.post(f"{base}/blobs", content=bundle).json() == {"stored": 3}
    snapshot = client.put(f"{base}/snapshots", json=manifest).json()["id"]
    _create(client, code=f"snapshot:{snapshot}")


@pytest.mark.parametrize(
    "bundle",
    [b"x", b"x" * 200, b"abc 5\nhello", _sha(b"hello").encode() + b" 5\nhel",
     _sha(b"hello").encode() + b" 5\nhallo"],
)  # fmt: skip
def test_a_broken_bundle_is_refused(client: TestClient, bundle: bytes) -> None:
    answer = client.post("/v1/workspaces/default/blobs", content=bundle)
    assert answer.status_code == 400
    body = {"sha256": [_sha(b"hello")]}
    left = client.post("/v1/workspaces/default/blobs/missing", json=body).json()
    assert left == {"missing": [_sha(b"hello")]}


def test_a_job_over_http(client: TestClient, parts: application.Parts) -> None:
    _prepare(parts)
    name = _create(client, name="mine")["name"]
    services = parts.services
    _until(lambda: client.get(f"{JOBS}/{name}").json()["status"] == "Starting")
    job = actions.get(services, "default", name)
    worker = Worker(services, attempt_of(services, job))
    worker.tell("ranks_started", ranks=[])
    services.logs.append("default", name, 1, "user_logs/std_log.txt", 0, b"one\n\xfftwo\n")
    services.logs.append("default", name, 1, "user_logs/std_log.txt", 9, b"three\n")
    worker.tell("rank_exited", rank=0, local_rank=0, exit_code=3, signal=None)
    worker.tell("node_finalizing")
    error = {"code": "rank_failed", "message": "rank 0 exited with code 3", "hint": "see the log"}
    worker.tell("node_exited", exit_code=3, error=error)
    shown = client.get(f"{JOBS}/{name}").json()
    assert (shown["status"], shown["exit_code"], shown["error"]) == ("Failed", 3, error)
    frames = _frames(client.get(f"{JOBS}/{name}/stream").content)
    assert b"".join(content for _, content in frames) == b"one\n\xfftwo\nthree\n"
    assert frames[-1][0]["kind"] == "end" and frames[-1][0]["job"]["status"] == "Failed"
    seqs = [body["seq"] for body, _ in frames if "seq" in body]
    assert seqs == list(range(1, len(seqs) + 1))
    cursor = {"after": seqs[-1], "offsets": json.dumps({"1/user_logs/std_log.txt": 10})}
    rest = _frames(client.get(f"{JOBS}/{name}/stream", params=cursor).content)
    assert [(body["kind"], content) for body, content in rest] == [("log", b"hree\n"), ("end", b"")]
    listed = client.get(f"{JOBS}/{name}/files").json()["value"]
    assert listed == [{"path": "user_logs/std_log.txt", "size_bytes": 15}]
    got = client.get(f"{JOBS}/{name}/files/user_logs/std_log.txt", headers={"Range": "bytes=4-7"})
    assert (got.status_code, got.content) == (206, b"\xfftwo")


def test_a_worker_delivers_files_and_models_are_made_of_them(
    client: TestClient, parts: application.Parts
) -> None:
    _prepare(parts)
    name = _create(client, outputs={"best": None})["name"]
    _until(lambda: client.get(f"{JOBS}/{name}").json()["status"] == "Starting")
    executor: FakeExecutor = parts.services.engines.local  # type: ignore[assignment]
    _until(lambda: bool(executor.launches))
    plan = executor.launches[0]
    attempt = f"/v1/attempts/{plan.attempt_id}"
    worker = {"Authorization": f"Bearer {plan.report_token}"}
    sent = client.put(f"{attempt}/files/outputs/model.pt", content=b"weights", headers=worker)
    assert sent.json() == {"sha256": _sha(b"weights"), "size_bytes": 7}
    assert client.put(
        f"{attempt}/files/..%2F..%2Fescape", content=b"x", headers=worker
    ).status_code in (400, 404)
    client.put(f"{attempt}/outputs/best/a/b.txt", content=b"named", headers=worker)
    other = client.put(f"{attempt}/outputs/none/x", content=b"x", headers=worker)
    assert other.status_code == 404
    assert client.get(f"{JOBS}/{name}/outputs/best/a/b.txt").content == b"named"
    # The worker's token opens no other door, and a person's does not open the worker's.
    assert client.get(f"{JOBS}/{name}", headers=worker).status_code == 403
    assert client.post(f"{attempt}/report", json={"node": 0, "events": []}).status_code == 401
    path = f"azureml://jobs/{name}/outputs/artifacts/paths/outputs/model.pt"
    models = "/v1/workspaces/default/models"
    for version in (1, 2):
        made = client.post(models, json={"name": "m", "path": path}).json()
        assert (made["version"], made["job"]) == (version, name)
    assert made["files"] == [{"path": "model.pt", "sha256": _sha(b"weights"), "size_bytes": 7}]
    got = client.get(f"{models}/m/versions/latest/files/model.pt")
    assert got.content == b"weights"
    assert client.get(f"{JOBS}/{name}").json()["models"][0] == {"name": "m", "version": 1}
    response = client.post(models, json={"name": "m", "path": path + "x"})
    assert response.status_code == 404
    assert client.get(models).json()["value"][0]["version"] == 2


def test_compute_over_http(client: TestClient) -> None:
    base = "/v1/workspaces/default/computes"
    assert [item["name"] for item in client.get(base).json()["value"]] == ["local"]
    made = client.put(f"{base}/gpu-cluster", json={"max_instances": 2, "type": "amlcompute"})
    assert made.json()["max_instances"] == 2
    assert made.json()["idle_time_before_scale_down"] == 120
    for wrong in ({"max_instance": 2}, {"max_instances": 0}, {"min_instances": 5}, {"tier": "x"}):
        assert client.put(f"{base}/bad", json=wrong).status_code == 400
    assert client.put(f"{base}/1x", json={}).json()["error"]["at"] == ["name"]
    assert client.delete(f"{base}/gpu-cluster").status_code == 200
    assert client.delete(f"{base}/gpu-cluster").status_code == 404
    assert client.delete(f"{base}/local").status_code == 409


def test_openapi_describes_the_native_interface(client: TestClient) -> None:
    described = client.get("/openapi.json").json()
    assert "/v1/workspaces/{workspace}/jobs/{name}/stream" in described["paths"]


def test_the_server_says_which_limits_of_jobs_hold(client: TestClient) -> None:
    limits = client.get("/v1/server/limits").json()
    assert set(limits) == {"cpu", "memory", "pids", "network", "network_reason"}
    assert limits["network"] is (limits["network_reason"] == "")


def _frames(content: bytes) -> list[tuple[dict[str, Any], bytes]]:
    frames = []
    while content:
        line, _, content = content.partition(b"\n")
        body = json.loads(line)
        size = body.get("size", 0) if body["kind"] in ("log", "build") else 0
        frames.append((body, content[:size]))
        content = content[size:]
    return frames


def _until(true: Any) -> None:

    eventually(true, "what the server is to come to")


def test_many_small_files_come_in_one_answer(client: TestClient, parts: application.Parts) -> None:
    _prepare(parts)
    name = _create(client)["name"]
    job = actions.get(parts.services, "default", name)
    files = {"outputs/a.txt": b"a\n", "outputs/ü b.bin": bytes(range(256)), "outputs/empty": b""}
    for path, content in files.items():
        with artifacts.writing(parts.services.datastores, job, path) as writing:
            writing.write(content)
    sources = [f"jobs/{name}/files/{quote(path)}" for path in files]
    answer = client.post("/v1/workspaces/default/bundle", json={"sources": sources})
    expected = b"".join(b"%d\n" % len(content) + content for content in files.values())
    assert (answer.status_code, answer.content) == (200, expected)
    for wrong, status in (
        ([*sources, f"jobs/{name}/files/outputs/none"], 404),
        (["jobs/other/files/x"], 404),
        ([f"jobs/{name}/files/../../escape"], 400),
        ([f"jobs/{name}"], 400),
        (["models/m/versions/1/files/x"], 404),
        (sources * 400, 413),
    ):
        refused = client.post("/v1/workspaces/default/bundle", json={"sources": wrong})
        assert refused.status_code == status, refused.text


def test_options_that_are_wrong_are_refused_in_two_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments, message in (
        (["--port", "abc"], "argument --port: invalid int value: 'abc'"),
        (["--nope"], "unrecognized arguments: --nope"),
    ):
        with pytest.raises(SystemExit) as ended:
            server_options.parser().parse_args(arguments)
        assert ended.value.code == 2
        assert capsys.readouterr().err == f"error: {message}\nhint: see `yard-server --help`\n"


def test_a_folder_for_wheels_has_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = server_options.parser().parse_args(["--wheels", str(tmp_path / "absent")])
    with pytest.raises(InvalidInput, match="where wheels are to be kept, is not a folder"):
        server_options.read(arguments)
    monkeypatch.setenv("TORCHYARD_WHEELS", str(tmp_path))
    assert server_options.read(server_options.parser().parse_args([])).wheels == tmp_path
