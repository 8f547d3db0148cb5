"""People, roles, tokens, quotas and the audit, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from torchyard.base.clock import FakeClock, to_text
from torchyard.workspaces import audit
from workspaces.served import HERE, JOB, MLFLOW, Served, served


@pytest.fixture
def site(tmp_path: Path, database_url: str, clock: FakeClock) -> Iterator[Served]:
    with served(tmp_path, database_url, clock) as made:
        yield made


def test_whoami_names_user_role_and_token(site: Served) -> None:
    import getpass

    home = site.ok("home", "GET", "/v1/whoami")
    assert (home["user"], home["role"], home["token"]) == (getpass.getuser(), "owner", "home")
    dan = site.ok("dan", "GET", "/v1/whoami?workspace=default")
    assert (dan["user"], dan["role"], dan["expires_at"]) == ("dan", "data scientist", None)
    assert site.ok("dan", "GET", "/v1/whoami?workspace=vision")["role"] is None


def test_people_are_made_changed_and_removed(site: Served) -> None:
    person = {"name": "anna", "role": "Data Scientist", "workspace": "default"}
    made = site.ok("home", "POST", "/v1/users", person)
    assert made["roles"] == {"default": "data scientist"}
    taken = site.ask("home", "POST", "/v1/users", {"name": "Anna"})
    assert taken.status_code == 409 and "yard user token create anna" in taken.text
    site.ok("olga", "PUT", f"{HERE}/people/anna", {"role": "contributor"})
    assert site.ok("home", "GET", "/v1/users/anna")["roles"] == {"default": "contributor"}
    site.ok("olga", "PUT", f"{HERE}/people/anna", {"role": None})
    assert site.ok("home", "GET", "/v1/users/anna")["roles"] == {}
    site.ok("home", "DELETE", "/v1/users/anna")
    assert site.ask("home", "GET", "/v1/users/anna").status_code == 404
    back = site.ok("home", "POST", "/v1/users", {"name": "anna"})
    assert back["roles"] == {}


WRONG: list[tuple[str, str, object, int, str]] = [
    ("POST", "/v1/users", {"name": "a b"}, 400, "name for a person"),
    ("POST", "/v1/users", {"nam": "x"}, 400, "did you mean `name`?"),
    ("POST", "/v1/users", {"name": "x", "role": "admin"}, 400, "no role `admin`"),
    ("POST", "/v1/users", {"name": "x", "workspace": "nope"}, 404, "does not exist"),
    ("PUT", f"{HERE}/people/dan", {"role": "contributer"}, 400, "did you mean `contributor`?"),
    ("PUT", f"{HERE}/people/dann", {"role": "owner"}, 404, "did you mean `dan`?"),
    ("PUT", f"{HERE}/people/dan", {}, 400, "the document has no `role`"),
    ("POST", "/v1/users/dan/tokens", {"name": ""}, 400, "name for a token"),
    ("POST", "/v1/users/dan/tokens", {"name": "first"}, 409, "has a token `first` already"),
    ("POST", "/v1/users/dan/tokens", {"name": "x", "expires_at": "soon"}, 400, "`soon` is"),
    ("DELETE", "/v1/users/dan/tokens/frist", None, 404, "did you mean `first`?"),
]


def test_what_is_wrong_is_named(site: Served) -> None:
    before = site.rows()
    for method, path, body, status, message in WRONG:
        answer = site.ask("home", method, path, body)
        assert answer.status_code == status and message in answer.text, (path, body, answer.text)
    assert site.rows() == before


def test_the_last_owner_stays(site: Served) -> None:
    me = site.ok("home", "GET", "/v1/whoami")["user"]
    for method, path, body in (
        ("DELETE", f"/v1/users/{me}", None),
        ("PUT", f"/v1/users/{me}/role", {"role": "reader"}),
        ("PUT", f"/v1/users/{me}/role", {"role": None}),
    ):
        answer = site.ask("home", method, path, body)
        assert answer.status_code == 409
        assert answer.json()["error"]["code"] == "last_owner"
    site.ok("home", "PUT", "/v1/users/olga/role", {"role": "owner"})
    site.ok("olga", "DELETE", f"/v1/users/{me}")
    assert site.ask("home", "GET", "/v1/whoami").status_code == 401
    assert site.ask("olga", "DELETE", "/v1/users/olga").status_code == 409


def test_an_owner_of_one_workspace_is_none_of_another(site: Served) -> None:
    site.ok("home", "POST", "/v1/workspaces", {"name": "vision"})
    site.refused("olga", "GET", "/v1/workspaces/vision/jobs")
    site.refused("olga", "PUT", "/v1/workspaces/vision/people/dan", {"role": "reader"})
    site.refused("olga", "POST", "/v1/users", {"name": "x"})
    site.refused("olga", "POST", "/v1/users/dan/tokens", {"name": "stolen"})
    names = [workspace["name"] for workspace in site.ok("olga", "GET", "/v1/workspaces")["value"]]
    assert names == ["default"]
    site.add("vera", "owner", "vision")
    people = [person["name"] for person in site.ok("vera", "GET", "/v1/users")["value"]]
    assert "vera" in people and "dan" not in people


def test_tokens_expire(site: Served, clock: FakeClock, tmp_path: Path) -> None:
    until = to_text(clock.now() + timedelta(days=1))
    made = site.ok("dan", "POST", "/v1/users/dan/tokens", {"name": "day", "expires_at": until})
    site.tokens["day"] = made["token"]
    assert made["token"].startswith("yard_p_")
    assert site.ok("day", "GET", "/v1/whoami")["token"] == "day"
    clock.advance(86_400)
    over = site.ask("day", "GET", "/v1/whoami")
    assert over.status_code == 401 and over.json()["error"]["code"] == "token_expired"
    assert "`day` of `dan` expired at 2026-01-02" in over.text
    assert "yard user token create dan" in over.text
    # The name is free again, and what was revoked is good no more.
    again = site.ok("dan", "POST", "/v1/users/dan/tokens", {"name": "day"})
    site.tokens["day"] = again["token"]
    site.ok("day", "DELETE", "/v1/users/dan/tokens/day")
    assert site.ask("day", "GET", "/v1/whoami").status_code == 401
    if (tmp_path / "torchyard.db").exists():
        content = b"".join(path.read_bytes() for path in tmp_path.glob("torchyard.db*"))
        assert made["token"].encode() not in content


def test_a_sign_in_creates_and_renews_no_tokens(site: Served) -> None:
    """They would outlast it, and the person's account at the provider."""
    for name in ("dan", "home"):
        user = site.ok(name, "GET", "/v1/whoami")["user"]
        body = {"name": "sign-in-1"}
        site.tokens[f"{name}'s"] = site.ok("home", "POST", f"/v1/users/{user}/tokens", body)[
            "token"
        ]
    refusal = site.refused("dan's", "POST", "/v1/users/dan/tokens", {"name": "laptop"})
    assert "yard user token create dan" in refusal["hint"]
    renewed = site.ask("dan's", "POST", "/v1/users/dan/tokens/sign-in-1/rotate", {})
    assert renewed.status_code == 400 and "sign in again" in renewed.text
    site.ok("home's", "POST", "/v1/users/dan/tokens", {"name": "laptop"})


