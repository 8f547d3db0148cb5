"""Endpoints and deployments over HTTP: what is kept, what is refused, who may do what."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from torchyard.endpoints.actions import deployed_models, safe_models
from torchyard.endpoints.records import address, store
from torchyard.endpoints.records.types import Instance, InstanceState, ProvisioningState
from torchyard.endpoints.running import instance_jobs
from torchyard.endpoints.spec import deployment_spec
from torchyard.endpoints.spec.deployment_spec import DeploymentSpec
from torchyard.models import actions as models
from workspaces.served import HERE, Served, served

ENDPOINTS = f"{HERE}/online-endpoints"
DIGITS = f"{ENDPOINTS}/digits"
BLUE = f"{DIGITS}/deployments/blue"


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path, database_url) as made:
        made.ok("carl", "PUT", DIGITS, {"description": "numbers"})
        yield made


def snapshot(site: Served, **contents: str) -> str:
    """Files by name, `_` for a dot."""
    blobs = site.parts.services.blobs.of("default")
    rows = []
    for name, text in contents.items():
        sha256 = blobs.put_bytes(text.encode())
        rows.append(
            {"path": name.replace("_", "."), "sha256": sha256, "size": len(text), "mode": 0o644}
        )
    made = site.ok("carl", "PUT", f"{HERE}/snapshots", {"files": rows})
    return f"snapshot:{made['id']}"


def document(site: Served, **changes: Any) -> dict[str, Any]:
    code = snapshot(site, score_py="def init(): pass\ndef run(data): return data\n")
    return {
        "model": {"path": snapshot(site, model_pkl="weights"), "folder": "model"},
        "code_configuration": {"code": code, "scoring_script": "score.py"},
        "environment": "python",
        "instance_type": "Standard_DS3_v2",
        "instance_count": 1,
        **changes,
    }


def create(site: Served, name: str = "blue", **changes: Any) -> Any:
    return site.ok("carl", "PUT", f"{DIGITS}/deployments/{name}", document(site, **changes))


def wrong(site: Served, method: str, path: str, body: Any = None, who: str = "carl") -> Any:
    answer = site.ask(who, method, path, body)
    assert answer.status_code in (400, 404, 409), answer.text
    error: Any = answer.json()
    return error.get("error", error)


def test_an_unknown_key_of_a_change_is_named_with_the_nearest(site: Served) -> None:
    create(site)
    for path, key, guess in ((DIGITS, "tag", "tags"), (BLUE, "descripton", "description")):
        error = wrong(site, "PATCH", path, {key: {}})
        assert error["message"] == f"unknown key `{key}`"
        assert error["hint"] == f"did you mean `{guess}`?"


def test_an_endpoint_is_created_shown_changed_and_deleted(site: Served) -> None:
    shown = site.ok("rita", "GET", DIGITS)
    assert shown["provisioning_state"] == "Succeeded" and shown["auth_mode"] == "key"
    assert shown["owner"] == "carl" and shown["traffic"] == {} and shown["scoring_uri"] == ""
    address.write(site.parts.services.home, "http://127.0.0.1:4711")
    shown = site.ok("carl", "PATCH", DIGITS, {"tags": {"a": "b"}})
    assert shown["tags"] == {"a": "b"} and shown["description"] == "numbers"
    assert shown["scoring_uri"] == "http://127.0.0.1:4711/endpoints/default/digits/score"
    assert [row["name"] for row in site.ok("rita", "GET", ENDPOINTS)["value"]] == ["digits"]
    site.ok("carl", "DELETE", DIGITS)
    assert wrong(site, "GET", DIGITS)["code"] == "endpoint_not_found"
    site.ok("carl", "PUT", DIGITS, {})


def test_a_deployment_is_pinned_and_each_change_is_a_revision(site: Served) -> None:
    shown = create(site)
    assert (shown["provisioning_state"], shown["revision"]) == ("Creating", 1)
    assert shown["environment"].startswith("azureml:") and shown["model"]["folder"] == "model"
    assert not [notice for notice in shown["notices"] if "command" in notice]
    changed = site.ok("carl", "PATCH", BLUE, {"request_settings": {"request_timeout_ms": 9}})
    changed = site.ok("carl", "PATCH", BLUE, {"request_settings": {"max_queue_wait_ms": 8}})
    assert (changed["provisioning_state"], changed["revision"]) == ("Updating", 3)
    assert changed["request_settings"] == {"request_timeout_ms": 9, "max_queue_wait_ms": 8}
    (row,) = site.ok("rita", "GET", f"{DIGITS}/deployments")["value"]
    assert row["name"] == "blue" and row["instances"] == []


def test_a_document_is_checked_before_its_files_are_sent(site: Served) -> None:
    before = site.rows()
    body = {"model": {"path": "./model"}, "app_insights_enabled": True}
    (notice,) = site.ok("rita", "POST", f"{BLUE}/validate", body)["notices"]
    assert "app_insights_enabled" in notice
    for change in ({"type": "kubernetes"}, {"instance_count": 0}, {"name": "green"}):
        wrong(site, "POST", f"{BLUE}/validate", {**body, **change}, who="rita")
    assert site.rows() == before


def served_now(site: Served) -> None:
    """What the keeper writes once the newest revision answers."""
    with site.parts.services.db.write() as connection:
        (row,) = store.deployments_in(connection)
        store.change_deployment(
            connection,
            row,
            served_document=dict(row.document),
            served_revision=row.revision,
            state=ProvisioningState.SUCCEEDED,
        )


def test_what_instances_do_not_know_changes_without_a_revision(site: Served) -> None:
    create(site)
    served_now(site)
    settings = {"max_queue_wait_ms": 8}
    for changes in ({"instance_count": 3}, {"request_settings": settings}):
        changed = site.ok("carl", "PATCH", BLUE, changes)
        assert (changed["revision"], changed["served_revision"]) == (1, 1)
        assert changed["provisioning_state"] == "Updating"
    with site.parts.services.db.read() as connection:
        (row,) = store.deployments_in(connection)
    assert row.served_document["instance_count"] == 3
    assert row.served_document["request_settings"] == settings
    # What they know is a revision.
    changed = site.ok("carl", "PATCH", BLUE, {"environment_variables": {"A": "b"}})
    assert (changed["revision"], changed["served_revision"]) == (2, 1)
    # So is all while one is tried.
    assert site.ok("carl", "PATCH", BLUE, {"instance_count": 4})["revision"] == 3


def test_a_model_that_a_deployment_names_is_not_deleted(site: Served) -> None:
    model = {"name": "net", "path": snapshot(site, model_onnx="o"), "type": "custom_model"}
    for _ in range(2):
        site.ok("carl", "POST", f"{HERE}/models", model)
    create(site, model="azureml:net:1", code_configuration=None)
    for path in ("net/versions/1?force=true", "net/versions/1", "net?force=true"):
        error = wrong(site, "DELETE", f"{HERE}/models/{path}")
        assert "deployment `blue` of endpoint `digits` serves it" in error["message"]
    site.ok("carl", "DELETE", f"{HERE}/models/net/versions/2")
    site.ok("carl", "DELETE", BLUE)
    site.ok("carl", "DELETE", f"{HERE}/models/net/versions/1?force=true")


def test_a_refused_change_leaves_the_deployment_as_it_was(site: Served) -> None:
    create(site)
    before = site.rows()
    for body in ({"instance_count": 0}, {"model": "azureml:absent:1"}, {"environment": "nope"}):
        wrong(site, "PATCH", BLUE, body)
    assert site.rows() == before


def test_a_registered_model_is_pinned_to_its_version(site: Served) -> None:
    model = {"name": "net", "path": snapshot(site, model_onnx="o"), "type": "custom_model"}
    site.ok("carl", "POST", f"{HERE}/models", model)
    shown = create(site, model="azureml:net@latest", code_configuration=None)
    assert shown["model"] == "azureml:net:1"
    site.ok("carl", "POST", f"{HERE}/models", model)
    assert site.ok("rita", "GET", BLUE)["model"] == "azureml:net:1"


def test_an_inline_model_with_a_name_is_registered_once(site: Served) -> None:
    inline = {"name": "net", "version": "3", "path": snapshot(site, m_pkl="w")}
    for _ in range(2):
        assert create(site, model=inline)["model"] == "azureml:net:3"
    (row,) = site.ok("rita", "GET", f"{HERE}/models")["value"]
    assert row["version"] == 3


@pytest.mark.parametrize("is_inline", [False, True], ids=["registered", "inline"])
def test_a_registered_model_keeps_the_name_of_its_folder(site: Served, is_inline: bool) -> None:
    model = {"name": "iris", "path": snapshot(site, iris_pkl="w"), "folder": "models"}
    if is_inline:
        create(site, model=model)
    else:
        site.ok("carl", "POST", f"{HERE}/models", model)
    registered = models.get(site.parts.services.db, "default", "iris", "1")
    reference = deployed_models.reference_of(registered)
    assert (reference.folder, reference.is_file) == ("models", False)
    assert [file.path for file in registered.files] == ["iris.pkl"]


_SKLEARN = "{python_function: {loader_module: mlflow.sklearn}, sklearn: {}}"
_CUSTOM = "{python_function: {loader_module: mlflow.pyfunc.model}}"
_OWN_CODE = "{python_function: {loader_module: mlflow.sklearn, code: code}}"


@pytest.mark.parametrize(
    ("files", "packages", "is_safe"),
    [
        ({"MLmodel": f"flavors: {_SKLEARN}"}, "mlflow", True),
        ({"MLmodel": f"flavors: {_CUSTOM}"}, "mlflow", False),
        ({"MLmodel": f"flavors: {_OWN_CODE}"}, "mlflow", False),
        ({"MLmodel": "flavors: ["}, "mlflow", False),
        ({"MLmodel": "flavors: "}, "mlflow", False),
        ({"net_onnx": "a graph"}, "onnxruntime", True),
        ({"net_onnx": "a graph"}, "onnxruntime-gpu", False),
        ({"net_pt2": "a program"}, "torch", False),
    ],
)
def test_a_model_whose_predictions_leave_it_as_it_is_has_several_processes(
    site: Served, files: dict[str, str], packages: str, is_safe: bool
) -> None:
    expected = min(len(os.sched_getaffinity(0)), 8) if is_safe else 0
    kind = "mlflow_model" if "MLmodel" in files else "custom_model"
    model = {"path": snapshot(site, **files), "type": kind}
    environment = {"pip_requirements": f"{packages}\n"}
    create(site, model=model, code_configuration=None, environment=environment)
    spec, variables = stored(site)
    at_once = spec.request_settings.max_concurrent_requests_per_instance
    assert (spec.model and spec.model.processes, at_once) == (expected, max(expected, 1))
    assert variables.get("WORKER_COUNT") == (str(expected) if expected > 1 else None)
    # What is written goes before what is found.
    written = {"WORKER_COUNT": "3"}
    create(
        site,
        model=model,
        code_configuration=None,
        environment=environment,
        environment_variables=written,
        request_settings={"max_concurrent_requests_per_instance": 2},
    )
    spec, variables = stored(site)
    assert spec.request_settings.max_concurrent_requests_per_instance == 2
    assert variables == written
    # Of a script it is its author who knows.
    create(site, model=model)
    spec, variables = stored(site)
    assert spec.model is not None and spec.model.processes == 0
    assert variables == {}


def test_a_large_model_is_in_memory_once(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_models, "_SMALL_BYTES", 100)
    model = {"path": snapshot(site, net_onnx="a graph" * 20), "type": "custom_model"}
    environment = {"pip_requirements": "onnxruntime\n"}
    create(site, model=model, code_configuration=None, environment=environment)
    spec, _ = stored(site)
    assert spec.model is not None and spec.model.processes == 0


def stored(site: Served) -> tuple[DeploymentSpec, dict[str, str]]:
    """The one deployment, and the variables of an instance of it."""
    services = site.parts.services
    with services.db.read() as connection:
        (deployment,) = store.deployments_in(connection)
    spec = deployment_spec.read(dict(deployment.document))
    now = services.clock.now()
    instance = Instance(
        "default", "digits", "blue", 1, 0, "blue-1", InstanceState.STARTING, "", "", now
    )
    job = instance_jobs.document_of(services, deployment, spec, instance)
    return spec, job["environment_variables"]


def test_an_mlflow_model_brings_its_environment_and_needs_no_script(site: Served) -> None:
    conda = json.dumps({"dependencies": ["python=3.11", "pip", {"pip": ["six"]}]})
    path = snapshot(site, MLmodel="flavors: {}\n", conda_yaml=conda)
    model = {"path": path, "type": "mlflow_model"}
    shown = create(site, model=model, code_configuration=None, environment=None)
    assert shown["environment"] == {"conda_file": json.loads(conda)}


@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({"model": "azureml:absent:1"}, ["model"]),
        ({"model": {"path": "azureml://jobs/absent/outputs/artifacts/paths/x"}}, ["model"]),
        ({"environment": None}, []),
        ({"environment": "no-such-environment"}, ["environment"]),
        ({"code_configuration": None}, []),
        ({"torchyard": {"cluster": "absent"}}, ["torchyard", "cluster"]),
        ({"endpoint_name": "other"}, ["endpoint_name"]),
        ({"name": "green"}, ["name"]),
    ],
)
def test_what_a_deployment_names_must_be_there(
    site: Served, changes: dict[str, Any], at: list[str]
) -> None:
    before = site.parts.services.db
    error = wrong(site, "PUT", BLUE, document(site, **changes))
    assert list(error.get("at", []))[: len(at)] == at, error
    with before.read() as connection:
        assert store.deployments_in(connection) == []


def test_a_missing_scoring_script_is_named(site: Served) -> None:
    code = snapshot(site, main_py="")
    body = document(site, code_configuration={"code": code, "scoring_script": "score.py"})
    error = wrong(site, "PUT", BLUE, body)
    assert error["code"] == "scoring_script_missing" and "`main.py`" in error["hint"]


def test_traffic_names_deployments_that_exist(site: Served) -> None:
    error = wrong(site, "PUT", f"{ENDPOINTS}/fresh", {"traffic": {"blue": 100}})
    assert error["code"] == "deployment_not_found"
    create(site)
    error = wrong(site, "PATCH", DIGITS, {"traffic": {"blau": 100}})
    assert error["hint"] == "did you mean `blue`?" and list(error["at"]) == ["traffic", "blau"]
    assert wrong(site, "PATCH", DIGITS, {"traffic": {"blue": 90}})["at"] == ["traffic"]
    assert site.ok("carl", "PATCH", DIGITS, {"traffic": {"BLUE": 100}})["traffic"] == {"blue": 100}
    error = wrong(site, "PATCH", DIGITS, {"mirror_traffic": {"blue": 10}})
    assert error["at"] == ["mirror_traffic", "blue"]


def test_traffic_stays_when_the_file_says_nothing_of_it(site: Served) -> None:
    create(site)
    site.ok("carl", "PATCH", DIGITS, {"traffic": {"blue": 100}})
    assert site.ok("carl", "PUT", DIGITS, {"tags": {"a": "b"}})["traffic"] == {"blue": 100}
    assert site.ok("carl", "PATCH", DIGITS, {"traffic": {"blue": 0}})["traffic"] == {}


def test_a_deployment_with_traffic_is_not_deleted(site: Served) -> None:
    create(site)
    for share in ({"traffic": {"blue": 100}}, {"traffic": {}, "mirror_traffic": {"blue": 10}}):
        site.ok("carl", "PATCH", DIGITS, share)
        assert wrong(site, "DELETE", BLUE)["code"] == "deployment_has_traffic"
    site.ok("carl", "PATCH", DIGITS, {"mirror_traffic": {}})
    assert site.ok("carl", "DELETE", BLUE)["provisioning_state"] == "Deleting"
    assert wrong(site, "PUT", BLUE, document(site))["code"] == "deployment_being_deleted"


def test_an_endpoint_with_deployments_is_deleted_by_the_keeper(site: Served) -> None:
    create(site)
    site.ok("carl", "PATCH", DIGITS, {"traffic": {"blue": 100}})
    shown = site.ok("carl", "DELETE", DIGITS)
    assert shown["provisioning_state"] == "Deleting" and shown["traffic"] == {}
    with site.parts.services.db.read() as connection:
        (deployment,) = store.deployments_in(connection)
    assert deployment.state is ProvisioningState.DELETING
    assert wrong(site, "PUT", DIGITS, {})["code"] == "endpoint_being_deleted"
    assert wrong(site, "PUT", BLUE, document(site))["code"] == "endpoint_being_deleted"


def test_keys_are_shown_to_those_who_may_and_one_at_a_time_replaced(site: Served) -> None:
    site.refused("rita", "POST", f"{DIGITS}/keys")
    before = site.ok("dan", "POST", f"{DIGITS}/keys")
    assert before["primaryKey"] != before["secondaryKey"] and len(before["primaryKey"]) > 30
    path = f"{DIGITS}/keys/regenerate"
    site.refused("dan", "POST", path, {"key_type": "primary"})
    after = site.ok("carl", "POST", path, {"key_type": "Primary"})
    assert after["primaryKey"] != before["primaryKey"]
    assert after["secondaryKey"] == before["secondaryKey"]
    assert wrong(site, "POST", path, {"key_type": "third"})["at"] == ["key_type"]
    for value in ("short", "x" * 129, "y" * 40 + "\r\nz"):
        body = {"key_type": "primary", "key_value": value}
        assert wrong(site, "POST", path, body)["at"] == ["key_value"]
    chosen = {"key_type": "secondary", "key_value": "z" * 40}
    assert site.ok("carl", "POST", path, chosen)["secondaryKey"] == "z" * 40
    everything = json.dumps([site.ok("carl", "GET", DIGITS), site.ok("carl", "GET", ENDPOINTS)])
    assert after["primaryKey"] not in everything
    assert wrong(site, "POST", f"{DIGITS}/token")["code"] == "wrong_auth_mode"
    audit = (site.parts.services.home / "audit").rglob("*")
    assert all(after["primaryKey"] not in file.read_text() for file in audit if file.is_file())


def test_a_token_is_a_jwt_signed_with_the_endpoints_secret(site: Served) -> None:
    site.ok("carl", "PATCH", DIGITS, {"auth_mode": "aml_token"})
    assert wrong(site, "POST", f"{DIGITS}/keys")["code"] == "wrong_auth_mode"
    token = site.ok("dan", "POST", f"{DIGITS}/token")["accessToken"]
    head, claims, signature = token.split(".")
    services = site.parts.services
    with services.db.read() as connection:
        endpoint = store.endpoint_named(connection, "default", "digits")
        assert endpoint is not None
        secret = base64.b64decode(store.keys_of(connection, endpoint).token_secret)
    digest = hmac.digest(secret, f"{head}.{claims}".encode(), hashlib.sha256)
    assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == signature
    content = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert content["aud"] == "default/digits" and content["sub"] == "dan"
    assert content["exp"] - content["iat"] == 3600


def test_the_router_learns_who_may_score_with_their_own_token(site: Served) -> None:
    site.refused("rita", "GET", f"{DIGITS}/access")
    site.ok("carl", "PATCH", DIGITS, {"auth_mode": "aad_token"})
    assert site.ok("rita", "GET", f"{DIGITS}/access") == {"user": "rita"}
    assert site.client.get(f"{DIGITS}/access").status_code == 401


def test_an_endpoint_is_changed_by_its_owner_or_a_contributor(site: Served) -> None:
    site.ok("dan", "PUT", f"{ENDPOINTS}/of-dan", {})
    site.add("dora", "data-scientist")
    for who in ("dora", "rita"):
        site.refused(who, "PATCH", f"{ENDPOINTS}/of-dan", {"tags": {}})
        site.refused(who, "PUT", f"{ENDPOINTS}/of-dan", {})
        site.refused(who, "DELETE", f"{ENDPOINTS}/of-dan")
        path = f"{ENDPOINTS}/of-dan/deployments/blue"
        site.refused(who, "PUT", path, document(site))
    site.ok("carl", "PATCH", f"{ENDPOINTS}/of-dan", {"tags": {"seen": "yes"}})
    site.ok("dan", "DELETE", f"{ENDPOINTS}/of-dan")


def test_secret_variables_are_not_shown_and_survive_a_change(site: Served) -> None:
    create(site, environment_variables={"API_KEY": "hush-hush-hush", "MODE": "fast"})
    shown = site.ok("carl", "PATCH", BLUE, {"instance_count": 2})
    assert "hush" not in json.dumps(shown) and shown["environment_variables"]["MODE"] == "fast"
    with site.parts.services.db.read() as connection:
        (deployment,) = store.deployments_in(connection)
    assert deployment.document["environment_variables"]["API_KEY"] == "hush-hush-hush"


def test_logs_of_a_deployment_without_instance_are_its_message(site: Served) -> None:
    create(site)
    assert site.ok("rita", "GET", f"{BLUE}/logs") == {"content": ""}
    assert wrong(site, "GET", f"{BLUE}/logs?lines=0")["at"] == ["lines"]
    assert wrong(site, "GET", f"{BLUE}/logs?instance=blue-1-9")["code"] == "not_found"


def test_a_request_is_tried_as_a_caller_sends_it(site: Served) -> None:
    create(site)
    key = site.ok("carl", "POST", f"{DIGITS}/keys", {})["primaryKey"]
    with router(status=424, answer=b"\xffno") as (url, requests):
        address.write(site.parts.services.home, url)
        body = {"request": '{"data": [1]}', "deployment": "blue"}
        answer = site.ok("carl", "POST", f"{DIGITS}/try", body)
    assert (answer["status"], answer["content"]) == (424, "\ufffdno")
    ((path, headers, sent),) = requests
    assert path == "/endpoints/default/digits/score"
    assert headers["Authorization"] == f"Bearer {key}"
    assert headers["azureml-model-deployment"] == "blue"
    assert sent == b'{"data": [1]}'


def test_a_request_that_can_not_be_tried_is_refused(site: Served) -> None:
    def tried(endpoint: str = DIGITS, who: str = "carl", **body: Any) -> tuple[int, str]:
        answer = site.ask(who, "POST", f"{endpoint}/try", {"request": "{}", **body})
        return answer.status_code, answer.json()["error"]["message"]

    assert tried() == (
        409,
        "endpoint `digits` has no address yet: its router has not started",
    )
    assert tried(deployment="grey\r\nX: y")[0] == 404
    assert tried(f"{ENDPOINTS}/none")[0] == 404
    assert tried(request=3)[0] == 400
    assert tried(who="rita")[0] == 403
    with router(status=200, answer=b"") as (url, _):
        pass
    address.write(site.parts.services.home, url)
    status, message = tried()
    assert status >= 500 and message.startswith("endpoint `digits` did not answer (")
    site.ok("carl", "PUT", f"{ENDPOINTS}/people", {"auth_mode": "aad_token"})
    assert tried(f"{ENDPOINTS}/people")[0] == 409


@contextmanager
def router(status: int, answer: bytes) -> Iterator[tuple[str, list[Any]]]:
    """A server in the router's place; its address, and what it was sent."""
    requests: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            requests.append((self.path, dict(self.headers), self.rfile.read(size)))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *words: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()
        thread.join()
