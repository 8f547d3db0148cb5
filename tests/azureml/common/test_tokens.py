"""Tokens as Azure's clients request and send them: valid ones, and every other kind."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from azureml.azure_server import WORKSPACE
from torchyard.base.clock import FakeClock
from torchyard.base.errors import InvalidInput, NotAuthenticated
from torchyard.workspaces import jwts
from torchyard.workspaces.jwts import Signer
from workspaces.served import HERE, JOB, MLFLOW, Served, served

ONE_DATABASE = True

ARM = "https://management.azure.example/"


@pytest.fixture
def site(tmp_path: Path, database_url: str, clock: FakeClock) -> Iterator[Served]:
    with served(tmp_path, database_url, clock) as created:
        yield created


def fetch(site: Served, secret: str, resource: str = ARM) -> httpx2.Response:
    """As azure-identity and MSAL do in an App Service."""
    answer: Any = site.client.get(
        "/msi/token",
        params={"api-version": "2019-08-01", "resource": resource},
        headers={"X-IDENTITY-HEADER": secret, "Metadata": "true"},
    )
    return answer  # type: ignore[no-any-return]


def token_of(site: Served, user: str) -> str:
    answer = fetch(site, site.tokens[user])
    assert answer.status_code == 200, answer.text
    return str(answer.json()["access_token"])


def claims(jwt: str) -> dict[str, Any]:
    head, body, signature = jwt.split(".")
    assert len(base64.urlsafe_b64decode(signature + "=")) == 32
    assert json.loads(base64.urlsafe_b64decode(head + "=="))["typ"] == "JWT"
    result: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return result


def test_the_response_has_the_keys_that_clients_read(site: Served, clock: FakeClock) -> None:
    answer = fetch(site, site.tokens["dan"])
    body = answer.json()
    assert set(body) == {
        "access_token", "expires_on", "expires_in", "not_before", "resource", "token_type",
    }  # fmt: skip
    now = int(clock.now().timestamp())
    assert (body["expires_on"], body["expires_in"]) == (str(now + 3600), "3600")
    assert (body["resource"], body["token_type"]) == (ARM, "Bearer")
    assert answer.headers["cache-control"] == "no-store"
    response = claims(body["access_token"])
    assert (response["aud"], response["iat"], response["exp"]) == (ARM.rstrip("/"), now, now + 3600)
    assert response["upn"] == response["unique_name"] == response["name"] == "dan"
    assert response["oid"] == response["sub"] and response["tid"] in response["iss"]
    assert site.tokens["dan"] not in answer.text
    assert claims(token_of(site, "carl"))["oid"] != response["oid"]


def test_sdk_v1_requests_a_token_by_a_form(site: Served) -> None:
    headers = {"Secret": site.tokens["dan"], "Metadata": "true"}
    form = {"resource": ARM, "api-version": "2017-09-01"}
    answer: Any = site.client.post("/msi/token", data=form, headers=headers)
    assert answer.status_code == 200
    assert claims(answer.json()["access_token"])["upn"] == "dan"


def test_a_jwt_works_wherever_a_token_does(site: Served) -> None:
    site.tokens["dan's jwt"] = token_of(site, "dan")
    user = "dan's jwt"
    assert site.ok(user, "GET", "/v1/whoami")["user"] == "dan"
    site.ok(user, "GET", WORKSPACE)
    site.ok(user, "GET", f"{HERE}/jobs")
    site.ok(user, "GET", f"{MLFLOW}/experiments/get?experiment_id=0")
    site.ok(user, "POST", f"{HERE}/jobs", {**JOB, "name": "one"})
    assert "is a data scientist" in site.refused(user, "PUT", f"{HERE}/computes/new", {})["message"]


def test_without_a_valid_secret_there_is_no_token(site: Served) -> None:
    ask: Any = site.client
    for secret in (b"", b"yard_p_" + b"x" * 43, b"any", b"\xfcnicode", b"a" * 9000):
        for answer in (
            ask.get("/msi/token", params={"resource": ARM}, headers={"X-IDENTITY-HEADER": secret}),
            ask.post("/msi/token", data={"resource": ARM}, headers={"secret": secret}),
        ):
            body = answer.json()
            assert answer.status_code == body["statusCode"] == 401
            assert "yard client-env" in body["message"] == body["error_description"]


def test_a_request_without_a_resource_is_refused(site: Served) -> None:
    answer = fetch(site, site.tokens["dan"], resource=" ")
    assert answer.status_code == 400 and "`resource`" in answer.json()["message"]
    assert fetch(site, site.tokens["dan"], resource="r" * 500).status_code == 400


def test_a_jwt_can_not_be_exchanged_for_another(site: Served) -> None:
    assert fetch(site, token_of(site, "dan")).status_code == 401


def test_a_jobs_token_gets_a_jwt_with_the_jobs_permissions(site: Served) -> None:
    site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "one"})
    site.job_token("one", "dan")
    site.tokens["jwt"] = token_of(site, "job of dan")
    whoami = site.ok("jwt", "GET", "/v1/whoami")
    assert (whoami["user"], whoami["job"], whoami["workspace"]) == ("dan", "one", "default")
    assert "a job's token may not" in str(site.refused("jwt", "POST", "/v1/users", {}))


def refusal(site: Served, jwt: str) -> tuple[str, str]:
    """Code and message of Azure's envelope."""
    site.tokens["jwt"] = jwt
    answer = site.ask("jwt", "GET", WORKSPACE)
    assert answer.status_code == 401, answer.text
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    error = answer.json()["error"]
    return error["code"], error["message"]


