"""Connections as Azure's clients create and read them, and who gets their secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import text as sql

from azureml.azure_server import WORKSPACE, Azure
from hostile_input.hostile_requests import TEXTS
from torchyard.connections import actions
from workspaces.served import HERE, JOB, Served, served

SECRET = "s3cretive"
PAT = {
    "category": "Git",
    "target": "https://git.example.org",
    "authType": "PAT",
    "credentials": {"pat": SECRET},
    "metadata": {"team": "vision"},
    "isSharedToAll": True,
}


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path, database_url) as created:
        yield created


@pytest.fixture
def azure(site: Served) -> Azure:
    return Azure(site)


def secrets_of(azure: Azure, name: str) -> Any:
    return azure.ask("POST", f"connections/{name}/listsecrets")["properties"]["credentials"]


def test_a_connection_is_created_read_and_deleted(azure: Azure) -> None:
    answer = azure.answer("PUT", "connections/my-git", {"properties": PAT})
    assert answer.status_code == 200 and SECRET not in answer.text
    made = azure.ask("GET", "connections/my-git")
    assert made["id"] == f"{WORKSPACE}/connections/my-git"
    assert made["systemData"]["createdBy"] == "dan"
    properties = made["properties"]
    assert properties["credentials"] is None and properties["authType"] == "PAT"
    assert {key: properties[key] for key in PAT if key != "credentials"} == {
        key: value for key, value in PAT.items() if key != "credentials"
    }
    assert secrets_of(azure, "MY-GIT") == {"pat": SECRET}
    assert azure.answer("PUT", "connections/my-git", {"properties": PAT}).status_code == 200
    azure.ask("DELETE", "connections/my-git")
    assert azure.names("connections") == []
    error = azure.refused(404, "GET", "connections/my-git")
    assert "connection `my-git` does not exist in workspace `default`" in error["message"]


def test_no_list_and_no_error_shows_a_secret(azure: Azure) -> None:
    azure.put("connections/my-git", PAT)
    assert SECRET not in azure.answer("GET", "connections").text
    wrong = azure.answer(
        "PUT", "connections/my-git", {"properties": {**PAT, "credentials": {"pta": SECRET}}}
    )
    assert wrong.status_code == 400 and SECRET not in wrong.text
    assert "did you mean `pat`?" in wrong.json()["error"]["message"]


def test_lists_by_kind_and_page(azure: Azure) -> None:
    for name in ("git-1", "git-2", "git-3"):
        azure.put(f"connections/{name}", PAT)
    azure.put("connections/my-s3", {"category": "S3", "target": "bucket", "authType": "None"})
    blob = {"category": "AzureBlob", "target": "https://a", "authType": "SAS"}
    azure.put("connections/my-blob", {**blob, "credentials": {"sas": SECRET}})
    assert azure.names("connections") == ["git-1", "git-2", "git-3", "my-s3"]
    assert "my-blob" in azure.names("connections", includeAll="true")
    assert azure.names("connections", category="azure_blob") == ["my-blob"]
    assert azure.names("connections", category="S3") == ["my-s3"]
    assert azure.names("connections", target="bucket") == ["my-s3"]
    page = azure.ask("GET", "connections", **{"$top": "2"})
    assert [item["name"] for item in page["value"]] == ["git-1", "git-2"]
    rest = azure.site.ask("dan", "GET", page["nextLink"]).json()
    assert [item["name"] for item in rest["value"]] == ["git-3", "my-s3"] and "nextLink" not in rest


def test_a_change_without_credentials_keeps_them(azure: Azure) -> None:
    azure.put("connections/my-git", PAT)
    read = azure.ask("GET", "connections/my-git")["properties"]
    azure.put("connections/my-git", {**read, "target": "https://other.example.org"})
    assert secrets_of(azure, "my-git") == {"pat": SECRET}
    azure.put("connections/my-git", {**read, "credentials": {"pat": None}})
    assert secrets_of(azure, "my-git") == {"pat": SECRET}
    changed = azure.ask(
        "PATCH", "connections/My-Git", {"properties": {"authType": "PAT", "isSharedToAll": False}}
    )
    assert changed["name"] == "my-git" and changed["properties"]["isSharedToAll"] is False
    assert changed["properties"]["target"] == PAT["target"]
    azure.put("connections/my-git", {**PAT, "credentials": {"pat": "new"}})
    assert secrets_of(azure, "my-git") == {"pat": "new"}
    other = {**PAT, "authType": "UsernamePassword", "credentials": None}
    error = azure.refused(400, "PUT", "connections/my-git", {"properties": other})
    assert "no credentials of type `UsernamePassword`" in error["message"]
    azure.refused(404, "PATCH", "connections/none", {"properties": PAT})


@pytest.mark.parametrize(
    "changes", [{"target": "https://${{inputs.host}}/"}, {"metadata": {"team": "${{name}}"}}]
)
def test_an_expression_is_refused_where_nothing_resolves_it(
    azure: Azure, changes: dict[str, Any]
) -> None:
    wrong = azure.answer("PUT", "connections/my-git", {"properties": {**PAT, **changes}})
    assert wrong.status_code == 400
    assert "and expressions are not resolved there" in wrong.text and SECRET not in wrong.text
    secret = "a${{password}}"
    azure.put("connections/my-git", {**PAT, "credentials": {"pat": secret}})
    assert secrets_of(azure, "my-git") == {"pat": secret}


def test_a_new_connection_needs_its_credentials(azure: Azure) -> None:
    without = {**PAT, "credentials": None}
    error = azure.refused(400, "PUT", "connections/my-git", {"properties": without})
    assert "no credentials of type `PAT`" in error["message"]
    for auth_type in ("None", "AAD", "ManagedIdentity"):
        azure.put(f"connections/my-{auth_type}", {**without, "authType": auth_type})
        assert secrets_of(azure, f"my-{auth_type}") is None


def test_who_may_do_what(site: Served) -> None:
    reader, writer = Azure(site, "rita"), Azure(site, "dan")
    reader.refused(403, "PUT", "connections/my-git", {"properties": PAT})
    writer.put("connections/my-git", PAT)
    assert reader.names("connections") == ["my-git"]
    reader.refused(403, "POST", "connections/my-git/listsecrets")
    reader.refused(403, "DELETE", "connections/my-git")
    reader.refused(403, "PATCH", "connections/my-git", {"properties": PAT})
    site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "one"})
    site.job_token("one", "dan")
    assert secrets_of(Azure(site, "job of dan"), "my-git") == {"pat": SECRET}


def test_reading_secrets_is_audited_and_the_secret_is_not(site: Served) -> None:
    azure = Azure(site)
    azure.put("connections/my-git", PAT)
    secrets_of(azure, "my-git")
    audit = site.ask("home", "GET", "/v1/audit")
    assert "my-git/listsecrets" in audit.text and SECRET not in audit.text


def test_connections_of_another_workspace_are_not_seen(site: Served) -> None:
    site.ok("home", "POST", "/v1/workspaces", {"name": "speech"})
    azure = Azure(site, "home")
    azure.put("connections/my-git", PAT)
    other = f"{WORKSPACE.rpartition('/')[0]}/speech"
    assert azure.names(f"{other}/connections") == []
    azure.refused(404, "POST", f"{other}/connections/my-git/listsecrets")
    azure.ask("PUT", f"{other}/connections/my-git", {"properties": {**PAT, "target": "x"}})
    azure.ask("DELETE", f"{other}/connections/my-git")
    assert secrets_of(azure, "my-git") == {"pat": SECRET}


def test_a_workspace_with_a_connection_is_not_empty(site: Served) -> None:
    site.ok("home", "POST", "/v1/workspaces", {"name": "speech"})
    azure, other = Azure(site, "home"), f"{WORKSPACE.rpartition('/')[0]}/speech"
    azure.ask("PUT", f"{other}/connections/my-git", {"properties": PAT})
    refused = site.ask("home", "DELETE", "/v1/workspaces/speech")
    assert refused.status_code == 409 and "connection `my-git`" in refused.text
    azure.ask("DELETE", f"{other}/connections/my-git")
    assert site.ask("home", "DELETE", "/v1/workspaces/speech").status_code < 300


def test_credentials_that_a_backup_left_out_are_named(site: Served) -> None:
    azure = Azure(site)
    azure.put("connections/my-git", PAT)
    with site.parts.services.db.write() as connection:
        left_out = '{"torchyard.credentials": "left out of a backup"}'
        connection.execute(sql(f"UPDATE workspace_connections SET credentials = '{left_out}'"))
    stored = actions.get(site.parts.services.db, "default", "my-git")
    assert stored.credentials == json.loads(left_out)
    error = azure.refused(400, "POST", "connections/my-git/listsecrets")
    assert "left them out" in error["message"] and "create_or_update" in error["message"]


HOSTILE = (*(unit * 400 for unit in TEXTS.values()), "\x00", "\ud800", "a" * 100_000, "../../x")


def put_raw(azure: Azure, name: str, properties: Any) -> Any:
    """With `\\u0000` and halves of characters, which the test's client can't encode itself."""
    headers = {
        "Authorization": f"Bearer {azure.site.tokens[azure.user]}",
        "Content-Type": "application/json",
    }
    path = f"{WORKSPACE}/connections/{quote(name.encode('utf-8', 'ignore'), safe='')}"
    content = json.dumps({"properties": properties}).encode()
    return azure.site.client.put(path, content=content, headers=headers)


@pytest.mark.parametrize("field", ["category", "target", "authType", "pat"])
def test_hostile_texts_are_kept_whole_or_refused(azure: Azure, field: str) -> None:
    accepted_count = 0
    for text in HOSTILE:
        body = {**PAT, "credentials": {"pat": text}} if field == "pat" else {**PAT, field: text}
        answer = put_raw(azure, "hard", body)
        assert answer.status_code in (200, 201, 400), (text[:20], answer.text[:300])
        if answer.status_code != 400:
            accepted_count += 1
            if field == "pat":
                assert secrets_of(azure, "hard") == {"pat": text}
            else:
                assert azure.ask("GET", "connections/hard")["properties"][field] == text
    assert bool(accepted_count) == (field in ("target", "pat"))


def test_hostile_keys_are_kept_whole_or_refused(azure: Azure) -> None:
    texts = {text[:2048]: text[:2048] for text in HOSTILE[:-4] if text.isprintable()}
    metadata = {key: text for key, text in texts.items() if "${{" not in text}
    assert 0 < len(metadata) < len(texts)
    body = {**PAT, "metadata": metadata, "authType": "CustomKeys", "credentials": {"keys": texts}}
    assert put_raw(azure, "hard", body).status_code == 200
    assert azure.ask("GET", "connections/hard")["properties"]["metadata"] == metadata
    assert secrets_of(azure, "hard") == {"keys": texts}
    for text in HOSTILE[-4:-1]:
        for wrong in ({"metadata": {text: text}}, {"credentials": {"keys": {text: text}}}):
            assert put_raw(azure, "hard", {**body, **wrong}).status_code == 400, text[:20]


def test_hostile_names_make_no_connection(azure: Azure) -> None:
    for text in HOSTILE:
        answer = put_raw(azure, text[:2000], PAT)
        assert answer.status_code in (400, 404, 405), (text[:20], answer.text[:300])
    assert azure.names("connections") == []


@pytest.mark.parametrize("body", [None, [], {}, {"properties": None}, {"properties": []}])
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_body_without_properties_is_refused(azure: Azure, method: str, body: Any) -> None:
    azure.put("connections/my-git", PAT)
    assert azure.answer(method, "connections/my-git", body).status_code == 400
    assert secrets_of(azure, "my-git") == {"pat": SECRET}


def test_an_import_of_data_is_refused_by_name(azure: Azure) -> None:
    """azure-ai-ml sends it as a pipeline job."""
    job = {
        "jobType": "Pipeline",
        "jobs": {"imported": {"type": "import"}},
        "properties": {"azureml.materializationAssetName": "imported"},
    }
    error = azure.refused(501, "PUT", "jobs/imported", {"properties": job})
    assert "does not serve imports of data by a connection" in error["message"]
