"""Every operation of the API that changes something, as each role, on one's own and another's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from releases.release_lab import entry
from torchyard.endpoints.records import store
from torchyard.endpoints.records.types import ProvisioningState
from torchyard.workspaces import ownership
from torchyard.workspaces.ownership import Rule
from torchyard.workspaces.permissions import MINIMUM_ROLE
from torchyard.workspaces.types import Role, role_named
from workspaces.served import HERE, JOB, PEOPLE, Served, served
from workspaces.test_permissions import every_permission

ONE_DATABASE = True
_W = "/v1/workspaces/{workspace}"
_CODE = {"code": "snapshot:{code}", "scoring_script": "score.py"}
_SCHEDULE = {"every_s": 86400, "torchyard": {"take_over": True}}


class Owned(NamedTuple):
    """An operation on what belongs to somebody; `{who}` in a path or body is the owner."""

    method: str
    path: str
    rule: Rule
    body: Any = None


def _versions(noun: str, body: Any, *, deletes: bool = True, patches: bool = True) -> list[Owned]:
    name, version = f"/{noun}/{{name}}", f"/{noun}/{{name}}/versions/{{version}}"
    change = ownership.ASSET_CHANGE
    rows = [Owned("POST", f"/{noun}", ownership.ASSET_ADD, body)]
    rows += [Owned("PATCH", version, change, {"tags": {"a": "b"}})] if patches else []
    for verb in ("archive", "restore"):
        rows += [Owned("POST", f"{path}/{verb}", change) for path in (name, version)]
    if deletes:
        rows += [Owned("DELETE", path, ownership.ASSET_DELETE) for path in (version, name)]
    return rows


_INSTANCE = {"type": "computeinstance", "torchyard": {"environment": "python"}}
_ONLINE, _BATCH = "/online-endpoints/{endpoint}", "/batch-endpoints/{endpoint}"
_BLUE = "/deployments/{deployment}"
_DEPLOYMENT = {
    "model": "azureml:model-base:1",
    "code_configuration": _CODE,
    "environment": "python",
}
_STORE = {"type": "local", "path": "{folder}"}
OWNED = [
    Owned("PATCH", "/jobs/{name}", ownership.JOB, {"display_name": "x"}),
    Owned("POST", "/jobs/{name}/preempt", ownership.JOB),
    Owned("POST", "/jobs/{name}/release", ownership.JOB, {"nodes": 1}),
    Owned("POST", "/sweeps/{name}/extend", ownership.JOB, {"max_total_trials": 9}),
    Owned("POST", "/pipelines/{name}/retry", ownership.JOB, {"type": "pipeline"}),
    Owned("POST", "/jobs/{name}/shells", ownership.JOB_ENTER, {}),
    Owned("POST", "/jobs/{name}/services/{service}/link", ownership.JOB_ENTER),
    Owned("POST", "/jobs/{name}/cancel", ownership.JOB),
    Owned("POST", "/jobs/{name}/archive", ownership.JOB),
    Owned("POST", "/jobs/{name}/restore", ownership.JOB),
    Owned("DELETE", "/jobs/{name}", ownership.JOB),
    Owned("POST", "/jobs/delete", ownership.JOB, {"names": ["thing-{who}"]}),
    Owned("PUT", _ONLINE, ownership.ENDPOINT, {"description": "x"}),
    Owned("PATCH", _ONLINE, ownership.ENDPOINT, {"description": "y"}),
    Owned("POST", f"{_ONLINE}/keys/regenerate", ownership.ENDPOINT, {"key_type": "primary"}),
    Owned("PUT", _ONLINE + _BLUE, ownership.DEPLOYMENT, _DEPLOYMENT),
    Owned("PATCH", _ONLINE + _BLUE, ownership.DEPLOYMENT, {"instance_count": 2}),
    Owned("DELETE", _ONLINE + _BLUE, ownership.DEPLOYMENT),
    Owned("DELETE", _ONLINE, ownership.ENDPOINT),
    Owned("PUT", _BATCH, ownership.BATCH_ENDPOINT, {"description": "x"}),
    Owned("PATCH", _BATCH, ownership.BATCH_ENDPOINT, {"description": "y"}),
    Owned("PUT", _BATCH + _BLUE, ownership.BATCH_DEPLOYMENT, _DEPLOYMENT),
    Owned("PATCH", _BATCH + _BLUE, ownership.BATCH_DEPLOYMENT, {"description": "z"}),
    Owned("DELETE", _BATCH + _BLUE, ownership.BATCH_DEPLOYMENT),
    Owned("DELETE", _BATCH, ownership.BATCH_ENDPOINT),
    Owned("PUT", "/release-schedules/{environment}", ownership.RELEASE_SCHEDULE_CODE, _SCHEDULE),
    Owned("DELETE", "/release-schedules/{environment}", ownership.RELEASE_SCHEDULE),
    Owned("POST", "/environment-releases/{environment}/release", ownership.ASSET_ADD, {}),
    Owned("DELETE", "/environment-releases/{environment}/wheels", ownership.ASSET_ADD),
    Owned("PUT", "/datastores/{name}", ownership.DATASTORE, _STORE),
    Owned("DELETE", "/datastores/{name}", ownership.DATASTORE),
    Owned("PUT", "/advisories", ownership.ADVISORIES, {"set": "5" * 32, "entries": []}),
    *_versions("data", {"name": "thing-{who}", "path": "https://example.com/a.csv",
                        "type": "uri_file"}),
    *_versions("models", {"name": "thing-{who}", "path": "snapshot:{code}"}),
    *_versions("components", {"name": "thing-{who}", "type": "command", "command": "true",
                              "environment": "python"}, deletes=False, patches=False),
    *_versions("environments", {"name": "thing-{who}", "pip_requirements": ["attrs"]},
               patches=False),
    Owned("POST", "/environments/clone", ownership.ASSET_ADD,
          {"environment": "thing-base", "name": "thing-{who}"}),
    *(Owned(method, f"/instances/{{instance}}{verb}", ownership.INSTANCE, body)
      for method, verb, body in (
          ("POST", "/stop", None), ("POST", "/start", None), ("POST", "/restart", None),
          ("POST", "/link", None),
          ("PUT", "", _INSTANCE), ("DELETE", "", None),
      )),
]  # fmt: skip

# What else changes something, and why it is nobody's own.
NEW = "makes something new, which is the caller's"
SHARED = "is the workspace's or the server's: the route's permission says who may"
READS = "changes nothing"
SELF = "is the caller's own account or shell"
WORKER = "is of the attempt whose worker sends its token"
OTHERS = {
    **{f"POST /v1/attempts/{{attempt_id}}/{path}": WORKER
       for path in ("report", "rendezvous", "history", "tunnel/{name}")},
    **{f"{method} /v1/attempts/{{attempt_id}}/{path}": WORKER
       for method, path in (("PUT", "logs"), ("PUT", "files/{path}"), ("DELETE", "files/{path}"),
                            ("PUT", "outputs/{output}/{path}"))},
    **{f"POST {_W}/{path}": READS
       for path in (
           "jobs/validate", "environments/definition", "environments/resolve",
           "environments/export", "environments/image", "environments/image/layer", "bundle",
           "bundle/handed",
           "environment-releases/{environment}/audit",
           "online-endpoints/{endpoint}/deployments/{deployment}/validate",
           "online-endpoints/{endpoint}/keys", "online-endpoints/{endpoint}/token",
           "online-endpoints/{endpoint}/try", "blobs/missing",
       )},
    **{f"POST {_W}/{path}": NEW
       for path in ("jobs", "blobs", "blobs/handed", "environments/build", "environments/use",
                    "quota-requests", "batch-endpoints/{endpoint}/jobs",
                    "environment-releases/{environment}/validate")},
    f"PUT {_W}/blobs/{{sha256}}": NEW,
    f"PUT {_W}/snapshots": NEW,
    f"POST {_W}/shells/{{id}}/input": SELF,
    **{f"{method} {_W}/{path}": SHARED
       for method, path in (
           ("PUT", "computes/{name}"), ("DELETE", "computes/{name}"), ("PUT", "url-maps"),
           ("DELETE", "url-maps"), ("PUT", "quotas"), ("PUT", "people/{name}"),
           ("POST", "quota-requests/{request_id}/approve"),
           ("POST", "quota-requests/{request_id}/deny"),
           ("PUT", "machines/{compute}/{machine}"), ("DELETE", "machines/{compute}/{machine}"),
           *(("POST", f"machines/{{compute}}/{{machine}}/{verb}")
             for verb in ("token", "report", "drain", "withdraw")),
           ("POST", "machines/{compute}/invitations"),
           ("DELETE", "machines/{compute}/{machine}/token"),
       )},
    **{f"{method} /v1/{path}": SHARED
       for method, path in (
           ("POST", "users"), ("DELETE", "users/{name}"), ("PUT", "users/{name}/role"),
           ("DELETE", "users/{name}/sign-in"), ("PUT", "sign-in/accounts/{name}"),
           ("POST", "workspaces"), ("DELETE", "workspaces/{workspace}"),
           ("POST", "invitations/accept"),
           ("PATCH", "workspaces/{workspace}"), ("POST", "gc"), ("PATCH", "gc/settings"),
       )},
    **{f"{method} /v1/{path}": SELF
       for method, path in (
           ("POST", "users/{name}/tokens"), ("DELETE", "users/{name}/tokens"),
           ("POST", "users/{name}/tokens/{token}/rotate"),
           ("DELETE", "users/{name}/tokens/{token}"), ("POST", "sign-in/token"),
           ("POST", "sign-in/links"), ("POST", "sign-in/session"), ("DELETE", "sign-in/session"),
       )},
}  # fmt: skip


class Things:
    """What dan and carl have, each a thing of every noun."""

    def __init__(self, site: Served, folder: Path) -> None:
        self.site, self.folder = site, folder
        sha256 = site.parts.services.blobs.of("default").put_bytes(b"def run(): ...")
        files = [{"path": "score.py", "sha256": sha256, "size": 14, "mode": 0o644}]
        self.code = site.ok("carl", "PUT", f"{HERE}/snapshots", {"files": files})["id"]
        base = {"name": "model-base", "path": f"snapshot:{self.code}"}
        site.ok("home", "POST", f"{HERE}/models", base)
        environment = {"name": "thing-base", "pip_requirements": ["six"]}
        site.ok("home", "POST", f"{HERE}/environments", environment)

    def make(self, who: str) -> None:
        """Make each thing that is not there."""
        site = self.site
        (self.folder / who).mkdir(exist_ok=True)
        for noun in ("jobs", "environments", "data", "models", "components"):
            there = site.ok("home", "GET", f"{HERE}/{noun}")["value"]
            if not any(row["name"] == f"thing-{who}" for row in there):
                site.ok(who, "POST", f"{HERE}/{noun}", self.body(who, _MADE[noun]))
        site.ok(who, "PUT", self.path(who, "/datastores/{name}"), self.body(who, _STORE))
        self._finish_deletions()
        for kind in (_ONLINE, _BATCH):
            site.ok(who, "PUT", self.path(who, kind), {})
            site.ok(who, "PUT", self.path(who, kind + _BLUE), self.body(who, _DEPLOYMENT))
        schedule = self.path(who, "/release-schedules/{environment}")
        site.ok(who, "PUT", schedule, {"every_s": 86400})
        if who == "carl":
            site.ok(who, "PUT", self.path(who, "/instances/{instance}"), _INSTANCE)

    def _finish_deletions(self) -> None:
        """As the keeper does it, which doesn't run here."""
        with self.site.parts.services.db.write() as connection:
            for endpoint in store.endpoints_in(connection, "default"):
                if endpoint.state is ProvisioningState.DELETING:
                    store.remove_endpoint(connection, endpoint)
            for deployment in store.deployments_in(connection):
                if deployment.state is ProvisioningState.DELETING:
                    store.remove_deployment(connection, deployment)

    def path(self, who: str, path: str) -> str:
        for name in ("name", "endpoint", "environment", "instance"):
            path = path.replace(f"{{{name}}}", f"thing-{who}")
        path = path.replace("{version}", "1").replace("{deployment}", "blue")
        return HERE + path.replace("{service}", "score")

    def body(self, who: str, body: Any) -> Any:
        if isinstance(body, dict):
            return {key: self.body(who, value) for key, value in body.items()}
        if isinstance(body, list):
            return [self.body(who, value) for value in body]
        if not isinstance(body, str):
            return body
        text = body.replace("{who}", who).replace("{code}", self.code)
        return text.replace("{folder}", str(self.folder / who))

    def ask(self, who: str, operation: Owned, owner: str) -> tuple[int, str]:
        path = self.path(owner, operation.path)
        answer = self.site.ask(who, operation.method, path, self.body(owner, operation.body))
        return answer.status_code, answer.text


