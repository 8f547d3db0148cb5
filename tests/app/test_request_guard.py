"""What the server turns away: by size, by name, by token and by how often."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from fuzz.api_under_fuzz import SHA256, Api, make
from jobs import support
from torchyard.app import application
from torchyard.app.request_guard import LOOPBACK_NAMES, RequestGuard
from torchyard.base.clock import FakeClock
from torchyard.jobs import actions
from torchyard.jobs.attempts import node_reports, report_fields
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces.failures import MOST_FAILURES, WINDOW
from torchyard.workspaces.types import Identity, TokenKind

W = "/v1/workspaces/default"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    made = make(tmp_path_factory.mktemp("home"))
    yield made
    made.parts.services.db.close()


@pytest.fixture
def client(api: Api) -> Iterator[TestClient]:
    made = TestClient(api.app, raise_server_exceptions=False)
    made.headers["Authorization"] = f"Bearer {api.person}"
    yield made
    made.close()


def _refused(answer: Any, status: int, words: str) -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert words in error["message"] and error["hint"]


def test_bodies_are_bounded(client: TestClient, api: Api) -> None:
    large = b'{"name": "' + b"x" * (5 << 20) + b'"}'
    _refused(client.post(f"{W}/jobs", content=large), 413, "larger than 4096 KiB")
    _refused(client.post(f"{W}/jobs", content=iter([large])), 413, "larger than 4096 KiB")
    stranger = client.post(f"{W}/jobs", content=large[:100_000], headers={"Authorization": ""})
    _refused(stranger, 401, "has no token")
    headers = {"Authorization": "", "secret": api.person}
    secret = client.post("/msi/token", content=large[:100_000], headers=headers)
    _refused(secret, 413, "larger than 64 KiB")
    mlflow = client.post("/api/2.0/mlflow/runs/log-batch", content=large)
    assert mlflow.status_code == 413 and mlflow.json()["error_code"]
    worker = {"Authorization": f"Bearer {api.worker}"}
    logs = f"/v1/attempts/{api.names['attempt_id']}/logs?path=a&offset=0"
    assert client.put(logs, content=b"x" * (1 << 20), headers=worker).json() == {"size": 1 << 20}
    _refused(client.put(logs, content=b"x" * (5 << 20), headers=worker), 413, "4096 KiB")


@pytest.mark.parametrize(
    ("method", "of_worker", "path", "limit_bytes"),
    [("PUT", False, f"{W}/snapshots", 32 << 20), ("POST", True, "report", 16 << 20)],
)
def test_larger_bodies_where_they_are_needed(
    client: TestClient, api: Api, method: str, of_worker: bool, path: str, limit_bytes: int
) -> None:
    """The limits are those of docs/guides/security.md."""
    headers = {"Content-Type": "application/json"}
    if of_worker:
        path = f"/v1/attempts/{api.names['attempt_id']}/{path}"
        headers["Authorization"] = f"Bearer {api.worker}"
    for size_bytes, is_refused in ((limit_bytes, False), (limit_bytes + 1, True)):
        body = b"{}".ljust(size_bytes)
        answer = client.request(method, path, content=body, headers=headers)
        assert (answer.status_code == 413) is is_refused, answer.text


def test_a_list_of_120_000_files(client: TestClient) -> None:
    for count, status in ((120_000, 400), (120_001, 413)):
        manifest = json.dumps({"files": [{}] * count})
        answer = client.put(f"{W}/snapshots", content=manifest)
        assert answer.status_code == status, answer.text


def test_a_client_is_told_when_to_ask_a_busy_server_again(client: TestClient, api: Api) -> None:
    spool = api.app.state.body_spool
    taken = spool.disk.free_bytes
    assert spool.disk.take(taken)
    try:
        answer = client.put(f"{W}/snapshots", content=b"{}".ljust(8 << 20))
    finally:
        spool.disk.give(taken)
    assert answer.status_code == 503 and int(answer.headers["Retry-After"]) > 0
    assert "Retry-After" not in client.put(f"{W}/snapshots", content=b"{}".ljust(8 << 20)).headers


def test_uploads_are_of_any_size(client: TestClient, api: Api) -> None:
    worker = {"Authorization": f"Bearer {api.worker}"}
    content = (b"x" * (1 << 20) for _ in range(20))
    path = f"/v1/attempts/{api.names['attempt_id']}/files/outputs/large"
    assert client.put(path, content=content, headers=worker).json()["size_bytes"] == 20 << 20


def test_a_worker_deletes_a_checkpoint_of_its_job(client: TestClient, api: Api) -> None:
    worker = {"Authorization": f"Bearer {api.worker}"}
    base = f"/v1/attempts/{api.names['attempt_id']}/files/outputs"
    for name in ("checkpoints/step-1/a", "checkpoints/step-1/manifest.json", "kept"):
        assert client.put(f"{base}/{name}", content=b"x", headers=worker).status_code == 200
    for _ in range(2):
        response = client.delete(f"{base}/checkpoints/step-1", headers=worker)
        assert (response.status_code, response.json()) == (200, {})
    listing = f"/v1/attempts/{api.names['attempt_id']}/previous-outputs"
    left = [file["path"] for file in client.get(listing, headers=worker).json()["files"]]
    assert "kept" in left and not [path for path in left if path.startswith("checkpoints")]
    outside = client.delete(f"{base}/%2e%2e/%2e%2e/other", headers=worker)
    assert outside.status_code == 400, outside.text
    stranger = client.delete(f"{base}/kept", headers={"Authorization": "Bearer yard_a_x"})
    assert stranger.status_code == 401


def test_a_file_of_a_bundle_is_bounded(client: TestClient) -> None:
    for size in (b"17000000", b"9" * 90):
        _refused(client.post(f"{W}/blobs", content=SHA256.encode() + b" " + size + b"\n"), 413, "")


def test_records_and_events_are_bounded(client: TestClient, api: Api) -> None:
    worker = {"Authorization": f"Bearer {api.worker}"}
    base = f"/v1/attempts/{api.names['attempt_id']}"
    event = {"seq": 0, "at": "2026-01-01T00:00:00Z", "kind": "notice", "body": {"message": "x"}}
    many = {"node": 0, "events": [event] * 1001}
    _refused(client.post(f"{base}/report", json=many, headers=worker), 413, "1001 events")
    many = {"node": 0, "seq": 0, "records": [{}] * 100_001}
    _refused(client.post(f"{base}/history", json=many, headers=worker), 413, "100001 records")


@pytest.mark.parametrize(
    "event",
    [{}, {"seq": "x"}, {"kind": "notice"}, {"at": "never"}, {"seq": 2**70}, {"body": [1]},
     {"body": {"error": "x"}}, {"body": {"error": {"code": 1}}}, {"body": {"exit_code": "x"}},
     {"body": {"exit_code": 2**40}}, {"at": "0001-01-01T00:00:00+14:00"}],
)  # fmt: skip
def test_invalid_events_are_refused(event: Any, client: TestClient, api: Api) -> None:
    complete = {"seq": 0, "at": "2026-01-01T00:00:00Z", "kind": "node_exited", **event}
    body = {"node": 0, "events": [complete if event else {}]}
    worker = {"Authorization": f"Bearer {api.worker}"}
    url = f"/v1/attempts/{api.names['attempt_id']}/report"
    answer = client.post(url, json=body, headers=worker)
    assert answer.status_code == (200 if event == {"kind": "notice"} else 400), answer.text


@pytest.mark.parametrize("depth", [200, 5_000, 100_000])
def test_deep_nesting_is_not_a_server_error(depth: int, client: TestClient) -> None:
    deep = "[" * depth + "]" * depth
    job = f'{{"name": "deep", "command": "x", "environment": {{"conda_file": {deep}}}}}'
    for method, path, body in (
        ("POST", f"{W}/jobs", job),
        ("POST", f"{W}/jobs/validate", job),
        ("PUT", f"{W}/datastores/a", f'{{"type": {deep}}}'),
        ("PUT", f"{W}/computes/a", f'{{"type": {deep}}}'),
        ("POST", f"{W}/data", f'{{"name": {deep}}}'),
        ("POST", "/api/2.0/mlflow/runs/create", f'{{"experiment_id": {deep}}}'),
    ):
        answer = client.request(method, path, content=body.encode())
        assert answer.status_code == 400, (path, answer.text[:300])
    assert client.get(f"{W}/jobs").status_code == 200


@pytest.mark.parametrize("text", ["\\ud800", "a\\udfffb", "\\u0000", "x\\\\\\u0000"])
def test_lone_surrogates_and_nul_are_refused(text: str, client: TestClient) -> None:
    job = f'{{"command": "x", "environment": "python", "description": "{text}"}}'
    _refused(client.post(f"{W}/jobs", content=job.encode()), 400, "the request's body contains")


def test_whole_characters_and_escaped_text_pass(client: TestClient) -> None:
    job = {"command": "x", "environment": "python", "description": "🔑 \\u0000 \\ud800"}
    answer = client.post(f"{W}/jobs", json=job)
    assert answer.json()["description"] == job["description"]


def test_numbers_that_no_database_keeps_are_refused(client: TestClient) -> None:
    assert client.get(f"{W}/jobs?before={2**70}").status_code == 400
    assert client.get(f"{W}/jobs/ended/stream?after={2**70}").status_code == 400
    assert client.get(f"{W}/jobs/ended/stream?offsets=%7B%22a%22:-1%7D").status_code == 400
    document = {"type": "sftp", "host": "h", "port": "many"}
    assert client.put(f"{W}/datastores/a", json=document).status_code == 400


def test_a_blob_is_not_accepted_as_a_snapshot(client: TestClient) -> None:
    assert client.get(f"{W}/snapshots/{SHA256}").status_code == 400
    job = {"command": "x", "environment": "python", "code": f"snapshot:{SHA256}"}
    assert client.post(f"{W}/jobs", json=job).status_code == 400


@pytest.mark.parametrize("paths", [["a", "a"], ["a", "a/b"], ["a/b/c", "a/b"], ["a", "./a"]])
def test_a_snapshot_has_each_path_once(paths: list[str], client: TestClient) -> None:
    files = [{"path": path, "sha256": SHA256, "size": 5} for path in paths]
    _refused(client.put(f"{W}/snapshots", json={"files": files}), 400, "two entries of one path")


def test_headers_are_bounded(client: TestClient) -> None:
    _refused(client.get("/health", headers={"X-A": "x" * 70_000}), 431, "headers")
    half = {"X-A": "x" * 35_000}
    assert client.get("/health", headers=half).status_code == 200
    _refused(client.get(f"/health?a={'x' * 35_000}", headers=half), 431, "headers")
    _refused(client.get("/health?a=%00"), 400, "NUL")


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8765", 200), ("localhost", 200), ("LOCALHOST:1", 200), ("[::1]:8765", 200),
     ("evil.example", 403), ("127.0.0.1.evil.example", 403), ("localhost.evil.example:8765", 403),
     ("evil.example:127", 403), ("", 403)],
)  # fmt: skip
def test_a_web_page_can_not_borrow_the_server(host: str, status: int, api: Api) -> None:
    face = application.create_app(api.parts, LOOPBACK_NAMES)
    client = TestClient(face)
    answer = client.get("/health", headers={"Host": host})
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers
    client.close()


def test_a_page_of_another_origin_is_not_allowed(client: TestClient) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answer = client.options(f"{W}/jobs", headers=headers)
    assert answer.status_code >= 400
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_scopes_other_than_http_pass() -> None:
    import asyncio

    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    asyncio.run(RequestGuard(app)({"type": "lifespan"}, None, None))  # type: ignore[arg-type]
    assert seen == ["lifespan"]


# Tokens


def _worker_routes(api: Api) -> list[tuple[str, str]]:
    """Every route of workers, with names that exist."""
    routes = []
    for path, methods in api.app.openapi()["paths"].items():
        if path.startswith("/v1/attempts/"):
            for key, value in {**api.names, "name": "data"}.items():
                path = path.replace(f"{{{key}}}", value)
            routes += [(method.upper(), path) for method in methods]
    assert len(routes) >= 10
    return routes


def _ask(client: TestClient, method: str, path: str, token: str) -> int:
    body: dict[str, Any] = {"node": 0, "events": [], "seq": 0, "records": [], "address": "a"}
    headers = {"Authorization": f"Bearer {token}"} if token else {"Authorization": ""}
    options: dict[str, Any] = {"json": body} if method in ("POST", "PUT") else {}
    status: int = client.request(method, path, headers=headers, **options).status_code
    return status


def test_workers_know_their_server_by_every_answer(client: TestClient, api: Api) -> None:
    server_id = api.parts.services.for_nodes.server_id
    for path, token in (("control", api.worker), ("blobs/none", api.worker), ("control", "wrong")):
        answer = client.get(
            f"/v1/attempts/{api.names['attempt_id']}/{path}",
            headers={"Authorization": f"Bearer {token}"},
        )
        assert answer.headers["X-Torchyard-Server"] == server_id, answer.text
    assert "X-Torchyard-Server" not in client.get(f"{W}/jobs").headers


@pytest.mark.slow
def test_an_attempts_token_is_good_for_it_alone_and_until_its_end(tmp_path: Path) -> None:
    api = make(tmp_path)
    client = TestClient(api.app, raise_server_exceptions=False)
    services = api.parts.services
    support.add_owners(services.db, services.clock, "me")
    now = services.clock.now()
    strangers = {"none": "", "person": api.person, "wrong": "yard_a_" + "x" * 43}
    for kind, subject in ((TokenKind.ATTEMPT, "another"), (TokenKind.RUN, "default/running")):
        strangers[kind.name] = workspaces.new_token(kind)
        identity = Identity("me", kind, "default", subject)
        with services.db.write() as connection:
            workspaces.keep_token(connection, strangers[kind.name], identity, now)
    for method, path in _worker_routes(api):
        for name, token in strangers.items():
            assert _ask(client, method, path, token) == 401, (name, method, path)
        assert _ask(client, method, path, api.worker) not in (401, 403), (method, path)
    attempt_id = api.names["attempt_id"]
    actions.cancel(services, "default", "running")
    error = {"code": "canceled", "message": "canceled"}
    events = [
        {"seq": 0, "at": "2026-01-01T00:00:00Z", "kind": "node_exited",
         "body": {"exit_code": 143, "error": error}},
    ]  # fmt: skip
    node_events = report_fields.read_events(0, events)
    node_reports.receive(services, attempt_id, 0, node_events)
    assert actions.get(services, "default", "running").status.ended
    for method, path in _worker_routes(api):
        assert _ask(client, method, path, api.worker) == 401, (method, path)
    client.close()
    services.db.close()


def test_a_runs_token_opens_its_workspace_alone(client: TestClient, api: Api) -> None:
    assert client.post("/v1/workspaces", json={"name": "vision"}).status_code == 201
    token = workspaces.new_token(TokenKind.RUN)
    services = api.parts.services
    support.add_owners(services.db, services.clock, "me")
    identity = Identity("me", TokenKind.RUN, "default", "default/running")
    with services.db.write() as connection:
        workspaces.keep_token(connection, token, identity, services.clock.now())
    assert _ask(client, "GET", f"{W}/jobs/running", token) == 200
    for path, methods in api.app.openapi()["paths"].items():
        if "{workspace}" not in path:
            continue
        there = path.replace("{workspace}", "vision").replace("{", "").replace("}", "")
        for method in methods:
            assert _ask(client, method.upper(), there, token) == 403, (method, path)
    assert _ask(client, "POST", "/v1/workspaces", token) == 403
    assert _ask(client, "DELETE", "/v1/workspaces/default", token) == 403
    listed = client.get("/v1/workspaces", headers={"Authorization": f"Bearer {token}"}).json()
    assert [workspace["name"] for workspace in listed["value"]] == ["default"]


def test_tokens_end_and_are_kept_as_hashes(tmp_path: Path, clock: FakeClock) -> None:
    parts = application.build(tmp_path, "http://127.0.0.1:1", {}, clock=clock)
    client = TestClient(application.create_app(parts))
    token = workspaces.new_token(TokenKind.PERSON)
    random = token.removeprefix(TokenKind.PERSON.value)
    assert len(base64.urlsafe_b64decode(random + "=")) == 256 // 8
    with parts.services.db.write() as connection:
        until = clock.now() + timedelta(hours=1)
        workspaces.keep_token(
            connection, token, Identity("me", TokenKind.PERSON), clock.now(), until
        )
    assert _ask(client, "GET", "/v1/whoami", token) == 200
    clock.advance(3599)
    assert _ask(client, "GET", "/v1/whoami", token) == 200
    clock.advance(1)
    assert _ask(client, "GET", "/v1/whoami", token) == 401
    client.close()
    parts.services.db.close()
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("torchyard.db*"))
    assert token.encode() not in stored and token[7:].encode() not in stored


def test_wrong_tokens_are_bounded_and_harm_nobody_else(tmp_path: Path, clock: FakeClock) -> None:
    parts = application.build(tmp_path, "http://127.0.0.1:1", {}, clock=clock)
    client = TestClient(application.create_app(parts))
    good, unused = (workspaces.new_token(TokenKind.PERSON) for _ in range(2))
    with parts.services.db.write() as connection:
        for token in (good, unused):
            workspaces.keep_token(connection, token, Identity("me", TokenKind.PERSON), clock.now())
    assert _ask(client, "GET", "/v1/whoami", good) == 200
    for number in range(MOST_FAILURES):
        assert _ask(client, "GET", "/v1/whoami", f"yard_p_{number}") == 401
    answer = client.get("/v1/whoami", headers={"Authorization": "Bearer yard_p_more"})
    _refused(answer, 429, "too many requests with a wrong token")
    assert answer.json()["error"]["code"] == "too_many_requests"
    assert _ask(client, "GET", "/v1/whoami", good) == 200
    # So is one that the server has not seen since it started.
    assert _ask(client, "GET", "/v1/whoami", unused) == 200
    # No route is looked for; what a server is watched by is answered to everyone.
    assert _ask(client, "GET", "/v1/of/no/route", "yard_p_more") == 429
    assert _ask(client, "GET", "/v1/of/no/route", good) == 404
    assert _ask(client, "GET", "/health", "yard_p_more") == 200
    shape = client.get("/api/2.0/mlflow/x", headers={"Authorization": "Bearer yard_p_more"})
    assert (shape.status_code, "error_code" in shape.json()) == (429, True)
    clock.advance(WINDOW.total_seconds())
    assert _ask(client, "GET", "/v1/whoami", "yard_p_later") == 401
    client.close()
    parts.services.db.close()


def test_a_file_and_a_folder_of_one_path_are_a_conflict(client: TestClient, api: Api) -> None:
    worker = {"Authorization": f"Bearer {api.worker}"}
    output = f"/v1/attempts/{api.names['attempt_id']}/files/way"
    run = "/api/2.0/mlflow-artifacts/artifacts/1/running/artifacts/way"
    logs = f"/v1/attempts/{api.names['attempt_id']}/logs?offset=0&path=way"
    assert client.put(f"{output}/a", content=b"x", headers=worker).status_code == 200
    assert client.put(f"{run}/a", content=b"x").status_code == 200
    assert client.put(f"{logs}/a", content=b"x", headers=worker).status_code == 200
    for path in (f"{output}/a/b", output, f"{logs}/a/b"):
        assert client.put(path, content=b"x", headers=worker).status_code == 409, path
    for path in (f"{run}/a/b", run):
        assert client.put(path, content=b"x").status_code == 409, path
    assert client.delete(f"{run}/a/b").status_code == 200


def test_a_refusal_is_json(client: TestClient) -> None:
    answer = client.get("/health", headers={"X-A": "x" * 70_000})
    assert json.loads(answer.content)["error"]["code"] == "limit_exceeded"
