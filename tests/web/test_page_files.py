"""The page's files and their headers, and that nothing uploaded becomes a page."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchyard.data.datastores import ARTIFACT_STORE, artifacts_of
from torchyard.web import static_routes
from web.browser_like import Page, browser, signed_in
from workspaces.served import HERE, JOB, Served, served

ONE_DATABASE = True
MARKUP = "<script>alert(1)</script>"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path, database_url) as made:
        yield made


@pytest.fixture
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A built page of three files."""
    folder = tmp_path / "page"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>torchyard</title>")
    (folder / "assets" / "app-1a2b.js").write_text("let x = 1;\n" * 200)
    (folder / "secret.pem").write_text("key")
    monkeypatch.setattr(static_routes, "ASSETS", folder)
    static_routes._files.cache_clear()
    yield folder
    static_routes._files.cache_clear()


@pytest.mark.usefixtures("assets")
def test_every_response_of_the_page_has_its_policy(site: Served) -> None:
    page = browser(site)
    paths = ("/ui", "/ui/", "/ui/workspaces/a/jobs/b", "/ui/assets/app-1a2b.js", "/ui/assets/no.js")
    for path in paths:
        answer = page.client.get(path, follow_redirects=False)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
        assert "worker-src 'self'" in policy
        assert "unsafe" not in policy and "*" not in policy
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert "set-cookie" not in answer.headers