_MADE = {
    "jobs": {**JOB, "name": "thing-{who}"},
    "environments": {"name": "thing-{who}", "pip_requirements": ["six"]},
    "data": {"name": "thing-{who}", "path": "https://example.com/a.csv", "type": "uri_file"},
    "models": {"name": "thing-{who}", "path": "snapshot:{code}"},
    "components": {"name": "thing-{who}", "type": "command", "command": "true",
                   "environment": "python"},
}  # fmt: skip


@pytest.fixture
def things(tmp_path: Path, database_url: str) -> Iterator[Things]:
    (tmp_path / "folders").mkdir()
    with served(tmp_path / "home", database_url) as site:
        site.add("cora", "contributor")
        site.ok("carl", "PUT", f"{HERE}/advisories", {
            "set": "a" * 32, "entries": [entry("PYSEC-1", "six", "2020-01-01T00:00:00Z")],
            "last": True,
        })  # fmt: skip
        made = Things(site, tmp_path / "folders")
        made.make("carl")
        made.make("dan")
        yield made


def operations(site: Served) -> set[str]:
    """Those of the OpenAPI document that may change something."""
    app: Any = site.client.app
    return {
        f"{method.upper()} {path}"
        for path, methods in app.openapi()["paths"].items()
        for method in methods
        if method not in ("get", "head")
    }


