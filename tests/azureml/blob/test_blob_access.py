"""Access to blobs: invalid, expired and insufficient signatures, and people without permission."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from azureml.blob_site import (
    ARM,
    ARTIFACTS,
    BLOCK_BLOB,
    STORE,
    code,
    emptied,
    listed,
    put,
    sas,
    send,
)
from postgres_server import NewDatabase
from torchyard.azureml.common import containers
from torchyard.base.clock import FakeClock
from torchyard.base.home import signing
from workspaces.served import HERE, JOB, Served, served


@pytest.fixture(scope="module")
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="module")
def server(
    new_database: NewDatabase, tmp_path_factory: pytest.TempPathFactory, clock: FakeClock
) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("access")
    with served(home, new_database(home), clock) as created:
        yield created


@pytest.fixture
def site(server: Served) -> Iterator[Served]:
    yield server
    emptied(server)


@pytest.fixture
def dan(site: Served) -> str:
    """A data scientist whom no other test changes."""
    name = f"dan{next(_NUMBERS)}"
    site.add(name, "data-scientist")
    return name


_NUMBERS = count()


def changed(query: str, **changes: str) -> str:
    fields = {name: values[0] for name, values in parse_qs(query).items()}
    return urlencode({**fields, **changes})


def test_invalid_signatures_are_refused(site: Served, clock: FakeClock) -> None:
    key = sas(site)
    put(site, "a", b"x", key)
    for wrong in (
        changed(key, sp="racwdlx"),
        changed(key, se="2099-01-01T00:00:00Z"),
        changed(key, skoid="olga"),
        changed(key, sktid="0" * 64),
        changed(key, sr="b"),
        changed(key, sr="d", sdd="1"),
        changed(key, sig="AAAA"),
        changed(key, sig="\u20ac"),
        "sig=x",
        "sv=2021-12-02&sr=c&sp=r&sig=",
    ):
        for method, name in (("GET", "a"), ("PUT", "b"), ("DELETE", "a"), ("HEAD", "a")):
            answer = send(site, method, name, wrong, headers=BLOCK_BLOB)
            assert code(answer) == (403, "AuthenticationFailed"), wrong
    # For another datastore, and for another server.
    assert code(send(site, "GET", "a", key, container=ARTIFACTS)) == (403, "AuthenticationFailed")
    other = sas(site, datastore="workspaceartifactstore")
    assert code(send(site, "GET", "a", other)) == (403, "AuthenticationFailed")
    (site.parts.services.home / signing.FILE).write_bytes(b"x" * 32)
    clock.advance(13 * 3600)
    answer = send(site, "GET", "a", key)
    assert code(answer) == (403, "AuthenticationFailed") and "expired at" in answer.text


def test_a_request_without_signature_or_token_is_refused(site: Served) -> None:
    answer = send(site, "GET", "a", "")
    assert code(answer) == (401, "NoAuthenticationInformation")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    shared = {"authorization": "SharedKey account:c2lnbmF0dXJl"}
    assert code(send(site, "GET", "a", "", headers=shared))[0] == 401
    wrong = {"authorization": "Bearer nonsense"}
    assert code(send(site, "GET", "a", "", headers=wrong)) == (401, "InvalidAuthenticationInfo")
    nowhere = containers.container("default", "none")
    assert code(send(site, "GET", "a", "", headers=wrong, container=nowhere))[0] == 401
    good = {"authorization": f"Bearer {site.tokens['dan']}"}
    assert code(send(site, "GET", "a", "", headers=good, container=nowhere)) == (
        404,
        "ContainerNotFound",
    )


def test_a_token_works_like_a_signature(site: Served) -> None:
    good = {"authorization": f"Bearer {site.tokens['dan']}", **BLOCK_BLOB}
    assert send(site, "PUT", "a", "", b"x", good).status_code == 201
    assert send(site, "GET", "a", "", headers=good).content == b"x"
    reader = {"authorization": f"Bearer {site.tokens['rita']}", **BLOCK_BLOB}
    assert send(site, "GET", "a", "", headers=reader).content == b"x"
    answer = send(site, "PUT", "a", "", b"y", reader)
    assert code(answer) == (403, "AuthorizationPermissionMismatch")
    assert "`rita` is a reader" in answer.text


def test_a_reader_reads(site: Served) -> None:
    put(site, "a", b"x", sas(site))
    key = sas(site, "rita")
    assert parse_qs(key)["sp"] == ["rl"]
    assert send(site, "GET", "a", key).content == b"x"
    page = send(site, "GET", "", f"restype=container&comp=list&{key}")
    assert listed(page)[0] == ["a"]
    for method in ("PUT", "DELETE"):
        answer = send(site, method, "a", key, b"y", BLOCK_BLOB)
        assert code(answer) == (403, "AuthorizationPermissionMismatch")
        assert "`rita` is a reader in workspace `default`" in answer.text


def test_a_url_may_permit_less_than_the_person_may_do(site: Served) -> None:
    put(site, "a", b"x", sas(site))
    path = f"{ARM}/codes/some-code/versions/1/startPendingUpload"
    created = site.ok("dan", "POST", path, {})["blobReferenceForConsumption"]
    address = urlsplit(created["credential"]["sasUri"])
    name = address.path.removeprefix(f"/{STORE}/") + "/a"
    put(site, name, b"x", address.query)
    answer = send(site, "DELETE", name, address.query)
    assert code(answer) == (403, "AuthorizationPermissionMismatch")
    assert "permits `rcwl`, and DELETE needs `d`" in answer.text


def test_a_signature_loses_permissions_that_its_person_loses(site: Served, dan: str) -> None:
    """A signature lasts twelve hours, so the person's permissions are checked for each request."""
    key = sas(site, dan)
    put(site, "a", b"x", key)
    site.ok("home", "PUT", f"{HERE}/people/{dan}", {"role": "reader"})
    assert send(site, "GET", "a", key).content == b"x"
    answer = send(site, "PUT", "a", key, b"y", BLOCK_BLOB)
    assert code(answer) == (403, "AuthorizationPermissionMismatch")
    site.ok("home", "DELETE", f"/v1/users/{dan}/tokens/first")
    answer = send(site, "GET", "a", key)
    assert code(answer) == (403, "AuthenticationFailed") and "was revoked" in answer.text


