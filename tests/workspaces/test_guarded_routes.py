"""Permission first, then the body, then the endpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from torchyard.base.bodies import request_bodies
from workspaces.served import HERE, MLFLOW, Served, http_scope, served

ONE_DATABASE = True


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    with served(home, f"sqlite:///{home}/torchyard.db") as made:
        yield made


def answer_to_headers(
    site: Served, method: str, path: str, token: str, content_length: int
) -> tuple[int, dict[str, Any]]:
    """The status and JSON that are sent while the client withholds the body it announced."""
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(3600)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-length", str(content_length).encode())]
    if token:
        headers.append((b"authorization", f"Bearer {token}".encode()))
    scope = http_scope(method, path, headers)
    asyncio.run(asyncio.wait_for(site.client.app(scope, receive, send), 60))
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], json.loads(body)


WRITES = [
    ("POST", f"{HERE}/jobs"),
    ("PUT", f"{HERE}/snapshots"),
    ("PUT", f"{HERE}/blobs/{'0' * 64}"),
    ("PUT", f"{HERE}/computes/gpu"),
    ("POST", "/v1/users"),
]


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_a_bad_token_is_refused_before_the_body_is_sent(
    site: Served, method: str, path: str
) -> None:
    for token in ("", "yard_p_wrong"):
        status, body = answer_to_headers(site, method, path, token, 1000)
        assert status == 401, body
        assert body["error"]["hint"]


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_a_missing_permission_is_refused_before_the_body_is_sent(
    site: Served, method: str, path: str
) -> None:
    status, body = answer_to_headers(site, method, path, site.tokens["rita"], 1000)
    assert status == 403, body
    assert body["error"]["message"].startswith(("`rita` is a reader", "`rita` has no role"))


def test_a_workers_route_refuses_a_person_before_the_body_is_sent(site: Served) -> None:
    for path in ("report", "logs", "files/a"):
        method = "POST" if path == "report" else "PUT"
        path = f"/v1/attempts/none/{path}"
        status, _ = answer_to_headers(site, method, path, site.tokens["olga"], 1000)
        assert status == 401


@pytest.mark.parametrize(
    ("method", "path", "limit_bytes"),
    [
        ("POST", f"{HERE}/jobs", request_bodies.DEFAULT_LIMIT_BYTES),
        ("PUT", f"{HERE}/snapshots", 32 << 20),
        ("POST", f"{MLFLOW}/runs/search", request_bodies.DEFAULT_LIMIT_BYTES),
    ],
)
def test_a_body_over_the_limit_is_refused_before_it_is_sent(
    site: Served, method: str, path: str, limit_bytes: int
) -> None:
    status, body = answer_to_headers(site, method, path, site.tokens["dan"], limit_bytes + 1)
    assert status == 413
    assert f"larger than {limit_bytes >> 10} KiB" in str(body)


def test_bodies_without_a_token_are_small(site: Served) -> None:
    assert answer_to_headers(site, "POST", "/msi/token", "", (64 << 10) + 1)[0] == 401
    headers = {"secret": site.tokens["home"]}
    refused = site.client.post("/msi/token", content=b"x" * ((64 << 10) + 1), headers=headers)
    assert refused.status_code == 413
    assert "larger than 64 KiB" in refused.text


def test_an_unknown_path_and_a_wrong_method_need_no_token(site: Served) -> None:
    assert answer_to_headers(site, "POST", "/v1/nothing", "", 1000)[0] == 404
    assert answer_to_headers(site, "POST", "/health", "", 1000)[0] == 405


def test_a_refused_request_leaves_a_line(site: Served) -> None:
    answer_to_headers(site, "PUT", f"{HERE}/computes/audited", site.tokens["rita"], 1000)
    answer_to_headers(site, "PUT", f"{HERE}/computes/strange", "yard_p_unknown", 1000)
    answer_to_headers(site, "POST", f"{HERE}/environments", site.tokens["dan"], 1 << 30)
    lines = {line["path"]: line for line in site.ok("home", "GET", "/v1/audit")["value"]}
    refused = lines[f"{HERE}/computes/audited"]
    assert (refused["user"], refused["did"], refused["outcome"]) == ("rita", "compute", "refused")
    stranger = lines[f"{HERE}/computes/strange"]
    assert (stranger["user"], stranger["did"]) == ("", "compute")
    too_large = lines[f"{HERE}/environments"]
    assert (too_large["status"], too_large["outcome"]) == (413, "refused")