def test_every_operation_that_changes_something_has_a_rule_or_says_why_not(things: Things) -> None:
    owned = {f"{each.method} {_W}{each.path}" for each in OWNED}
    assert not owned & set(OTHERS)
    assert operations(things.site) == owned | set(OTHERS)
    assert (len(owned), len(OTHERS)) == (67, 68)


def test_nothing_of_anothers_is_changed_below_the_role_that_its_rule_names(
    things: Things,
) -> None:
    """Rita and dan ask for what is carl's, cora for what only owners may; nothing changes."""
    site = things.site
    site.ok("carl", "POST", f"{HERE}/jobs/thing-carl/cancel")
    before = site.rows()
    asked = 0
    for who in ("rita", "dan", "cora"):
        role = Role.CONTRIBUTOR if who == "cora" else role_named(PEOPLE[who])
        for operation in OWNED:
            if role.rank >= operation.rule.others.rank:
                continue
            status, text = things.ask(who, operation, "carl")
            assert status == 403, (who, operation, status, text)
            least = operation.rule.others.value
            assert who == "rita" or f"`{least}` is required" in text or "required to" in text
            asked += 1
    assert site.rows() == before
    assert asked == 2 * len(OWNED) + 8, asked


def test_ones_own_and_what_the_role_allows_is_changed(things: Things) -> None:
    """Dan changes what is his, then a contributor and an owner what is carl's."""
    site = things.site
    permissions = every_permission(site)
    asked = 0
    for who, owner in (("dan", "dan"), ("cora", "carl"), ("olga", "carl")):
        role = Role.CONTRIBUTOR if who == "cora" else role_named(PEOPLE[who])
        for operation in OWNED:
            permission = permissions[operation.method, _W + operation.path]
            assert permission is not None
            least = MINIMUM_ROLE[permission]
            is_carls = operation.rule in (ownership.ADVISORIES, ownership.INSTANCE)
            if role.rank < least.rank or (who == "dan" and is_carls):
                continue
            if who != owner and role.rank < operation.rule.others.rank:
                continue
            status, text = things.ask(who, operation, owner)
            assert status != 403 and status < 500, (who, operation, status, text)
            asked += 1
            if operation.method == "DELETE" or operation.path == "/jobs/delete":
                things.make(owner)
    assert asked == 186, asked


def test_what_nobody_is_known_to_have_made_is_as_anothers(things: Things) -> None:
    site, body = things.site, {"type": "local", "path": str(things.folder / "dan")}
    with site.parts.services.db.write() as connection:
        connection.exec_driver_sql("UPDATE datastores SET owner = ''")
    site.refused("dan", "PUT", f"{HERE}/datastores/thing-dan", body)
    site.ok("cora", "PUT", f"{HERE}/datastores/thing-dan", body)
