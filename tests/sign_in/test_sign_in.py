"""Signing in at a real server with a real provider, a browser's way and an attacker's."""

from __future__ import annotations

import html
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from served_process import Reply, ServedProcess, served_process
from sign_in.browser import Browser, Page
from sign_in.real_provider import CLIENT_ID, CLIENT_SECRET, RealProvider
from torchyard.sign_in.routes import hash_of

pytestmark = [pytest.mark.slow, pytest.mark.oidc, pytest.mark.timeout(300)]

PEOPLE: dict[str, Any] = {
    "sub-anna": {"preferred_username": "anna", "groups": []},
    "sub-ben": {"preferred_username": "ben", "groups": ["vision-team"]},
    "sub-carl": {"preferred_username": "carl", "groups": ["somebody-else"]},
}


@dataclass(frozen=True)
class Site:
    server: ServedProcess
    provider: RealProvider

    def browser(self, person: str) -> Browser:
        return Browser(str(self.server.certificate), person)

    def start_url(self, verifier: str, **more: Any) -> str:
        query = {"challenge": hash_of(verifier), "state": "s" * 20, **more}
        return f"{self.server.url}/v1/sign-in/start?{urlencode(query)}"

    def exchange(self, grant: str, verifier: str) -> Reply:
        body = {"grant": grant, "verifier": verifier}
        return self.server.ask("POST", "/v1/sign-in/token", json_body=body)

    def token(self, person: str) -> str:
        """A token by the pasted code."""
        verifier = secrets.token_urlsafe(48)
        page = self.browser(person).sign_in(self.start_url(verifier))
        assert page.status == 200, page.text
        reply = self.exchange(grant_of(page), verifier)
        assert reply.status == 201, reply.body
        return str(reply.body["token"])

    def link(self, person: str, subject: str) -> None:
        path = f"/v1/sign-in/accounts/{person}"
        self.server.ok("PUT", path, self.server.owner, {"subject": subject})

    def who(self, token: str) -> Any:
        reply = self.server.ask("GET", "/v1/whoami", token)
        return (reply.body["user"], reply.body["role"]) if reply.status == 200 else reply.status


def grant_of(page: Page) -> str:
    shown = re.search(r"<pre>([^<]+)</pre>", page.text)
    assert shown is not None, page.text
    return html.unescape(shown[1])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("sign-in")
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    redirect_uri = f"https://localhost:{port}/v1/sign-in/callback"
    provider = RealProvider(folder, redirect_uri, {**PEOPLE})
    (folder / "secret").write_text(CLIENT_SECRET + "\n")
    (folder / "secret").chmod(0o600)
    settings = {
        "issuer": provider.issuer,
        "client_id": CLIENT_ID,
        "client_secret_file": "secret",
        "groups": {"vision-team": {"role": "data-scientist", "workspace": "default"}},
    }
    (folder / "oidc.json").write_text(json.dumps(settings))
    options = ["--oidc", str(folder / "oidc.json"), "--port", str(port), "--jobs-as-server-user"]
    try:
        with served_process(folder, options) as server:
            made = Site(server, provider)
            for name in ("anna", "amir", "olaf"):
                person = {"name": name, "role": "contributor"}
                server.ok("POST", "/v1/users", server.owner, person)
                made.link(name, f"sub-{name}")
            yield made
    finally:
        provider.stop()


def test_a_person_whom_an_owner_created_signs_in(site: Site) -> None:
    token = site.token("sub-anna")
    assert token.startswith("yard_p_") and site.who(token) == ("anna", "contributor")
    tokens = site.server.ok("GET", "/v1/users/anna/tokens", token)["value"]
    assert [each["name"].startswith("sign-in-") for each in tokens] == [True]
    assert tokens[0]["expires_at"] is not None


def test_a_group_gives_an_account_and_its_role(site: Site) -> None:
    assert site.who(site.token("sub-ben")) == ("ben", "data scientist")
    site.provider.put("sub-ben", preferred_username="ben", groups=[])
    assert site.who(site.token("sub-ben")) == ("ben", None)


