"""Tokens as Azure's clients fetch and send them: good ones, and every other kind."""

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
    with served(tmp_path, database_url, clock) as made:
        yield made


def fetch(site: Served, secret: str, resource: str = ARM) -> httpx2.Response:
    """As azure-identity and MSAL do in an App Service."""
    answer: Any = site.client.get(
        "/msi/token",
        params={"api-version": "2019-08-01", "resource": resource},
        headers={"X-IDENTITY-HEADER": secret, "Metadata": "true"},
    )
    return answer  # type: ignore[no-any-return]


def token_of(site: Served, who: str) -> str:
    answer = fetch(site, site.tokens[who])
    assert answer.status_code == 200, answer.text
    return str(answer.json()["access_token"])


def claims(jwt: str) -> dict[str, Any]:
    head, body, signature = jwt.split(".")
    assert len(base64.urlsafe_b64decode(signature + "=")) == 32
    assert json.loads(base64.urlsafe_b64decode(head + "=="))["typ"] == "JWT"
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return found


def test_the_answer_is_what_clients_look_for(site: Served, clock: FakeClock) -> None:
    answer = fetch(site, site.tokens["dan"])
    body = answer.json()
    assert set(body) == {
        "access_token", "expires_on", "expires_in", "not_before", "resource", "token_type",
    }  # fmt: skip
    now = int(clock.now().timestamp())
    assert (body["expires_on"], body["expires_in"]) == (str(now + 3600), "3600")
    assert (body["resource"], body["token_type"]) == (ARM, "Bearer")
    assert answer.headers["cache-control"] == "no-store"
    told = claims(body["access_token"])
    assert (told["aud"], told["iat"], told["exp"]) == (ARM.rstrip("/"), now, now + 3600)
    assert told["upn"] == told["unique_name"] == told["name"] == "dan"
    assert told["oid"] == told["sub"] and told["tid"] in told["iss"]
    assert site.tokens["dan"] not in answer.text
    assert claims(token_of(site, "carl"))["oid"] != told["oid"]


def test_sdk_v1_asks_by_form(site: Served) -> None:
    headers = {"Secret": site.tokens["dan"], "Metadata": "true"}
    form = {"resource": ARM, "api-version": "2017-09-01"}
    answer: Any = site.client.post("/msi/token", data=form, headers=headers)
    assert answer.status_code == 200
    assert claims(answer.json()["access_token"])["upn"] == "dan"


def test_it_passes_wherever_a_token_does(site: Served) -> None:
    site.tokens["dan's jwt"] = token_of(site, "dan")
    who = "dan's jwt"
    assert site.ok(who, "GET", "/v1/whoami")["user"] == "dan"
    site.ok(who, "GET", WORKSPACE)
    site.ok(who, "GET", f"{HERE}/jobs")
    site.ok(who, "GET", f"{MLFLOW}/experiments/get?experiment_id=0")
    site.ok(who, "POST", f"{HERE}/jobs", {**JOB, "name": "one"})
    assert "is a data scientist" in site.refused(who, "PUT", f"{HERE}/computes/new", {})["message"]


def test_without_a_good_secret_there_is_none(site: Served) -> None:
    ask: Any = site.client
    for secret in (b"", b"yard_p_" + b"x" * 43, b"any", b"\xfcnicode", b"a" * 9000):
        for answer in (
            ask.get("/msi/token", params={"resource": ARM}, headers={"X-IDENTITY-HEADER": secret}),
            ask.post("/msi/token", data={"resource": ARM}, headers={"secret": secret}),
        ):
            body = answer.json()
            assert answer.status_code == body["statusCode"] == 401
            assert "yard client-env" in body["message"] == body["error_description"]


def test_a_request_that_names_no_resource(site: Served) -> None:
    answer = fetch(site, site.tokens["dan"], resource=" ")
    assert answer.status_code == 400 and "`resource`" in answer.json()["message"]
    assert fetch(site, site.tokens["dan"], resource="r" * 500).status_code == 400


def test_a_token_of_this_kind_fetches_no_further_one(site: Served) -> None:
    assert fetch(site, token_of(site, "dan")).status_code == 401


def test_a_jobs_token_fetches_one_with_the_jobs_rights(site: Served) -> None:
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


def test_it_ends_after_an_hour_and_the_next_is_good(site: Served, clock: FakeClock) -> None:
    first = token_of(site, "dan")
    clock.advance(timedelta(hours=1).total_seconds())
    code, message = refusal(site, first)
    assert code == "InvalidAuthenticationToken"
    assert "the token ended at 2026-01-01 01:00 UTC" in message and "Hint: " in message
    site.tokens["jwt"] = token_of(site, "dan")
    site.ok("jwt", "GET", WORKSPACE)


def test_it_ends_with_the_token_behind(site: Served) -> None:
    jwt = token_of(site, "dan")
    site.tokens["jwt"] = jwt
    site.ok("jwt", "GET", WORKSPACE)
    site.ok("home", "DELETE", "/v1/users/dan/tokens/first")
    _, message = refusal(site, jwt)
    assert "got with one that is good no more" in message and "yard client-env" in message
    assert fetch(site, site.tokens["dan"]).status_code == 401


def test_it_ends_with_its_person(site: Served) -> None:
    jwt = token_of(site, "dan")
    site.ok("home", "DELETE", "/v1/users/dan")
    assert "good no more" in refusal(site, jwt)[1]


def test_it_ends_no_later_than_the_token_behind(site: Served, clock: FakeClock) -> None:
    ends_at = clock.now() + timedelta(minutes=10)
    asked = {"name": "short", "expires_at": ends_at.isoformat()}
    made = site.ok("home", "POST", "/v1/users/dan/tokens", asked)
    answer = fetch(site, made["token"]).json()
    assert answer["expires_in"] == "600"
    clock.advance(600)
    assert "ended at" in refusal(site, answer["access_token"])[1]
    assert "ended at" in fetch(site, made["token"]).json()["message"]


def test_what_others_signed_or_changed_opens_nothing(site: Served) -> None:
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
        assert "not of this server" in message or "another torchyard server" in message
    head, body, signature = token_of(site, "dan").split(".")
    told = claims(f"{head}.{body}.{signature}") | {"exp": 2**33}
    forged = base64.urlsafe_b64encode(json.dumps(told).encode()).decode().rstrip("=")
    assert "was changed" in refusal(site, f"{head}.{forged}.{signature}")[1]


def test_another_servers_token_is_told_from_ours(tmp_path: Path, clock: FakeClock) -> None:
    for home in ("one", "two"):
        (tmp_path / home).mkdir()
    one, two = (Signer(tmp_path / home, home) for home in ("one", "two"))
    made = one.sign("yard_p_x", "dan", ARM, clock.now())
    # A server that is started again, or another one of a shared home, has the same key.
    again = Signer(tmp_path / "one", "one")
    assert again.read(made, clock.now()) == one.read(made, clock.now())
    with pytest.raises(NotAuthenticated, match="another torchyard server"):
        two.read(made, clock.now())


def test_the_audience_is_as_clients_compare_it(tmp_path: Path, clock: FakeClock) -> None:
    signer = Signer(tmp_path, "a server")
    for asked in ("https://ml.azure.x", "https://ml.azure.x/", "https://ml.azure.x/.default"):
        made = signer.sign("yard_p_x", "dan", asked, clock.now())
        assert claims(made)["aud"] == "https://ml.azure.x"
    with pytest.raises(InvalidInput, match="longer than 200"):
        signer.sign("yard_p_x", "dan", "x" * 201, clock.now())