@pytest.mark.usefixtures("assets")
def test_hashed_files_are_kept_and_the_page_is_asked_for_again(site: Served) -> None:
    page = browser(site)
    script = page.client.get("/ui/assets/app-1a2b.js", headers={"accept-encoding": "gzip"})
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert script.headers["content-encoding"] == "gzip" and script.text.startswith("let x")
    assert int(script.headers["content-length"]) < len(script.text) / 10
    plain = page.client.get("/ui/assets/app-1a2b.js", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers and plain.text == script.text
    index = page.client.get("/ui/")
    assert index.headers["cache-control"] == "no-cache"
    again = page.client.get("/ui/", headers={"if-none-match": index.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "content-security-policy" in again.headers
    assert gzip.decompress(static_routes._files()["assets/app-1a2b.js"].compressed)


@pytest.mark.usefixtures("assets")
def test_no_file_outside_of_the_pages_is_served(site: Served) -> None:
    page = browser(site)
    index = page.client.get("/ui/").content
    for path in ("/ui/secret.pem", "/ui/../token", "/ui/%2e%2e/%2e%2e/token", "/ui//etc/passwd"):
        answer = page.client.get(path)
        assert answer.status_code == 404 or answer.content == index
    assert page.client.get("/ui/assets/%2e%2e/index.html").status_code == 404


def test_browsers_are_led_to_the_page_and_programs_are_told(site: Served) -> None:
    page = browser(site)
    led = page.client.get("/", headers={"accept": "text/html,*/*"}, follow_redirects=False)
    assert (led.status_code, led.headers["location"]) == (302, "/ui/")
    assert page.client.get("/", headers={"accept": "*/*"}).status_code == 404


def test_the_link_of_azures_clients_leads_to_the_jobs_page(site: Served) -> None:
    page = browser(site)
    above = "/subscriptions/s/resourceGroups/r/providers/p/workspaces"
    for query, workspace in (
        (f"wsid={above}/vision", "vision"),
        (f"wsid={above}/vision&tid=1", "vision"),
        ("", "default"),
    ):
        answer = page.client.get(f"/runs/brave-otter?{query}", follow_redirects=False)
        assert answer.status_code == 302
        assert answer.headers["location"] == f"/ui/workspaces/{workspace}/jobs/brave-otter"
    for query in ("wsid=/x/..", "wsid=//evil.example/a%0d%0ab"):
        assert page.client.get(f"/runs/a?{query}", follow_redirects=False).status_code == 404


def _with_file(site: Served, name: str, content: bytes) -> Page:
    site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "mine", "display_name": MARKUP})
    stored = f"{artifacts_of('mine')}/outputs/{name}"
    with site.parts.services.datastores.writing("default", ARTIFACT_STORE, stored) as writing:
        writing.write(content)
    return signed_in(site, "rita")


@pytest.mark.parametrize("name", ["evil.html", "evil.svg", "evil.js", "evil.xml", "evil.pdf"])
def test_a_file_of_a_job_is_a_download_and_never_a_page(site: Served, name: str) -> None:
    page = _with_file(site, name, f"<svg onload='x'>{MARKUP}</svg>".encode())
    answer = page.ask("GET", f"{HERE}/jobs/mine/files/outputs/{name}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == f"attachment; filename*=utf-8''{name}"
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
    assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    refused = page.ask("GET", f"{HERE}/jobs/mine/image?path=outputs/{name}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_an_image")
    shown = page.ask("GET", f"{HERE}/jobs/mine/preview?path=outputs/{name}")
    assert shown.headers["content-type"] == "application/json"
    assert shown.json()["kind"] == "text" and MARKUP in shown.json()["text"]


def test_a_file_is_named_in_its_header_whatever_it_is_called(site: Served) -> None:
    name = 'a"; x=<b>é.txt'
    page = _with_file(site, name, b"x")
    answer = page.ask("GET", f"{HERE}/jobs/mine/files/outputs/a%22%3B%20x%3D%3Cb%3E%C3%A9.txt")
    assert answer.headers["content-disposition"] == (
        "attachment; filename*=utf-8''a%22%3B%20x%3D%3Cb%3E%C3%A9.txt"
    )


def test_an_image_is_told_by_its_content(site: Served) -> None:
    page = _with_file(site, "chart.txt", PNG)
    answer = page.ask("GET", f"{HERE}/jobs/mine/image?path=outputs/chart.txt")
    assert (answer.headers["content-type"], answer.content) == ("image/png", PNG)
    assert answer.headers["content-security-policy"].startswith("sandbox")
    shown = page.ask("GET", f"{HERE}/jobs/mine/preview?path=outputs/chart.txt").json()
    assert (shown["kind"], shown["media_type"]) == ("image", "image/png")


def test_tables_and_long_texts_are_shown_by_their_beginning(site: Served) -> None:
    rows = "".join(f"{number},<b>{number}</b>\n" for number in range(1000))
    page = _with_file(site, "t.csv", f"step,name\n{rows}".encode())
    table = page.ask("GET", f"{HERE}/jobs/mine/preview?path=outputs/t.csv").json()
    assert (table["kind"], table["columns"], table["truncated"]) == (
        "table",
        ["step", "name"],
        True,
    )
    assert len(table["rows"]) == 200 and table["rows"][199] == ["199", "<b>199</b>"]


@pytest.mark.parametrize(
    ("content", "kind", "truncated"),
    [
        (b"\0\1\2", "binary", False),
        (b"\xff\xfe\xfd", "binary", False),
        ("é".encode() * 200_000, "text", True),
        (b"a" + "é".encode() * 200_000, "text", True),
        (b"", "text", False),
        (b'"' * 300_000, "text", True),
    ],
)
def test_a_preview_tells_text_from_bytes(
    tmp_path: Path, content: bytes, kind: str, truncated: bool
) -> None:
    from torchyard.assets import served_files

    file = tmp_path / "a.csv"
    file.write_bytes(content)
    shown = served_files.preview(file, "a.csv")
    assert (shown["kind"], shown["truncated"]) == (kind, truncated)
    assert len(shown.get("text", "")) <= 1 << 18


def test_a_name_with_markup_is_json_that_no_browser_takes_for_a_page(site: Served) -> None:
    page = _with_file(site, f"{MARKUP.replace('/', '')}.txt", b"x")
    tag = {"tags": {MARKUP: MARKUP}, "description": MARKUP}
    site.ok("dan", "PATCH", f"{HERE}/jobs/mine", tag)
    for path in ("jobs", "jobs/mine", "jobs/mine/files", "experiments", f"jobs/{MARKUP}"):
        answer = page.ask("GET", f"{HERE}/{path}")
        assert answer.headers["content-type"] == "application/json", path
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"], path
    assert page.ask("GET", f"{HERE}/jobs/mine").json()["display_name"] == MARKUP


def test_logs_are_read_by_lines(site: Served) -> None:
    page = _with_file(site, "x", b"")
    text = b"".join(b"line %d\n" % number for number in range(1000)) + b"half"
    services = site.parts.services
    services.logs.append("default", "mine", 0, "user_logs/std_log.txt", 0, text)
    top = f"{HERE}/jobs/mine/logs"
    index = page.ask("GET", f"{top}/index?path=user_logs/std_log.txt&every=100").json()
    assert (index["lines"], index["size_bytes"], index["read_bytes"]) == (1001, *[len(text)] * 2)
    first = index["offsets"][10]
    assert text[first:] == b"half" and len(index["offsets"]) == 11
    grown = f"{top}/index?path=user_logs/std_log.txt&every=100&from_line=1000&from_byte={first}"
    assert page.ask("GET", grown).json()["lines"] == 1001
    hits = page.ask("GET", f"{top}/search?path=user_logs/std_log.txt&text=LINE 99&limit=3").json()
    assert (hits["lines"], hits["more"]) == ([99, 990, 991], True)
    position = f"from_line={hits['from_line']}&from_byte={hits['from_byte']}"
    rest = page.ask(
        "GET", f"{top}/search?path=user_logs/std_log.txt&text=line 99&{position}"
    ).json()
    assert rest["lines"] == list(range(992, 1000)) and not rest["more"]
    for query in ("every=1", "path=user_logs/no.txt", "from_byte=-1"):
        wrong = page.ask("GET", f"{top}/index?path=user_logs/std_log.txt&{query}")
        assert wrong.status_code in (400, 404), query
    assert page.ask("GET", f"{top}/search?path=user_logs/std_log.txt&text=").status_code == 400


def test_the_environment_of_a_job_says_what_was_pinned(site: Served) -> None:
    page = _with_file(site, "x", b"")
    shown = page.ask("GET", f"{HERE}/jobs/mine/environment").json()
    assert shown["ref"] == "python:1" and shown["spec"]["python"]
    assert shown["hash"] and shown["build"] == "not built"


def test_the_environment_of_a_job_is_exported_as_it_was_pinned(site: Served) -> None:
    inline = {
        "name": "own",
        "conda_file": {"dependencies": ["python=3.11", "pip", {"pip": ["six==1.17.0"]}]},
    }
    site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "inline", "environment": inline})
    path = f"{HERE}/jobs/inline/environment"
    assert site.ok("rita", "GET", path)["packages"] == ["six==1.17.0"]
    for form, file in (
        ("dockerfile", "Dockerfile"),
        ("requirements", "requirements.txt"),
        ("conda", "conda.yml"),
    ):
        exported = site.ok("rita", "GET", f"{path}/export?format={form}")
        assert (exported["file"], exported["source"]) == (file, "definition")
        assert "six==1.17.0" in exported["text"]
    refused = site.ask("rita", "GET", f"{path}/export?format=condda")
    assert refused.status_code == 400 and "did you mean `conda`?" in refused.text