def test_a_jwt_expires_after_an_hour_and_the_next_is_valid(site: Served, clock: FakeClock) -> None:
    first = token_of(site, "dan")
    clock.advance(timedelta(hours=1).total_seconds())
    code, message = refusal(site, first)
    assert code == "InvalidAuthenticationToken"
    assert "the token expired at 2026-01-01 01:00 UTC" in message and "Hint: " in message
    site.tokens["jwt"] = token_of(site, "dan")
    site.ok("jwt", "GET", WORKSPACE)


def test_a_jwt_is_revoked_with_its_token(site: Served) -> None:
    jwt = token_of(site, "dan")
    site.tokens["jwt"] = jwt
    site.ok("jwt", "GET", WORKSPACE)
    site.ok("home", "DELETE", "/v1/users/dan/tokens/first")
    _, message = refusal(site, jwt)
    assert "issued for is no longer valid" in message and "yard client-env" in message
    assert fetch(site, site.tokens["dan"]).status_code == 401


def test_a_jwt_is_revoked_with_its_person(site: Served) -> None:
    jwt = token_of(site, "dan")
    site.ok("home", "DELETE", "/v1/users/dan")
    assert "no longer valid" in refusal(site, jwt)[1]


def test_a_jwt_expires_no_later_than_its_token(site: Served, clock: FakeClock) -> None:
    ends_at = clock.now() + timedelta(minutes=10)
    request = {"name": "short", "expires_at": ends_at.isoformat()}
    created = site.ok("home", "POST", "/v1/users/dan/tokens", request)
    answer = fetch(site, created["token"]).json()
    assert answer["expires_in"] == "600"
    clock.advance(600)
    assert "expired at" in refusal(site, answer["access_token"])[1]
    assert "expired at" in fetch(site, created["token"]).json()["message"]


def test_a_forged_jwt_is_refused(site: Served) -> None:
    for jwt in (
        "eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOiJ4In0.c2lnbmF0dXJl",
        f"{jwts.HEAD}.e30.",
        f"{jwts.HEAD}..",
        "ey..",
        f"{jwts.HEAD}.{'A' * 5000}.{'A' * 43}",
        f"{jwts.HEAD}.e30.{'A' * 43}",
    ):
        code, message = refusal(site, jwt)
        assert code == "InvalidAuthenticationToken"
        assert "not issued by this server" in message or "another torchyard server" in message
    head, body, signature = token_of(site, "dan").split(".")
    response = claims(f"{head}.{body}.{signature}") | {"exp": 2**33}
    forged = base64.urlsafe_b64encode(json.dumps(response).encode()).decode().rstrip("=")
    assert "was changed" in refusal(site, f"{head}.{forged}.{signature}")[1]


def test_another_servers_jwt_is_recognized(tmp_path: Path, clock: FakeClock) -> None:
    for home in ("one", "two"):
        (tmp_path / home).mkdir()
    first, second = (Signer(tmp_path / home, home) for home in ("one", "two"))
    token = first.sign("yard_p_x", "dan", ARM, clock.now())
    # A restarted server, or another one of a shared home, has the same key.
    again = Signer(tmp_path / "one", "one")
    assert again.read(token, clock.now()) == first.read(token, clock.now())
    with pytest.raises(NotAuthenticated, match="another torchyard server"):
        second.read(token, clock.now())


def test_the_audience_is_the_one_that_clients_compare(tmp_path: Path, clock: FakeClock) -> None:
    signer = Signer(tmp_path, "a server")
    for request in ("https://ml.azure.x", "https://ml.azure.x/", "https://ml.azure.x/.default"):
        created = signer.sign("yard_p_x", "dan", request, clock.now())
        assert claims(created)["aud"] == "https://ml.azure.x"
    with pytest.raises(InvalidInput, match="longer than 200"):
        signer.sign("yard_p_x", "dan", "x" * 201, clock.now())