def test_the_last_use_of_a_token_is_kept_to_ten_minutes(site: Served, clock: FakeClock) -> None:
    def last() -> str:
        return str(site.ok("home", "GET", "/v1/users/dan/tokens")["value"][0]["last_used_at"])

    site.ok("dan", "GET", "/v1/whoami")
    first = last()
    assert first == to_text(clock.now())
    clock.advance(300)
    site.ok("dan", "GET", "/v1/whoami")
    assert last() == first
    clock.advance(301)
    site.ok("dan", "GET", "/v1/whoami")
    assert last() == to_text(clock.now())


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "/v1/users/dan", None),
        ("PUT", f"{HERE}/people/dan", {"role": None}),
        ("PUT", f"{HERE}/people/dan", {"role": "reader"}),
    ],
)
def test_what_runs_for_a_person_stops_with_their_role(
    site: Served, method: str, path: str, body: Any
) -> None:
    for name in ("one", "two"):
        site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": name})
    site.ok("carl", "POST", f"{HERE}/jobs", {**JOB, "name": "three"})
    answer = site.ok("home", method, path, body)
    if method == "DELETE":
        assert sorted(answer["canceled"]) == ["default/one", "default/two"]
    for name in ("one", "two"):
        shown = site.ok("home", "GET", f"{HERE}/jobs/{name}")
        assert (shown["owner"], shown["status"]) == ("dan", "Canceled")
        assert shown["error"]["code"] == "owner_may_not_run"
    assert site.ok("home", "GET", f"{HERE}/jobs/three")["status"] == "NotStarted"