def test_others_have_no_account(site: Site) -> None:
    page = site.browser("sub-carl").sign_in(site.start_url("v" * 43))
    assert page.status == 403 and "yard user create carl --no-token" in html.unescape(page.text)
    names = [
        person["name"] for person in site.server.ok("GET", "/v1/users", site.server.owner)["value"]
    ]
    assert "carl" not in names


def test_the_web_page_is_reached_signed_in(site: Site) -> None:
    browser = site.browser("sub-anna")
    jobs = f"{site.server.url}/ui/workspaces/default/jobs"
    page = browser.sign_in(f"{site.server.url}/v1/sign-in/page?next=/ui/workspaces/default/jobs")
    assert (page.url, page.status) == (jobs, 200), page.text
    sessions = [each for each in browser.cookies if "torchyard_session" in each.name]
    assert len(sessions) == 1 and sessions[0].name.startswith("__Host-") and sessions[0].secure
    identity = json.loads(browser.open(f"{site.server.url}/v1/whoami").text)
    assert identity["user"] == "anna" and identity["token"].startswith("sign-in-")
    for elsewhere in ("https://evil.example/ui/", "//evil.example/ui/", "/ui/\\evil.example"):
        query = urlencode({"next": elsewhere})
        other = site.browser("sub-anna")
        page = other.sign_in(f"{site.server.url}/v1/sign-in/page?{query}")
        assert (page.url, page.status) == (f"{site.server.url}/ui/", 200)
    site.server.ok("DELETE", "/v1/users/anna/sign-in", site.server.owner)
    assert browser.open(f"{site.server.url}/v1/whoami").status == 401
    site.link("anna", "sub-anna")


def test_a_sign_in_to_the_page_of_another_browser_is_refused(site: Site) -> None:
    first, other = site.browser("sub-anna"), site.browser("sub-anna")
    start = f"{site.server.url}/v1/sign-in/page"
    first.open(start)
    page = first.sign_in(start)
    assert page.status == 200
    answer = other.open(f"{site.server.url}/v1/sign-in/callback?state=x&code=y")
    assert answer.status == 401 and not list(other.cookies)


@pytest.mark.smoke
def test_yard_login_opens_a_browser_and_saves_the_token(site: Site, tmp_path: Path) -> None:
    program = Path(__file__).with_name("open_browser.py")
    environ = {
        **os.environ,
        "TORCHYARD_HOME": str(tmp_path / "home"),
        "BROWSER": f"{sys.executable} {program} %s",
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "TORCHYARD_TEST_PERSON": "sub-anna",
        "TORCHYARD_TEST_CERTIFICATE": str(site.server.certificate),
    }
    command = [sys.executable, "-m", "torchyard.cli.main", "login", site.server.url]
    command += ["--ca-cert", str(site.server.certificate)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=120)
    assert done.returncode == 0, done.stderr
    assert f"Logged in to {site.server.url} as anna: contributor" in done.stdout
    assert "yard_p_" not in done.stdout + done.stderr
    saved = tmp_path / "home" / "servers.json"
    assert saved.stat().st_mode & 0o777 == 0o600 and "yard_p_" in saved.read_text()
    environ["TORCHYARD_TEST_PERSON"] = "sub-carl"
    environ["TORCHYARD_HOME"] = str(tmp_path / "carl")
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=120)
    assert done.returncode != 0 and "has no account on this server" in done.stderr
    assert "hint: ask one of its owners" in done.stderr


def test_a_removed_person_is_out_at_once_and_does_not_get_in_again(site: Site) -> None:
    site.provider.put("sub-amir", preferred_username="amir")
    token = site.token("sub-amir")
    assert site.who(token) == ("amir", "contributor")
    site.server.ok("DELETE", "/v1/users/amir", site.server.owner)
    assert site.who(token) == 401
    page = site.browser("sub-amir").sign_in(site.start_url("v" * 43))
    assert page.status == 403 and "no account" in page.text


def test_a_grant_of_a_person_who_is_removed_meanwhile_is_worth_nothing(site: Site) -> None:
    site.server.ok("POST", "/v1/users", site.server.owner, {"name": "gina", "role": "reader"})
    site.provider.put("sub-gina", preferred_username="gina")
    site.link("gina", "sub-gina")
    verifier = secrets.token_urlsafe(48)
    grant = grant_of(site.browser("sub-gina").sign_in(site.start_url(verifier)))
    site.server.ok("DELETE", "/v1/users/gina", site.server.owner)
    assert site.exchange(grant, verifier).status == 404


