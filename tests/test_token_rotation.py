"""Tokens from their creation to their end, over TLS with a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from served_process import ServedProcess, served_process
from workspaces.served import served

JOBS = "/v1/workspaces/default/jobs"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    with served_process(tmp_path_factory.mktemp("tokens")) as made:
        yield made


def _create(running: ServedProcess, name: str) -> str:
    owner = running.owner
    running.ok("POST", "/v1/users", owner, {"name": name, "role": "contributor"})
    made = running.ok("POST", f"/v1/users/{name}/tokens", owner, {"name": "laptop"})
    return str(made["token"])


def _jwt(running: ServedProcess, token: str) -> str:
    """What Azure's clients get for a token and send from then on."""
    query = urlencode({"resource": "https://ml.azure.com", "api-version": "2019-08-01"})
    reply = running.ask("GET", f"/msi/token?{query}", more={"X-IDENTITY-HEADER": token})
    assert reply.status == 200, reply.body
    return str(reply.body["access_token"])


def _status(running: ServedProcess, token: str) -> int:
    return running.ask("GET", JOBS, token).status


def test_user_create_prints_the_address_of_the_tls_listener(running: ServedProcess) -> None:
    printed = running.yard("user", "create", "adam", "--role", "reader")
    assert f"They log in with: yard login {running.url}\n" in printed
    assert "127.0.0.1" not in printed
    printed = running.yard("user", "token", "create", "adam", "--token-name", "second")
    assert f"yard login {running.url}\n" in printed


def test_a_rotated_token_and_its_jwts_end_at_once(running: ServedProcess) -> None:
    token = _create(running, "rosa")
    jwt = _jwt(running, token)
    assert (_status(running, token), _status(running, jwt)) == (200, 200)
    rotated = running.ok("POST", "/v1/users/rosa/tokens/laptop/rotate", token, {})
    assert (_status(running, token), _status(running, jwt)) == (401, 401)
    assert _status(running, rotated["token"]) == 200
    tokens = running.ok("GET", "/v1/users/rosa/tokens", rotated["token"])["value"]
    assert [each["name"] for each in tokens] == ["laptop"]


def test_a_rotated_token_lasts_as_long_as_the_old_one(running: ServedProcess) -> None:
    printed = running.yard("user", "create", "lena", "--expires", "30d")
    before = running.ok("GET", "/v1/users/lena/tokens", running.owner)["value"][0]
    printed = running.yard("user", "token", "rotate", "lena", "first")
    assert "it is shown only this once" in printed and f"yard login {running.url}" in printed
    after = running.ok("GET", "/v1/users/lena/tokens", running.owner)["value"][0]
    assert after["expires_at"] > before["expires_at"]
    assert after["expires_at"][:10] == before["expires_at"][:10]


def test_a_revoked_token_and_its_jwts_end_at_once(running: ServedProcess) -> None:
    token = _create(running, "rolf")
    other = running.ok("POST", "/v1/users/rolf/tokens", token, {"name": "other"})["token"]
    jwt, other_jwt = _jwt(running, token), _jwt(running, other)
    running.ok("DELETE", "/v1/users/rolf/tokens/laptop", running.owner)
    assert (_status(running, token), _status(running, jwt)) == (401, 401)
    assert (_status(running, other), _status(running, other_jwt)) == (200, 200)
    running.yard("user", "token", "revoke", "rolf", "--all")
    assert (_status(running, other), _status(running, other_jwt)) == (401, 401)


def test_a_removed_person_is_out_at_once(running: ServedProcess) -> None:
    token = _create(running, "rita")
    jwt = _jwt(running, token)
    running.ok("DELETE", "/v1/users/rita", running.owner)
    assert (_status(running, token), _status(running, jwt)) == (401, 401)
    again = running.ask("GET", f"/msi/token?{urlencode({'resource': 'https://ml.azure.com'})}")
    assert again.status in (400, 401)


def test_nobody_rotates_anothers_token_or_that_of_the_home(running: ServedProcess) -> None:
    token = _create(running, "nora")
    _create(running, "nick")
    assert running.ask("POST", "/v1/users/nick/tokens/laptop/rotate", token, {}).status == 403
    assert running.ask("DELETE", "/v1/users/nick/tokens", token).status == 403
    me = running.ok("GET", "/v1/whoami", running.owner)["user"]
    refused = running.ask("POST", f"/v1/users/{me}/tokens/home/rotate", running.owner, {})
    assert refused.status == 400 and "home folder" in refused.body["error"]["message"]
    missing = running.ask("POST", "/v1/users/nora/tokens/laptob/rotate", token, {})
    assert missing.status == 404 and "`laptop`" in missing.body["error"]["hint"]


def test_the_audit_of_a_real_server_is_a_whole_chain(running: ServedProcess) -> None:
    _create(running, "alma")
    assert "lines," in running.yard("audit", "--verify")


def test_a_jobs_token_and_its_jwt_end_with_its_removed_owner(tmp_path: Path) -> None:
    with served(tmp_path, "") as site:
        token = site.job_token("training", "dan")
        now = site.parts.services.clock.now()
        jwt = site.parts.signer.sign(token, "dan", "https://ml.azure.com", now)
        for text in (token, jwt):
            site.tokens["job"] = text
            assert site.ask("job", "GET", JOBS).status_code == 200
        site.ok("home", "DELETE", "/v1/users/dan", params={"cancel": "true"})
        for text in (token, jwt):
            site.tokens["job"] = text
            assert site.ask("job", "GET", JOBS).status_code == 401
