"""Artifacts uploaded in parts, stored outside runs, downloaded; paths that leave their folder."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio.to_thread
import httpx2
import pytest

from mlflow.mlflow_server import Server

_BASE = "/api/2.0/mlflow-artifacts"


def post(server: Server, path: str, /, expect: int = 200, **fields: Any) -> Any:
    response = server.request("POST", f"{_BASE}/mpu/{path}", json=fields)
    assert response.status_code == expect, response.text
    return response.json()


@pytest.fixture
def root(server: Server) -> str:
    run_id = server.new_run()
    uri: str = server.get("runs/get", run_id=run_id)["run"]["info"]["artifact_uri"]
    return uri.removeprefix("mlflow-artifacts:/")


def upload_parts(
    server: Server, upload: dict[str, Any], content: list[bytes]
) -> list[dict[str, Any]]:
    parts = []
    for credential, part in zip(upload["credentials"], content, strict=True):
        response = server.request("PUT", credential["url"], content=part, token="yard_p_ada")
        assert response.status_code == 200, response.text
        assert credential["headers"] == {"Authorization": "Bearer yard_p_ada"}
        parts.append({"part_number": credential["part_number"], "etag": response.headers["etag"]})
    return parts


def test_a_large_file_is_uploaded_in_parts(server: Server, root: str, tmp_path: Path) -> None:
    content = [os.urandom(70_000), os.urandom(70_000), b"end"]
    upload = post(server, f"create/{root}/model", path="/far/away/weights ü.bin", num_parts=3)
    parts = upload_parts(server, upload, content)
    assert server.request("GET", f"{_BASE}/artifacts/{root}/model/weights ü.bin").status_code == 404
    completion = {"path": "/far/away/weights ü.bin", "upload_id": upload["upload_id"]}
    post(
        server,
        f"complete/{root}/model",
        expect=400,
        **completion,
        parts=[*parts, {"part_number": 4}],
    )
    post(server, f"complete/{root}/model", **completion, parts=parts[::-1])

    file = server.request("GET", f"{_BASE}/artifacts/{root}/model/weights ü.bin")
    assert file.content == b"".join(content)
    files = server.request("GET", f"{_BASE}/artifacts", params={"path": root}).json()["files"]
    assert [item["path"] for item in files] == ["model"]
    # A client that lost the response repeats the request.
    post(server, f"complete/{root}/model", **completion, parts=parts)
    remaining_files = [item for item in tmp_path.rglob(".uploads/*/*") if item.stat().st_size]
    assert not remaining_files


def test_concurrent_requests_complete_an_upload_once(
    server: Server, root: str, tmp_path: Path
) -> None:
    content = [os.urandom(200_000) for _ in range(8)]
    upload = post(server, f"create/{root}", path="f", num_parts=8)
    parts = upload_parts(server, upload, content)
    completion = {"path": "f", "upload_id": upload["upload_id"], "parts": [*parts, *parts]}
    with ThreadPoolExecutor(4) as pool:
        requests = [
            pool.submit(server.request, "POST", f"{_BASE}/mpu/complete/{root}", json=completion)
            for _ in range(4)
        ]
    assert [item.result().status_code for item in requests] == [200] * 4
    file = server.request("GET", f"{_BASE}/artifacts/{root}/f")
    assert file.content == b"".join(content)
    post(server, f"abort/{root}", path="f", upload_id=upload["upload_id"])
    assert not list(tmp_path.rglob(".uploads/*"))
    post(server, f"complete/{root}", expect=404, **completion)


@pytest.mark.slow
def test_uploads_can_be_aborted_while_others_start(server: Server, root: str) -> None:
    def start_and_abort(_: int) -> None:
        for _ in range(15):
            upload = post(server, f"create/{root}", path="f", num_parts=1)
            post(server, f"abort/{root}", path="f", upload_id=upload["upload_id"])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(start_and_abort, range(6)))


def test_aborted_and_forgotten_uploads_are_deleted(
    server: Server, root: str, tmp_path: Path
) -> None:
    started = post(server, f"create/{root}", path="f", num_parts=1)
    upload_parts(server, started, [b"x"])
    post(server, f"abort/{root}", path="f", upload_id=started["upload_id"])
    assert not list(tmp_path.rglob(".uploads/*"))
    for upload in (started["upload_id"], "../../x", "0" * 32):
        post(server, f"abort/{root}", expect=404, path="f", upload_id=upload)
    url = started["credentials"][0]["url"]
    assert server.request("PUT", url, content=b"x").status_code == 404
    forgotten = post(server, f"create/{root}", path="f", num_parts=1)["upload_id"]
    folder = next(tmp_path.rglob(f".uploads/{forgotten}"))
    long_ago = time.time() - 8 * 24 * 3600
    os.utime(folder, (long_ago, long_ago))
    post(server, f"create/{root}", path="f", num_parts=1)
    assert not folder.exists()


def test_files_outside_runs_are_stored_per_workspace(server: Server) -> None:
    for path in ("a.txt", "deep/er/b c.txt"):
        response = server.request("PUT", f"{_BASE}/artifacts/{path}", content=b"12")
        assert response.status_code == 200, response.text
    assert server.request("GET", f"{_BASE}/artifacts").json() == {
        "files": [
            {"path": "a.txt", "is_dir": False, "file_size": 2},
            {"path": "deep", "is_dir": True},
        ]
    }
    assert server.request("GET", f"{_BASE}/artifacts/deep/er/b c.txt").content == b"12"
    assert server.request("GET", f"/mlflow/vision{_BASE}/artifacts").json() == {"files": []}
    assert server.request("DELETE", f"{_BASE}/artifacts/a.txt").status_code == 200
    assert server.request("GET", f"{_BASE}/artifacts/a.txt").status_code == 404


def test_browsers_save_a_download_and_never_display_it(server: Server, root: str) -> None:
    run_id = root.split("/")[1]
    for name, type in (
        ("a.txt", "text/plain"),
        ("MLmodel", "text/plain"),
        ("w.pkl", "application/octet-stream"),
        ("i.png", "image/png"),
        ("ü b#c.html", "text/html"),
    ):
        quoted = quote(name)
        server.request("PUT", f"{_BASE}/artifacts/{root}/./dir//{quoted}", content=b"0123456789")
        fields = {"run_id": run_id, "path": f"./dir/{name}"}
        for response in (
            server.request("GET", f"{_BASE}/artifacts/{root}/dir/{quoted}"),
            server.request("GET", "/get-artifact", params=fields),
        ):
            assert response.content == b"0123456789", name
            assert response.headers["content-type"] == type
            assert response.headers["content-disposition"].startswith("attachment; filename")
            assert response.headers["x-content-type-options"] == "nosniff"
        half = {"Range": "bytes=2-4"}
        part = server.request("GET", f"{_BASE}/artifacts/{root}/dir/{quoted}", extra_headers=half)
        assert (part.status_code, part.content) == (206, b"234")


def test_paths_that_leave_the_folder_are_refused(server: Server, root: str, tmp_path: Path) -> None:
    run_id = root.split("/")[1]
    for bad in (
        "../x",
        "a/../../x",
        "/etc/passwd",
        "%2e%2e/x",
        "%252e%252e%252fx",
        "..\\x",
        "C:\\x",
    ):
        for path in ("/api/2.0/mlflow/artifacts/list", "/get-artifact"):
            response = server.request("GET", path, params={"run_id": run_id, "path": bad})
            assert response.status_code == 400, (bad, response.text)
            assert response.json() == {
                "error_code": "INVALID_PARAMETER_VALUE",
                "message": "Invalid path",
            }
        files = server.request("GET", f"{_BASE}/artifacts", params={"path": bad})
        assert files.status_code == 400
    for bad in ("%252e%252e/x", "a/%252e%252e/%252e%252e/x"):
        response = server.request("PUT", f"{_BASE}/artifacts/{root}/{bad}", content=b"x")
        assert response.status_code == 400
    assert not list(tmp_path.rglob("x"))


def test_mlflows_page_uploads_a_small_file(server: Server, root: str) -> None:
    path, run_id = "/ajax-api/2.0/mlflow/upload-artifact", root.split("/")[1]
    for fields, words in (
        ({}, "Request must specify run_uuid."),
        ({"run_uuid": run_id}, "Request must specify path."),
        ({"run_uuid": run_id, "path": "../t"}, "Invalid path"),
        ({"run_uuid": run_id, "path": "t"}, "Request must specify data."),
    ):
        response = server.request("POST", path, params=fields)
        assert (response.status_code, response.json()["message"]) == (400, words)
    fields = {"run_uuid": run_id, "path": "t"}
    large = server.request("POST", path, params=fields, content=bytes((10 << 20) + 1))
    assert (large.status_code, "too large" in large.json()["message"]) == (400, True)
    assert server.request("POST", path, params=fields, content=b"hello").status_code == 200
    assert server.request("GET", "/get-artifact", params=fields).content == b"hello"


def test_a_part_is_written_while_all_threads_of_requests_are_taken(
    server: Server, root: str
) -> None:
    upload = post(server, f"create/{root}/model", path="weights.bin", num_parts=1)

    async def run() -> int:
        threads = anyio.to_thread.current_default_thread_limiter()
        requests = [object() for _ in range(int(threads.total_tokens))]

        async def part() -> AsyncIterator[bytes]:
            yield b"first"
            for request in requests:
                threads.acquire_on_behalf_of_nowait(request)
            for _ in range(3):
                yield b"more"
            for request in requests:
                threads.release_on_behalf_of(request)

        transport = httpx2.ASGITransport(server.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://yard") as client:
            credential = upload["credentials"][0]
            asking = client.put(credential["url"], content=part(), headers=credential["headers"])
            return (await asyncio.wait_for(asking, 10)).status_code

    assert asyncio.run(run()) == 200