def test_revoking_everything_ends_a_sign_in(site: Site) -> None:
    token = site.token("sub-anna")
    site.server.ok("DELETE", "/v1/users/anna/tokens", site.server.owner)
    assert site.who(token) == 401


def test_a_sign_in_creates_and_renews_no_tokens(site: Site) -> None:
    """They would outlast it, and the person's account at the provider."""
    token = site.token("sub-anna")
    reply = site.server.ask("POST", "/v1/users/anna/tokens", token, {"name": "laptop"})
    assert reply.status == 403, reply.body
    (stored,) = site.server.ok("GET", "/v1/users/anna/tokens", token)["value"][-1:]
    path = f"/v1/users/anna/tokens/{stored['name']}/rotate"
    assert site.server.ask("POST", path, token, {}).status == 400
    site.server.ok("POST", "/v1/users/anna/tokens", site.server.owner, {"name": "laptop"})


def test_an_account_stays_one_person_whatever_its_name_becomes(site: Site) -> None:
    site.provider.put("sub-olaf", preferred_username="olaf")
    assert site.who(site.token("sub-olaf"))[0] == "olaf"
    # Somebody else takes the name at the provider.
    site.provider.put("sub-olaf", preferred_username="olaf-2")
    site.provider.put("sub-thief", preferred_username="olaf")
    page = site.browser("sub-thief").sign_in(site.start_url("v" * 43))
    assert page.status == 403 and "is another account of" in page.text
    assert site.who(site.token("sub-olaf"))[0] == "olaf"
    site.server.ok("DELETE", "/v1/users/olaf/sign-in", site.server.owner)
    page = site.browser("sub-thief").sign_in(site.start_url("v" * 43))
    assert page.status == 403 and "not linked to them" in page.text
    site.link("olaf", "sub-thief")
    assert site.who(site.token("sub-thief"))[0] == "olaf"


def test_a_name_that_a_person_here_has_gives_no_account_of_theirs(site: Site) -> None:
    site.server.ok("POST", "/v1/users", site.server.owner, {"name": "ruth", "role": "owner"})
    # Who may choose their name at the provider, or be in a group, chooses hers.
    site.provider.put("sub-mallory", preferred_username="ruth", groups=["vision-team"])
    page = site.browser("sub-mallory").sign_in(site.start_url("v" * 43))
    assert page.status == 403 and "yard user link ruth sub-mallory" in html.unescape(page.text)
    people = site.server.ok("GET", "/v1/users", site.server.owner)["value"]
    (ruth,) = [person for person in people if person["name"] == "ruth"]
    assert "data" not in json.dumps(ruth["roles"])
    site.link("ruth", "sub-ruth")
    site.provider.put("sub-ruth", preferred_username="anna")
    assert site.who(site.token("sub-ruth")) == ("ruth", "owner")
    reply = site.server.ask(
        "PUT", "/v1/sign-in/accounts/ruth", site.token("sub-ben"), json_body={"subject": "s"}
    )
    assert reply.status == 403


def test_the_owner_of_the_home_does_not_sign_in(site: Site) -> None:
    me = site.server.ok("GET", "/v1/whoami", site.server.owner)["user"]
    site.provider.put("sub-evil", preferred_username=me, groups=["vision-team"])
    page = site.browser("sub-evil").sign_in(site.start_url("v" * 43))
    assert page.status == 403 and "home folder" in page.text


def test_another_browser_can_not_finish_a_sign_in(site: Site) -> None:
    victim = site.browser("sub-anna")
    url = site.start_url("v" * 43)
    begun = site.browser("sub-anna")
    provider_url = begun.open(url).url
    state = _state_of(begun, site, url)
    page = victim.open(
        f"{site.server.url}/v1/sign-in/callback?{urlencode({'state': state, 'code': 'x'})}"
    )
    assert page.status == 401 and "another browser" in page.text
    assert provider_url.startswith(site.provider.issuer)


