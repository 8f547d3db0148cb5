"""A name is a name up to its last character: a newline at its end passes no check."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from torchyard import server
from torchyard.app import application
from torchyard.base import refs
from torchyard.base.errors import InvalidInput
from torchyard.base.settings import Settings
from torchyard.executors.fake import FakeExecutor

HERE = "/v1/workspaces/default"
JOB: dict[str, Any] = {"name": "j", "command": "true", "environment": "python"}
VALUE = {"type": "string", "path": "azureml:a:1"}

# (what is named, method, path, body), every name good.
NAMED: list[tuple[str, str, str, Any]] = [
    ("workspace", "POST", "/v1/workspaces", {"name": "{}"}),
    ("workspace's group", "POST", "/v1/workspaces", {"name": "ws1", "resource_group": "{}"}),
    ("compute", "PUT", f"{HERE}/computes/{{}}", {"type": "AmlCompute", "max_instances": 1}),
    ("datastore", "PUT", f"{HERE}/datastores/{{}}", {"type": "local", "path": "/tmp"}),
    ("data", "POST", f"{HERE}/data", {"name": "{}", "path": "azureml:x:1", "type": "uri_file"}),
    (
        "data's version",
        *("POST", f"{HERE}/data"),
        {"name": "d", "version": "{}", "path": "azureml:x:1", "type": "uri_file"},
    ),
    ("model", "POST", f"{HERE}/models", {"name": "{}", "path": "azureml:x:1"}),
    ("model's version", "POST", f"{HERE}/models", {"name": "m", "version": "{}", "path": "x"}),
    ("job", "POST", f"{HERE}/jobs/validate", {**JOB, "name": "{}"}),
    ("experiment", "POST", f"{HERE}/jobs/validate", {**JOB, "experiment_name": "{}"}),
    ("variable", "POST", f"{HERE}/jobs/validate", {**JOB, "environment_variables": {"{}": "1"}}),
    ("input", "POST", f"{HERE}/jobs/validate", {**JOB, "inputs": {"{}": 1}}),
    ("output", "POST", f"{HERE}/jobs/validate", {**JOB, "outputs": {"{}": {}}}),
    (
        "output's asset",
        *("POST", f"{HERE}/jobs/validate"),
        {**JOB, "outputs": {"o": {"type": "uri_folder", "name": "{}"}}},
    ),
    (
        "output's version",
        *("POST", f"{HERE}/jobs/validate"),
        {**JOB, "outputs": {"o": {"type": "uri_folder", "name": "n", "version": "{}"}}},
    ),
    ("job's environment", "POST", f"{HERE}/jobs/validate", {**JOB, "environment": "azureml:{}:1"}),
    ("blob", "PUT", f"{HERE}/blobs/{{}}", None),
]
GOOD = {
    "compute": "cluster",
    "blob": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "data's version": "1",
    "model's version": "1",
    "output's version": "1",
    "job's environment": "python",
}
# These name what must exist, or lie elsewhere; the good name is not looked for here.
ONLY_REFUSED: tuple[str, ...] = ("data", "data's version", "model", "model's version", "datastore")
ONLY_REFUSED += ("job's environment",)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    home = tmp_path_factory.mktemp("home")
    made = application.build(home, "http://127.0.0.1:1", os.environ, executor=FakeExecutor())
    server.ensure_token(made, Settings(home).token_file)
    test_client = TestClient(application.create_app(made), raise_server_exceptions=False)
    test_client.headers["Authorization"] = "Bearer " + Settings(home).token_file.read_text().strip()
    yield test_client
    test_client.close()
    made.services.db.close()


def _filled(body: Any, name: str) -> Any:
    if isinstance(body, dict):
        return {key.replace("{}", name): _filled(value, name) for key, value in body.items()}
    return body.replace("{}", name) if isinstance(body, str) else body


def _ask(client: TestClient, method: str, path: str, body: Any, name: str) -> Any:
    options = {} if body is None else {"json": _filled(body, name)}
    return client.request(method, path.replace("{}", quote(name, safe="")), **options)


@pytest.mark.parametrize("end", ["\n", "\r", "\u2028"])
@pytest.mark.parametrize(("noun", "method", "path", "body"), NAMED, ids=[row[0] for row in NAMED])
def test_a_name_may_not_end_with_a_line_end(
    client: TestClient, noun: str, method: str, path: str, body: Any, end: str
) -> None:
    name = GOOD.get(noun, "good")
    answer = _ask(client, method, path, body, name + end)
    assert answer.status_code in (400, 404), (noun, answer.status_code, answer.text)
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("noun", "method", "path", "body"),
    [row for row in NAMED if row[0] not in ONLY_REFUSED],
    ids=[row[0] for row in NAMED if row[0] not in ONLY_REFUSED],
)
def test_the_same_name_without_a_line_end_is_accepted(
    client: TestClient, noun: str, method: str, path: str, body: Any
) -> None:
    answer = _ask(client, method, path, body, GOOD.get(noun, "good"))
    assert answer.status_code < 300, (noun, answer.text)


@pytest.mark.parametrize(
    "reference",
    ["a:1", "a@latest", "azureml:a", "azureml://registries/azureml/environments/a/versions/1"],
)
def test_a_reference_ends_with_its_name(reference: str) -> None:
    refs.parse(reference)
    with pytest.raises(InvalidInput):
        refs.parse(reference + "\n")
