"""Names of containers, and URLs of blobs in every form that clients derive from them."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from torchyard.azureml.blob.links import Links
from torchyard.azureml.common import containers
from torchyard.azureml.common.calls import Call
from torchyard.azureml.common.paths import translate
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import NotFound
from torchyard.data.datastores import Datastores
from torchyard.data.uris import DatastoreUri
from torchyard.workspaces.types import Identity, Role, TokenKind, Workspace

BASE = "https://127.0.0.1:8443"
STORE = containers.container("vision", "workspaceblobstore")
ACCOUNT = containers.account("vision")


@pytest.fixture
def links(db: Database, clock: FakeClock, tmp_path: Path) -> Links:
    return Links(db, Datastores(tmp_path), b"k" * 32, clock)


def call(role: Role = Role.DATA_SCIENTIST) -> Call:
    workspace = Workspace("vision", "s", "g", "local", datetime.now(timezone.utc))
    identity = Identity("dan", TokenKind.PERSON, role=role, token_hash="0" * 64)
    return Call(workspace, identity, BASE, "POST", "/azureml/vision/arm/codes/c/versions/1", {})


def test_names_follow_azures_rules_and_never_change() -> None:
    """Clients store them in what they register."""
    assert STORE == "azureml-blobstore-" + STORE[-20:]
    assert STORE == containers.container("VISION", "workspaceblobstore")
    for workspace, store in (("vision", "a"), ("vision", "A"), ("v", "ision/a"), ("visio", "na")):
        name = containers.container(workspace, store)
        assert re.fullmatch(r"[a-z0-9](-?[a-z0-9])+", name) and len(name) <= 63
        assert containers.CONTAINER.fullmatch(name)
    assert containers.container("vision", "a") != containers.container("vision", "A")
    assert containers.ACCOUNT.fullmatch(ACCOUNT) and len(ACCOUNT) <= 24
    assert containers.container("default", "workspaceblobstore") == (
        "azureml-blobstore-b42e7c9073f0f2ad89ce"
    )
    guid = containers.workspace_guid("server", "vision")
    assert guid == containers.workspace_guid("server", "Vision")
    assert guid != containers.workspace_guid("other", "vision")


def test_the_suffix_of_an_account() -> None:
    assert containers.suffix(BASE, "") == "@127.0.0.1:8443"
    assert containers.suffix(BASE, "ml.example.org") == "ml.example.org:8443"
    assert containers.suffix("https://ml.example.org", "ml.example.org") == "ml.example.org"
    assert containers.suffix(BASE, "ml.example.org:1") == "ml.example.org:1"
    assert containers.account_url(BASE, "vision", "") == f"https://{ACCOUNT}.blob.@127.0.0.1:8443"


@pytest.mark.parametrize(
    "top",
    [
        f"https://{ACCOUNT}.blob.@127.0.0.1:8443/{STORE}",
        f"https://{ACCOUNT}.blob.ml.example.org/{STORE}",
        f"{BASE}/{STORE}",
        f"{BASE}/{ACCOUNT}/{STORE}",
        f"http://localhost/azureml-blob/{STORE}",
    ],
)
def test_blob_urls_are_read_back(links: Links, top: str) -> None:
    meant = DatastoreUri("workspaceblobstore", "LocalUpload/a b/c")
    assert links.datastore_uri_of("vision", f"{top}/LocalUpload/a%20b/c") == meant
    assert links.datastore_uri_of("vision", f"{top}/LocalUpload/a%20b/c/?sv=1&sig=x%2F") == meant
    assert links.datastore_uri_of("vision", top) == DatastoreUri("workspaceblobstore", "")
    with pytest.raises(NotFound, match="not in a datastore of workspace `other`"):
        links.datastore_uri_of("other", top)


@pytest.mark.parametrize(
    "url",
    [
        "https://acct.blob.core.windows.net/container/a",
        "azureml://datastores/workspaceblobstore/paths/a",
        "https://127.0.0.1:8443/azureml/vision/arm/jobs",
        "LocalUpload/a",
        "",
    ],
)
def test_urls_of_other_servers_are_not_ours(links: Links, url: str) -> None:
    assert links.datastore_uri_of("vision", url) is None


def test_urls_that_the_server_hands_out(links: Links) -> None:
    url = links.url(call(), "workspaceblobstore", "a b/ü#1?")
    # azureml-mlflow recognizes the URL of a blob by this pattern.
    assert re.fullmatch(r"https://(.+)\.blob\.(.+)/(.+)/(.*)\?(.*)", url)
    assert links.datastore_uri_of("vision", url) == DatastoreUri("workspaceblobstore", "a b/ü#1?")
    assert parse_qs(urlsplit(url).query)["sp"] == ["r"]
    wide = links.url(call(), "workspaceblobstore", "a", write=True, host_style=False)
    assert wide.startswith(f"{BASE}/{STORE}/a?")
    assert parse_qs(urlsplit(wide).query)["sp"] == ["rcw"]
    assert parse_qs(links.sas(call(Role.READER), "workspaceblobstore"))["sp"] == ["rl"]


@pytest.mark.parametrize(
    ("path", "short"),
    [
        (f"/{STORE}", f"/azureml-blob/{STORE}"),
        (f"/{STORE}/", f"/azureml-blob/{STORE}"),
        (f"/{STORE}/a b/c", f"/azureml-blob/{STORE}/a%20b/c"),
        (f"/{STORE}/a?b#c", f"/azureml-blob/{STORE}/a%3Fb%23c"),
        (f"/{STORE}/a/", f"/azureml-blob/{STORE}/a/"),
        (f"/{STORE}/a//", f"/azureml-blob/{STORE}/a//"),
        (f"/{ACCOUNT}/{STORE}/x", f"/azureml-blob/{STORE}/x"),
        (f"/azureml-blob/{STORE}/x", f"/azureml-blob/{STORE}/x"),
    ],
)
def test_paths_that_are_blobs(path: str, short: str) -> None:
    request = translate(path)
    assert request is not None and request.path == short


@pytest.mark.parametrize(
    "path", ["/health", "/v1/workspaces", "/azureml-x/a", f"/x/{STORE}/a", f"/{STORE}0/a", "/ui/"]
)
def test_paths_that_are_not_blobs(path: str) -> None:
    assert translate(path) is None