def _state_of(browser: Browser, site: Site, url: str) -> str:
    """The `state` that /start sends to the provider."""
    path = url.removeprefix(site.server.url)
    location = site.server.ask("GET", path).headers["location"]
    return parse_qs(urlsplit(location).query)["state"][0]


def test_a_grant_is_good_once_and_for_its_own_login(site: Site) -> None:
    verifier = secrets.token_urlsafe(48)
    grant = grant_of(site.browser("sub-anna").sign_in(site.start_url(verifier)))
    assert site.exchange(grant, "somebody else's").status == 401
    assert site.exchange(grant[:-2] + "AA", verifier).status == 401
    assert site.exchange(grant, verifier).status == 201
    assert site.exchange(grant, verifier).status == 401
    state = _state_of(site.browser("x"), site, site.start_url(verifier))
    assert site.exchange(state, verifier).status == 401


def test_the_way_to_the_provider_uses_pkce_and_a_bound_cookie(site: Site) -> None:
    reply = site.server.ask("GET", site.start_url("v" * 43).removeprefix(site.server.url))
    assert reply.status == 302
    query = parse_qs(urlsplit(reply.headers["location"]).query)
    assert query["code_challenge_method"] == ["S256"] and len(query["nonce"][0]) >= 24
    cookie = reply.headers["set-cookie"]
    assert cookie.startswith("__Host-torchyard-sign-in=")
    for word in ("HttpOnly", "Secure", "SameSite=lax", "Path=/", "Max-Age=600"):
        assert word in cookie
    assert reply.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "query",
    [
        {"challenge": "x", "state": "s" * 20},
        {"challenge": "c" * 43, "state": "<script>"},
        {"challenge": "c" * 43, "state": "s" * 20, "port": 80},
        {"challenge": "c" * 43, "state": "s" * 20, "port": 99999},
    ],
)
def test_odd_starts_are_refused(site: Site, query: dict[str, Any]) -> None:
    assert site.server.ask("GET", f"/v1/sign-in/start?{urlencode(query)}").status == 400


def test_what_the_provider_says_is_not_put_into_the_page_as_html(site: Site) -> None:
    site.provider.put("sub-html", preferred_username="<script>alert(1)</script>")
    page = site.browser("sub-html").sign_in(site.start_url("v" * 43))
    assert page.status == 403 and "<script>" not in page.text


def test_sign_ins_and_refusals_are_in_the_audit(site: Site) -> None:
    site.token("sub-anna")
    lines = site.server.ok("GET", "/v1/audit?limit=1000", site.server.owner)["value"]
    signed_in = [line for line in lines if line["path"] == "/v1/sign-in/token" and line["user"]]
    assert signed_in[0]["user"] == "anna" and signed_in[0]["outcome"] == "done"
    assert signed_in[0]["about"] == {"signed_in_with": site.provider.issuer}
    refused = [line for line in lines if line["path"] == "/v1/sign-in/callback"]
    assert {line["outcome"] for line in refused} <= {"refused"}


def test_no_secret_is_logged(site: Site) -> None:
    site.token("sub-anna")
    log = site.server.log.read_text()
    assert CLIENT_SECRET not in log and "yard_p_" not in log and "code=" not in log


def test_a_rotated_key_of_the_provider_is_taken(site: Site) -> None:
    assert site.who(site.token("sub-anna"))[0] == "anna"
    site.provider.restart("second")
    # Keys that are not known are looked up at most every ten seconds.
    time.sleep(10.5)
    assert site.who(site.token("sub-anna"))[0] == "anna"


def test_a_provider_that_is_down_is_told(site: Site) -> None:
    path = site.start_url("v" * 43).removeprefix(site.server.url)
    begun = site.server.ask("GET", path)
    state = parse_qs(urlsplit(begun.headers["location"]).query)["state"][0]
    cookie = {"Cookie": begun.headers["set-cookie"].partition(";")[0]}
    query = urlencode({"state": state, "code": "x", "iss": site.provider.issuer})
    site.provider.stop()
    try:
        reply = site.server.ask("GET", f"/v1/sign-in/callback?{query}", more=cookie)
        assert reply.status == 503
        assert b"can&#x27;t be asked" in reply.body and b"Connection refused" in reply.body
        assert site.server.ask("GET", "/readyz").status == 200
    finally:
        site.provider.restart("third")