def test_the_signature_of_a_deleted_person_opens_nothing(site: Served, dan: str) -> None:
    key = sas(site, dan)
    site.ok("home", "DELETE", f"/v1/users/{dan}")
    assert code(send(site, "GET", "a", key)) == (403, "AuthenticationFailed")


def test_files_of_other_peoples_jobs_are_protected(site: Served) -> None:
    """A data scientist writes only to files of their own jobs, as everywhere."""
    for user in ("dan", "carl"):
        site.ok(user, "POST", f"{HERE}/jobs", {**JOB, "name": f"of-{user}"})
    key = sas(site, "dan", "workspaceartifactstore")
    own_item, other = "ExperimentRun/dcid.of-dan/outputs/a", "ExperimentRun/dcid.of-carl/outputs/a"
    created = send(site, "PUT", own_item, key, b"x", BLOCK_BLOB, ARTIFACTS)
    assert created.status_code == 201
    answer = send(site, "PUT", other, key, b"x", BLOCK_BLOB, ARTIFACTS)
    assert code(answer) == (403, "AuthorizationPermissionMismatch")
    assert "belongs to `carl`" in answer.text
    assert code(send(site, "DELETE", other, key, container=ARTIFACTS))[0] == 403
    assert code(send(site, "PUT", f"{other}?comp=metadata", key, container=ARTIFACTS))[0] == 403
    outputs = sas(site, "dan")
    answer = send(site, "PUT", "azureml/of-carl/out/a", outputs, b"x", BLOCK_BLOB)
    assert code(answer)[0] == 403
    put(site, "azureml/of-dan/out/a", b"x", outputs)
    carl = sas(site, "carl", "workspaceartifactstore")
    assert send(site, "PUT", own_item, carl, b"y", BLOCK_BLOB, ARTIFACTS).status_code == 201


def test_files_of_models_never_change(site: Served) -> None:
    answer = send(site, "PUT", "azureml-models/m/1/a", sas(site, "carl"), b"x", BLOCK_BLOB)
    assert code(answer) == (403, "AuthorizationPermissionMismatch")
    assert "registered model" in answer.text


def test_parts_of_other_uploads_are_not_blobs(site: Served) -> None:
    folder = site.parts.services.datastores.root("default", "workspaceartifactstore") / ".uploads"
    folder.mkdir(parents=True)
    (folder / "part").write_bytes(b"x")
    key = sas(site, "carl", "workspaceartifactstore")
    page = send(site, "GET", "", f"restype=container&comp=list&{key}", container=ARTIFACTS)
    assert listed(page)[0] == []
    answer = send(site, "PUT", ".uploads/b", key, b"x", BLOCK_BLOB, ARTIFACTS)
    assert code(answer)[0] == 403
    assert code(send(site, "GET", ".uploads/part", key, container=ARTIFACTS))[0] == 404


def test_a_pending_upload_opens_only_its_folder(site: Served) -> None:
    path = f"{ARM}/codes/some-code/versions/1/startPendingUpload"
    request = {"pendingUploadType": "TemporaryBlobReference"}
    created: dict[str, Any] = site.ok("dan", "POST", path, request)
    result = created["blobReferenceForConsumption"]
    address = urlsplit(result["credential"]["sasUri"])
    assert result["credential"]["credentialType"] == "SAS"
    assert address._replace(query="").geturl() == result["blobUri"]
    folder = address.path.removeprefix(f"/{STORE}/")
    assert folder.startswith("LocalUpload/")
    put(site, f"{folder}/src/train.py", b"code", address.query)
    assert send(site, "GET", f"{folder}/src/train.py", address.query).content == b"code"
    for name in ("LocalUpload/other/a", "a", folder, f"{folder}x/a", f"{folder}/../x"):
        answer = send(site, "PUT", name, address.query, b"x", BLOCK_BLOB)
        assert answer.status_code in (400, 403), name
    page = f"restype=container&comp=list&prefix={folder}/&{address.query}"
    assert listed(send(site, "GET", "", page))[0] == [f"{folder}/src/train.py"]
    for prefix in ("", "LocalUpload/", folder):
        page = f"restype=container&comp=list&prefix={prefix}&{address.query}"
        assert code(send(site, "GET", "", page))[0] == 403, prefix
    again = site.ok("dan", "POST", path, request)["blobReferenceForConsumption"]
    assert again["blobUri"] == result["blobUri"]
    of_carl = site.ok("carl", "POST", path, request)["blobReferenceForConsumption"]
    assert of_carl["blobUri"] != result["blobUri"]


def test_servers_of_one_home_share_the_secret(tmp_path: Path) -> None:
    first = signing.key(tmp_path, "one")
    assert signing.key(tmp_path, "one") == first and len(first) == 32
    assert signing.key(tmp_path, "two") != first
    file = tmp_path / signing.FILE
    assert file.stat().st_mode & 0o777 == 0o600
    assert [item.name for item in tmp_path.iterdir()] == [signing.FILE]