def test_a_quota_request_is_approved_by_an_owner(site: Served) -> None:
    each = {"user": "*", "limits": {"nodes": 1}}
    site.ok("olga", "PUT", f"{HERE}/quotas", each)
    job = {**JOB, "resources": {"instance_count": 2}}
    refused = site.ask("dan", "POST", f"{HERE}/jobs", job)
    assert refused.status_code == 413
    error = refused.json()["error"]
    assert error["code"] == "quota_exceeded"
    assert error["message"] == (
        "the job needs 2 nodes; quota `nodes` of `dan` in workspace `default` is 1"
    )
    assert "yard quota request nodes=2" in error["hint"]
    request = {"name": "nodes", "most": 2, "reason": "two halves"}
    made = site.ok("dan", "POST", f"{HERE}/quota-requests", request)
    assert "olga" in made["owners"] and made["state"] == "asked"
    path = f"{HERE}/quota-requests/{made['id']}"
    site.refused("carl", "POST", f"{path}/approve")
    assert site.ok("olga", "POST", f"{path}/approve")["state"] == "approved"
    assert site.ask("olga", "POST", f"{path}/deny").status_code == 409
    site.ok("dan", "POST", f"{HERE}/jobs", job)
    rows = site.ok("dan", "GET", f"{HERE}/quotas")["value"]
    assert [(row["user"], row["name"], row["most"], row["used"]) for row in rows] == [
        ("dan", "nodes", 2, 0)
    ]
    nothing = site.ask("dan", "POST", f"{HERE}/quota-requests", request)
    assert nothing.status_code == 400 and "is 2 already" in nothing.text


WRONG_QUOTAS: list[tuple[dict[str, object], str]] = [
    ({"limits": {"node": 1}}, "did you mean `nodes`?"),
    ({"limits": {"nodes": -1}}, "must be a whole number of 0 or more"),
    ({"limits": {"nodes": True}}, "must be a whole number of 0 or more"),
    ({"limits": {"nodes": 1.5}}, "must be a whole number of 0 or more"),
    ({"limits": {}}, "name at least one limit"),
    ({"limits": {"nodes": 1}, "user": "dann"}, "did you mean `dan`?"),
    ({"limit": {"nodes": 1}}, "unknown key `limit`"),
]


def test_wrong_quotas_are_refused(site: Served) -> None:
    for body, message in WRONG_QUOTAS:
        answer = site.ask("olga", "PUT", f"{HERE}/quotas", body)
        assert answer.status_code in (400, 404) and message in answer.text, (body, answer.text)
    assert site.ok("olga", "GET", f"{HERE}/quotas")["value"] == []


