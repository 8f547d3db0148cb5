"""Signing in to the page and what its cookie is good for, as outsiders try it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from sentences import Sentence
from torchyard.app.request_guard import LOOPBACK_NAMES
from torchyard.base.clock import FakeClock, to_text
from torchyard.workspaces import sessions
from web.browser_like import COOKIE, OWN, Page, browser, code_of, signed_in
from workspaces.served import HERE, JOB, Served, http_scope, served

SESSION = "/v1/sign-in/session"


@pytest.fixture
def site(tmp_path: Path, database_url: str, clock: FakeClock) -> Iterator[Served]:
    with served(tmp_path, database_url, clock) as made:
        yield made


def _who(page: Page) -> tuple[int, str]:
    answer = page.ask("GET", "/v1/whoami")
    return answer.status_code, answer.json().get("user", "")


def test_a_link_signs_in_once_with_a_cookie_that_scripts_cant_read(site: Served) -> None:
    link = site.ok("dan", "POST", "/v1/sign-in/links", {})
    assert link["path"] == f"/ui/sign-in?code={link['code']}"
    page, other = browser(site), browser(site)
    answer = page.ask("POST", SESSION, {"code": link["code"]})
    assert (answer.status_code, answer.json()["user"]) == (201, "dan")
    cookie = answer.headers["set-cookie"]
    for attribute in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"):
        assert attribute in cookie
    assert "Domain" not in cookie and page.session not in answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert _who(page) == (200, "dan")
    again = other.ask("POST", SESSION, {"code": link["code"]})
    assert (again.status_code, again.json()["error"]["code"]) == (401, "sign_in_expired")
    assert _who(other)[0] == 401 and _who(page) == (200, "dan")


def test_a_code_expires_after_a_minute(site: Served, clock: FakeClock) -> None:
    code, late = code_of(site, "dan"), code_of(site, "dan")
    clock.advance(59)
    assert browser(site).ask("POST", SESSION, {"code": code}).status_code == 201
    clock.advance(2)
    answer = browser(site).ask("POST", SESSION, {"code": late})
    assert answer.json()["error"]["code"] == "sign_in_expired"


def test_neither_codes_nor_sessions_are_stored(site: Served) -> None:
    code = code_of(site, "dan")
    page = signed_in(site, "carl")
    rows = repr(site.rows())
    assert code not in rows and page.session and page.session not in rows


def test_a_session_ends_with_its_time(site: Served, clock: FakeClock) -> None:
    page = signed_in(site, "dan")
    clock.advance(12 * 3600 - 1)
    assert _who(page) == (200, "dan")
    clock.advance(2)
    assert page.ask("GET", "/v1/whoami").json()["error"]["code"] == "token_expired"


def test_a_session_lasts_no_longer_than_its_token(site: Served, clock: FakeClock) -> None:
    ends = {"name": "short", "expires_at": to_text(clock.now() + timedelta(hours=1))}
    token = site.ok("dan", "POST", "/v1/users/dan/tokens", ends)["token"]
    page = browser(site)
    assert page.ask("POST", SESSION, {"token": token}).json()["expires_at"] == ends["expires_at"]
    clock.advance(3601)
    assert _who(page)[0] == 401


def test_signing_out_revokes_the_session_and_nothing_else(site: Served) -> None:
    page, other = signed_in(site, "dan"), signed_in(site, "dan")
    session = page.session
    assert page.ask("DELETE", SESSION).status_code == 200
    assert not page.session
    page.client.cookies.set(COOKIE, session)
    assert _who(page)[0] == 401
    assert _who(other) == (200, "dan")
    page.client.cookies.set(COOKIE, site.tokens["dan"])
    assert page.ask("DELETE", SESSION).status_code == 200
    assert site.ok("dan", "GET", "/v1/whoami")["token"] == "first"


def test_revoking_its_token_ends_a_session(site: Served) -> None:
    page = signed_in(site, "dan")
    site.ok("dan", "DELETE", "/v1/users/dan/tokens/first")
    assert _who(page)[0] == 401


def test_a_session_makes_lasting_tokens_only_right_after_its_person_signed_in(
    site: Served, clock: FakeClock, sentence: Sentence
) -> None:
    page = signed_in(site, "dan")
    assert page.ask("POST", "/v1/users/dan/tokens", {"name": "laptop"}).status_code == 201
    clock.advance(601)
    answer = page.ask("POST", "/v1/users/dan/tokens", {"name": "stolen"})
    assert answer.status_code == 403 and answer.json()["error"]["code"] == "sign_in_again"
    sentence.is_answer(answer.json())
    rotated = page.ask("POST", "/v1/users/dan/tokens/laptop/rotate", {})
    assert rotated.json()["error"]["code"] == "sign_in_again"
    # A person's own token still does, and so does a new session.
    site.ok("dan", "POST", "/v1/users/dan/tokens", {"name": "desktop"})
    page = signed_in(site, "dan")
    assert page.ask("POST", "/v1/users/dan/tokens", {"name": "phone"}).status_code == 201


def test_rotating_and_revoking_all_tokens_end_sessions(site: Served) -> None:
    page = signed_in(site, "dan")
    rotated = site.ok("dan", "POST", "/v1/users/dan/tokens/first/rotate", {})
    assert _who(page)[0] == 401
    site.tokens["dan"] = rotated["token"]
    page = signed_in(site, "dan")
    site.ok("home", "DELETE", "/v1/users/dan/tokens")
    assert _who(page)[0] == 401


def test_a_session_is_listed_and_revoked_by_its_name(site: Served) -> None:
    page = signed_in(site, "dan")
    names = [token["name"] for token in site.ok("dan", "GET", "/v1/users/dan/tokens")["value"]]
    assert names[0] == "first" and names[1].startswith("page-") and len(names) == 2
    longer = site.ask("dan", "POST", f"/v1/users/dan/tokens/{names[1]}/rotate", {})
    assert (longer.status_code, _who(page)) == (400, (200, "dan"))
    site.ok("dan", "DELETE", f"/v1/users/dan/tokens/{names[1]}")
    assert _who(page)[0] == 401


def test_removing_a_person_ends_their_sessions_and_codes(site: Served) -> None:
    page, code = signed_in(site, "dan"), code_of(site, "dan")
    site.ok("home", "DELETE", "/v1/users/dan")
    assert _who(page)[0] == 401
    assert browser(site).ask("POST", SESSION, {"code": code}).status_code == 401


def test_a_session_has_the_roles_of_its_person_as_they_are_now(site: Served) -> None:
    page = signed_in(site, "carl")
    assert page.ask("POST", f"{HERE}/jobs", {**JOB, "name": "one"}).status_code == 201
    site.ok("olga", "PUT", f"{HERE}/people/carl", {"role": "reader"})
    refused = page.ask("POST", f"{HERE}/jobs", {**JOB, "name": "two"})
    assert refused.status_code == 403 and "`data scientist` is required" in refused.text
    assert page.ask("GET", f"{HERE}/jobs/one").status_code == 200
    site.ok("olga", "PUT", f"{HERE}/people/carl", {"role": None})
    assert page.ask("GET", f"{HERE}/jobs/one").status_code == 403


def test_a_session_changes_only_its_persons_own_jobs(site: Served) -> None:
    site.ok("carl", "POST", f"{HERE}/jobs", {**JOB, "name": "of-carl"})
    page = signed_in(site, "dan")
    assert page.ask("POST", f"{HERE}/jobs/of-carl/cancel").status_code == 403
    assert signed_in(site, "olga").ask("POST", f"{HERE}/jobs/of-carl/cancel").status_code == 200


FOREIGN: list[dict[str, str]] = [
    {},
    {"X-Torchyard-Page": "1"},
    {"Origin": "http://testserver"},
    {"Origin": "http://testserver", "X-Torchyard-Page": "0"},
    {"Origin": "http://evil.example", "X-Torchyard-Page": "1"},
    {"Origin": "http://testserver:8888", "X-Torchyard-Page": "1"},
    {"Origin": "https://testserver", "X-Torchyard-Page": "1"},
    {"Origin": "null", "X-Torchyard-Page": "1"},
    {**OWN, "Sec-Fetch-Site": "cross-site"},
    {**OWN, "Sec-Fetch-Site": "same-site"},
]


def test_another_page_changes_nothing_by_the_cookie(site: Served) -> None:
    page = signed_in(site, "olga")
    site.ok("olga", "POST", f"{HERE}/jobs", {**JOB, "name": "kept"})
    before = site.rows()
    requests = [
        ("POST", f"{HERE}/jobs", {**JOB, "name": "evil"}),
        ("POST", f"{HERE}/jobs/kept/cancel", None),
        ("PATCH", f"{HERE}/jobs/kept", {"description": "evil"}),
        ("DELETE", f"{HERE}/jobs/kept", None),
        ("PUT", f"{HERE}/people/dan", {"role": "owner"}),
        ("POST", "/v1/users/olga/tokens", {"name": "evil"}),
        ("POST", "/v1/sign-in/links", {}),
        ("DELETE", SESSION, None),
        ("POST", SESSION, {"code": "guess"}),
    ]
    for headers in FOREIGN:
        for method, path, body in requests:
            answer = page.ask(method, path, body, headers)
            refusal = answer.json()["error"]["code"]
            assert (answer.status_code, refusal) == (403, "other_page"), (path, headers)
            assert "set-cookie" not in answer.headers
    assert site.rows() == before


def test_another_page_reads_nothing_by_the_cookie(site: Served) -> None:
    page = signed_in(site, "dan")
    for of_request in ("cross-site", "same-site"):
        for path in ("/v1/whoami", f"{HERE}/jobs", f"{HERE}/events", "/openapi.json"):
            answer = page.ask("GET", path, headers={"Sec-Fetch-Site": of_request})
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers


def test_a_password_that_a_browser_keeps_counts_for_nothing(site: Served) -> None:
    password = base64.b64encode(f"dan:{site.tokens['dan']}".encode()).decode()
    headers = {"Authorization": f"Basic {password}"}
    page = browser(site)
    assert page.ask("GET", "/v1/whoami", headers=headers).json()["user"] == "dan"
    for of_request in ("cross-site", "same-site", "same-origin", "none"):
        sent = {**headers, "Sec-Fetch-Site": of_request}
        assert page.ask("GET", "/v1/whoami", headers=sent).status_code == 401


def test_the_cookie_counts_for_the_native_api_alone(site: Served) -> None:
    page = signed_in(site, "dan")
    for path in ("/mlflow/default/api/2.0/mlflow/experiments/search", "/metrics"):
        assert page.ask("GET", path).status_code == 401


def test_a_wrong_name_of_the_host_is_refused_with_the_cookie_too(
    tmp_path: Path, database_url: str
) -> None:
    from fastapi.testclient import TestClient

    from torchyard.app import application

    with served(tmp_path, database_url) as site:
        app = application.create_app(site.parts, hosts=LOOPBACK_NAMES)
        page = Page(TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False))
        of_page = {"Origin": "http://127.0.0.1", "X-Torchyard-Page": "1"}
        assert page.ask("POST", SESSION, {"code": code_of(site, "dan")}, of_page).status_code == 201
        rebound = {"Host": "evil.example", "Cookie": f"{COOKIE}={page.session}"}
        changing = {**rebound, "Origin": "http://evil.example", "X-Torchyard-Page": "1"}
        for method, path, headers in (
            ("GET", "/v1/whoami", rebound),
            ("GET", "/ui/", rebound),
            ("POST", "/v1/sign-in/links", changing),
        ):
            answer = page.ask(method, path, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "wrong_host")


def test_only_persons_begin_sessions_and_a_session_begins_none(site: Served) -> None:
    site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "mine"})
    job_token = site.job_token("mine", "dan")
    assert site.ask("job of dan", "POST", "/v1/sign-in/links", {}).status_code == 403
    assert browser(site).ask("POST", SESSION, {"token": job_token}).status_code == 403
    page = signed_in(site, "dan")
    assert page.ask("POST", "/v1/sign-in/links", {}).status_code == 403
    assert browser(site).ask("POST", SESSION, {"token": page.session}).status_code == 403


def test_a_wrong_document_is_refused(site: Served) -> None:
    page = browser(site)
    bodies: list[object] = [{}, {"code": "a", "token": "b"}, {"cod": "a"}, {"code": 1}, []]
    for body in bodies:
        assert page.ask("POST", SESSION, body).status_code == 400


def test_guesses_are_refused_and_counted(site: Served) -> None:
    page = browser(site)
    bodies = [{"code": "x" * 43}, {"code": "x" * 5000}, {"token": "yard_p_x"}]
    statuses = [page.ask("POST", SESSION, bodies[n % 3]).status_code for n in range(203)]
    assert statuses[0] == 401 and statuses[200:] == [429, 429, 429]
    assert signed_in(site, "dan").ask("GET", "/v1/whoami").status_code == 200


def test_expired_sessions_and_codes_are_removed(site: Served, clock: FakeClock) -> None:
    signed_in(site, "dan")
    code_of(site, "dan")
    clock.advance(13 * 3600)
    signed_in(site, "dan")
    with site.parts.services.db.read() as connection:
        from torchyard.workspaces import store

        assert connection.execute(store.sign_in_codes.select()).all() == []
    names = [token["name"] for token in site.ok("dan", "GET", "/v1/users/dan/tokens")["value"]]
    assert len(names) == 2


def test_sign_in_and_refusals_are_in_the_audit(site: Served) -> None:
    page = signed_in(site, "dan")
    page.ask("POST", "/v1/sign-in/links", {}, {"Origin": "http://evil.example"})
    lines = site.ok("home", "GET", "/v1/audit")["value"]
    by_path = {(line["path"], line["outcome"]): line for line in lines}
    assert by_path[SESSION, "done"]["user"] == "dan"
    assert ("/v1/sign-in/links", "refused") in by_path
    assert page.session not in str(lines)


def test_with_tls_the_cookie_is_bound_to_its_host_and_each_port_has_its_own() -> None:
    from torchyard.workspaces import session_cookies

    scope = http_scope("POST", SESSION, [])
    assert session_cookies.name_of(scope) == COOKIE
    with_port = {**scope, "headers": [(b"host", b"127.0.0.1:8765")]}
    assert session_cookies.name_of(with_port) == f"{COOKIE}_8765"
    secure = {**scope, "scheme": "https", "headers": [(b"host", b"[::1]:8766")]}
    cookie = session_cookies.header(secure, "x", 60)
    assert cookie.startswith(f"__Host-{COOKIE}_8766=x; Path=/; ") and cookie.endswith("; Secure")
    assert sessions.SESSION_LIMIT == timedelta(hours=12)