def test_a_jobs_dockerfile_is_shown_as_it_was_submitted(site: Served) -> None:
    text = "FROM ubuntu:22.04\nRUN true\n"
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    headers = {"Authorization": f"Bearer {site.tokens['dan']}"}
    site.client.put(f"{HERE}/blobs/{sha256}", content=text.encode(), headers=headers)
    files = [{"path": "docker/Dockerfile", "sha256": sha256, "size": len(text), "mode": "0644"}]
    snapshot = site.ok("dan", "PUT", f"{HERE}/snapshots", {"files": files})["id"]
    build = {"path": f"snapshot:{snapshot}", "dockerfile_path": "docker/Dockerfile"}
    site.ok(
        "dan", "POST", f"{HERE}/jobs", {**JOB, "name": "image", "environment": {"build": build}}
    )
    path = f"{HERE}/jobs/image/environment/export?format="
    exported = site.ok("rita", "GET", f"{path}dockerfile")
    assert (exported["file"], exported["text"]) == ("Dockerfile", text)
    assert "describes it completely" in site.ask("rita", "GET", f"{path}conda").text


def test_node_hours_by_person_are_added_up(site: Served) -> None:
    page = _with_file(site, "x", b"")
    shown = page.ask("GET", f"{HERE}/computes/local/people").json()
    assert shown["value"] == [] and shown["since"] < shown["until"]
    for query in ("since=soon", "since=2026-02-01T00:00:00Z&until=2026-01-01T00:00:00Z"):
        assert page.ask("GET", f"{HERE}/computes/local/people?{query}").status_code == 400
    assert page.ask("GET", f"{HERE}/computes/no/people").status_code == 404