def test_everything_that_changes_is_written_down(site: Served, clock: FakeClock) -> None:
    clock.advance(60)
    site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "one", "display_name": "geheim"})
    site.refused("dan", "PUT", f"{HERE}/computes/new", {})
    site.refused("rita", "GET", "/v1/audit")
    made = site.ok("home", "POST", "/v1/users/dan/tokens", {"name": "laptop"})
    site.ok("home", "PUT", f"{HERE}/people/dan", {"role": "contributor"})
    site.client.get(f"{HERE}/jobs", headers={"Authorization": "Bearer yard_p_wrong"})
    site.ok("dan", "GET", f"{HERE}/jobs")
    metric = {"run_id": "one", "key": "m", "value": 1, "timestamp": 1}
    site.ok("dan", "POST", f"{MLFLOW}/runs/log-metric", metric)
    site.ask("dan", "POST", f"{HERE}/jobs/nothing/cancel")
    since = to_text(clock.now())
    lines = site.ok("home", "GET", "/v1/audit", params={"since": since})["value"]
    entries = {(line["user"], line["method"], line["path"], line["outcome"]) for line in lines}
    me = site.ok("home", "GET", "/v1/whoami")["user"]
    assert entries == {
        ("dan", "POST", f"{HERE}/jobs", "done"),
        ("dan", "PUT", f"{HERE}/computes/new", "refused"),
        ("rita", "GET", "/v1/audit", "refused"),
        (me, "POST", "/v1/users/dan/tokens", "done"),
        (me, "PUT", f"{HERE}/people/dan", "done"),
        ("", "GET", f"{HERE}/jobs", "refused"),
        ("dan", "POST", f"{HERE}/jobs/nothing/cancel", "failed"),
    }
    role = next(line for line in lines if "/people/" in line["path"])
    assert role["about"] == {"person": "dan", "role": "contributor"}
    assert role["from"] == "testclient" and role["at"] == since
    text = json.dumps(lines)
    assert made["token"] not in text and "geheim" not in text
    own_lines = site.ok("home", "GET", "/v1/audit", params={"user": "rita"})["value"]
    assert [line["path"] for line in own_lines] == ["/v1/audit"]
    here = site.ok("olga", "GET", f"{HERE}/audit")["value"]
    assert here and all(line["workspace"] == "default" for line in here)


def test_a_request_that_the_server_fails_at_is_written_down_and_counted(site: Served) -> None:
    def fail(person: str) -> list[str]:
        raise RuntimeError(person)

    app: Any = site.client.app
    app.state.hooks = replace(app.state.hooks, stop_unable=fail)
    assert site.ask("home", "DELETE", "/v1/users/dan?cancel=true").status_code == 500
    lines = site.ok("home", "GET", "/v1/audit")["value"]
    (line,) = [line for line in lines if line["status"] == 500]
    assert (line["path"], line["outcome"]) == ("/v1/users/dan", "failed")
    assert 'group="users",status="500"} 1' in site.ask("home", "GET", "/metrics").text


def test_strangers_do_not_fill_the_disk(site: Served) -> None:
    for _ in range(150):
        site.client.get(f"{HERE}/jobs")
    lines = site.ok("home", "GET", "/v1/audit", params={"limit": 1000})["value"]
    assert 1 <= len([line for line in lines if not line["user"]]) <= 120


def test_old_audit_lines_are_removed(tmp_path: Path, clock: FakeClock) -> None:
    lines = audit.Audit(tmp_path, clock)
    lines.write({"user": "dan", "path": "/old"})
    clock.advance(86_400 * (audit.KEPT_DAYS - 1))
    lines.write({"user": "dan", "path": "/newer"})
    assert [line["path"] for line in lines.read()] == ["/newer", "/old"]
    clock.advance(86_400 * 2)
    lines.write({"user": "rita", "path": "/newest"})
    assert [line["path"] for line in lines.read()] == ["/newest", "/newer"]
    assert [line["path"] for line in lines.read(user="dan")] == ["/newer"]
    assert [line["path"] for line in lines.read(limit=1)] == ["/newest"]
    assert lines.read(since=clock.now() + timedelta(seconds=1)) == []
    lines.close()


def test_a_half_written_audit_line_hides_no_other(tmp_path: Path, clock: FakeClock) -> None:
    lines = audit.Audit(tmp_path, clock)
    lines.write({"path": "/one"})
    file = next((tmp_path / "audit").iterdir())
    assert file.stat().st_mode & 0o777 == 0o600
    with open(file, "ab") as opened:
        opened.write(b'{"at": "2026-\n')
    lines.write({"path": "/two"})
    assert sorted(line["path"] for line in lines.read()) == ["/one", "/two"]
    lines.close()
