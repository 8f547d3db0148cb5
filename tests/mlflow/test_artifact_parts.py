"""Artifacts in parts, outside runs, as downloads; and paths that lead away."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from mlflow_server import Server

_BASE = "/api/2.0/mlflow-artifacts"


def post(server: Server, path: str, /, expect: int = 200, **fields: Any) -> Any:
    answer = server.ask("POST", f"{_BASE}/mpu/{path}", json=fields)
    assert answer.status_code == expect, answer.text
    return answer.json()


@pytest.fixture
def root(server: Server) -> str:
    run_id = server.new_run()
    uri = server.get("runs/get", run_id=run_id)["run"]["info"]["artifact_uri"]
    return uri.removeprefix("mlflow-artifacts:/")


def parts_of(server: Server, made: dict[str, Any], content: list[bytes]) -> list[dict[str, Any]]:
    told = []
    for credential, part in zip(made["credentials"], content, strict=True):
        answer = server.ask("PUT", credential["url"], content=part, token="yard_p_ada")
        assert answer.status_code == 200, answer.text
        assert credential["headers"] == {"Authorization": "Bearer yard_p_ada"}
        told.append({"part_number": credential["part_number"], "etag": answer.headers["etag"]})
    return told


def test_a_large_file_comes_in_parts(server: Server, root: str, tmp_path: Path) -> None:
    content = [os.urandom(70_000), os.urandom(70_000), b"end"]
    made = post(server, f"create/{root}/model", path="/far/away/weights ü.bin", num_parts=3)
    told = parts_of(server, made, content)
    assert server.ask("GET", f"{_BASE}/artifacts/{root}/model/weights ü.bin").status_code == 404
    done = {"path": "/far/away/weights ü.bin", "upload_id": made["upload_id"]}
    post(server, f"complete/{root}/model", expect=400, **done, parts=[*told, {"part_number": 4}])
    post(server, f"complete/{root}/model", **done, parts=told[::-1])

    whole = server.ask("GET", f"{_BASE}/artifacts/{root}/model/weights ü.bin")
    assert whole.content == b"".join(content)
    listed = server.ask("GET", f"{_BASE}/artifacts", params={"path": root}).json()["files"]
    assert [one["path"] for one in listed] == ["model"]
    # A client whose answer was late asks again.
    post(server, f"complete/{root}/model", **done, parts=told)
    left = [one for one in tmp_path.rglob(".uploads/*/*") if one.stat().st_size]
    assert not left


def test_an_upload_is_completed_once_by_whoever_asks(
    server: Server, root: str, tmp_path: Path
) -> None:
    content = [os.urandom(200_000) for _ in range(8)]
    made = post(server, f"create/{root}", path="f", num_parts=8)
    told = parts_of(server, made, content)
    done = {"path": "f", "upload_id": made["upload_id"], "parts": [*told, *told]}
    with ThreadPoolExecutor(4) as pool:
        asked = [
            pool.submit(server.ask, "POST", f"{_BASE}/mpu/complete/{root}", json=done)
            for _ in range(4)
        ]
    assert [one.result().status_code for one in asked] == [200] * 4
    whole = server.ask("GET", f"{_BASE}/artifacts/{root}/f")
    assert whole.content == b"".join(content)
    post(server, f"abort/{root}", path="f", upload_id=made["upload_id"])
    assert not list(tmp_path.rglob(".uploads/*"))
    post(server, f"complete/{root}", expect=404, **done)


def test_uploads_that_end_while_others_begin(server: Server, root: str) -> None:
    def begin_and_end(_: int) -> None:
        for _ in range(15):
            made = post(server, f"create/{root}", path="f", num_parts=1)
            post(server, f"abort/{root}", path="f", upload_id=made["upload_id"])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(begin_and_end, range(6)))


def test_an_upload_that_is_given_up(server: Server, root: str, tmp_path: Path) -> None:
    made = post(server, f"create/{root}", path="f", num_parts=1)
    parts_of(server, made, [b"x"])
    post(server, f"abort/{root}", path="f", upload_id=made["upload_id"])
    assert not list(tmp_path.rglob(".uploads/*"))
    for upload in (made["upload_id"], "../../x", "0" * 32):
        post(server, f"abort/{root}", expect=404, path="f", upload_id=upload)
    url = made["credentials"][0]["url"]
    assert server.ask("PUT", url, content=b"x").status_code == 404
    forgotten = post(server, f"create/{root}", path="f", num_parts=1)["upload_id"]
    folder = next(tmp_path.rglob(f".uploads/{forgotten}"))
    long_ago = time.time() - 8 * 24 * 3600
    os.utime(folder, (long_ago, long_ago))
    post(server, f"create/{root}", path="f", num_parts=1)
    assert not folder.exists()


def test_files_that_belong_to_no_run(server: Server) -> None:
    for path in ("a.txt", "deep/er/b c.txt"):
        answer = server.ask("PUT", f"{_BASE}/artifacts/{path}", content=b"12")
        assert answer.status_code == 200, answer.text
    assert server.ask("GET", f"{_BASE}/artifacts").json() == {
        "files": [
            {"path": "a.txt", "is_dir": False, "file_size": 2},
            {"path": "deep", "is_dir": True},
        ]
    }
    assert server.ask("GET", f"{_BASE}/artifacts/deep/er/b c.txt").content == b"12"
    assert server.ask("GET", f"/mlflow/vision{_BASE}/artifacts").json() == {"files": []}
    assert server.ask("DELETE", f"{_BASE}/artifacts/a.txt").status_code == 200
    assert server.ask("GET", f"{_BASE}/artifacts/a.txt").status_code == 404


def test_a_download_is_saved_and_never_shown(server: Server, root: str) -> None:
    run_id = root.split("/")[1]
    for name, type in (
        ("a.txt", "text/plain"),
        ("MLmodel", "text/plain"),
        ("w.pkl", "application/octet-stream"),
        ("i.png", "image/png"),
        ("ü b#c.html", "text/html"),
    ):
        quoted = quote(name)
        server.ask("PUT", f"{_BASE}/artifacts/{root}/./dir//{quoted}", content=b"0123456789")
        asked = {"run_id": run_id, "path": f"./dir/{name}"}
        for answer in (
            server.ask("GET", f"{_BASE}/artifacts/{root}/dir/{quoted}"),
            server.ask("GET", "/get-artifact", params=asked),
        ):
            assert answer.content == b"0123456789", name
            assert answer.headers["content-type"] == type
            assert answer.headers["content-disposition"].startswith("attachment; filename")
            assert answer.headers["x-content-type-options"] == "nosniff"
        half = {"Range": "bytes=2-4"}
        part = server.ask("GET", f"{_BASE}/artifacts/{root}/dir/{quoted}", more_headers=half)
        assert (part.status_code, part.content) == (206, b"234")


def test_paths_that_lead_away_are_refused(server: Server, root: str, tmp_path: Path) -> None:
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
            answer = server.ask("GET", path, params={"run_id": run_id, "path": bad})
            assert answer.status_code == 400, (bad, answer.text)
            assert answer.json() == {
                "error_code": "INVALID_PARAMETER_VALUE",
                "message": "Invalid path",
            }
        listed = server.ask("GET", f"{_BASE}/artifacts", params={"path": bad})
        assert listed.status_code == 400
    for bad in ("%252e%252e/x", "a/%252e%252e/%252e%252e/x"):
        answer = server.ask("PUT", f"{_BASE}/artifacts/{root}/{bad}", content=b"x")
        assert answer.status_code == 400
    assert not list(tmp_path.rglob("x"))


def test_a_small_file_of_mlflows_page(server: Server, root: str) -> None:
    path, run_id = "/ajax-api/2.0/mlflow/upload-artifact", root.split("/")[1]
    for fields, words in (
        ({}, "Request must specify run_uuid."),
        ({"run_uuid": run_id}, "Request must specify path."),
        ({"run_uuid": run_id, "path": "../t"}, "Invalid path"),
        ({"run_uuid": run_id, "path": "t"}, "Request must specify data."),
    ):
        answer = server.ask("POST", path, params=fields)
        assert (answer.status_code, answer.json()["message"]) == (400, words)
    fields = {"run_uuid": run_id, "path": "t"}
    large = server.ask("POST", path, params=fields, content=bytes((10 << 20) + 1))
    assert (large.status_code, "too large" in large.json()["message"]) == (400, True)
    assert server.ask("POST", path, params=fields, content=b"hello").status_code == 200
    assert server.ask("GET", "/get-artifact", params=fields).content == b"hello"
