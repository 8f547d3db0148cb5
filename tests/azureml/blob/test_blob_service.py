"""The blob service in the app: the requests of Azure's storage clients, and invalid requests."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest

from azureml.blob_site import (
    BLOCK_BLOB,
    STORE,
    block_id,
    block_list,
    code,
    emptied,
    listed,
    put,
    sas,
    send,
)
from postgres_server import NewDatabase
from torchyard.azureml.common import containers
from torchyard.data import file_properties
from workspaces.served import Served, served

ONE_DATABASE = True


@pytest.fixture(scope="module")
def server(new_database: NewDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("blobs")
    with served(home, new_database(home)) as created:
        yield created


@pytest.fixture
def site(server: Served) -> Iterator[Served]:
    yield server
    emptied(server)


@pytest.fixture(scope="module")
def key(server: Served) -> str:
    return sas(server)


def folder(site: Served) -> Path:
    return site.parts.services.datastores.root("default", "workspaceblobstore")


def test_a_blob_is_uploaded_and_downloaded(site: Served, key: str) -> None:
    content = bytes(range(256)) * 5000
    created = put(
        site, "LocalUpload/ab/my file.txt", content, key,
        meta_upload_status="completed", blob_content_type="text/plain",
    )  # fmt: skip
    md5 = base64.b64encode(hashlib.md5(content).digest()).decode()
    assert created.headers["content-md5"] == md5
    assert created.headers["x-ms-request-server-encrypted"] == "false"
    head = send(site, "HEAD", "LocalUpload/ab/my file.txt", key)
    assert head.status_code == 200 and head.content == b""
    assert head.headers["content-length"] == str(len(content))
    assert head.headers["etag"] == created.headers["etag"]
    assert head.headers["content-type"] == "text/plain"
    assert head.headers["x-ms-meta-upload_status"] == "completed"
    assert head.headers["x-ms-blob-type"] == "BlockBlob"
    assert head.headers["content-md5"] == md5
    for name in ("last-modified", "x-ms-creation-time"):
        assert head.headers[name].endswith(" GMT")
    for name in ("x-ms-request-id", "x-ms-version"):
        assert head.headers[name]
    down = send(site, "GET", "LocalUpload/ab/my file.txt", key)
    assert down.status_code == 200 and down.content == content
    assert (folder(site) / "LocalUpload/ab/my file.txt").read_bytes() == content


def test_an_upload_records_the_sha256_of_the_file(site: Served, key: str) -> None:
    put(site, "a/b", b"content", key)
    asset = {"name": "one", "type": "uri_folder"}
    asset["path"] = "azureml://datastores/workspaceblobstore/paths/a"
    site.ok("dan", "POST", "/v1/workspaces/default/data", asset)
    result = site.ok("dan", "GET", "/v1/workspaces/default/data/one/versions/1/files")
    assert hashlib.sha256(b"content").hexdigest() in str(result)


@pytest.mark.parametrize(
    ("byte_range", "status", "content"),
    [
        ("bytes=0-3", 206, b"0123"),
        ("bytes=4-", 206, b"456789"),
        ("bytes=8-99", 206, b"89"),
        ("bytes=10-12", 416, b""),
        ("bytes=99999999999-", 416, b""),
        ("bytes=5-2", 200, b"0123456789"),
        ("apples=1-2", 200, b"0123456789"),
    ],
)
@pytest.mark.parametrize("header", ["range", "x-ms-range"])
def test_ranges(
    site: Served, key: str, header: str, byte_range: str, status: int, content: bytes
) -> None:
    put(site, "ten", b"0123456789", key)
    answer = send(site, "GET", "ten", key, headers={header: byte_range})
    assert answer.status_code == status
    if status == 416:
        assert code(answer)[1] == "InvalidRange"
        return
    assert answer.content == content
    if status == 206:
        start = b"0123456789".index(content)
        assert answer.headers["content-range"] == f"bytes {start}-{start + len(content) - 1}/10"


def test_a_range_of_an_empty_blob(site: Served, key: str) -> None:
    """The SDK requests a range first, and the whole blob if that is empty."""
    put(site, "empty", b"", key)
    assert code(send(site, "GET", "empty", key, headers={"x-ms-range": "bytes=0-99"}))[0] == 416
    assert send(site, "GET", "empty", key).content == b""


def test_conditions(site: Served, key: str) -> None:
    etag = put(site, "a", b"one", key).headers["etag"]
    none = {"if-none-match": "*", **BLOCK_BLOB}
    assert code(send(site, "PUT", "a", key, b"two", none)) == (409, "BlobAlreadyExists")
    other = {"if-match": '"0x123"'}
    assert code(send(site, "PUT", "a", key, b"two", {**other, **BLOCK_BLOB})) == (
        412, "ConditionNotMet",
    )  # fmt: skip
    assert code(send(site, "GET", "a", key, headers=other)) == (412, "ConditionNotMet")
    assert code(send(site, "DELETE", "a", key, headers=other)) == (412, "ConditionNotMet")
    assert send(site, "GET", "a", key, headers={"if-match": etag}).content == b"one"
    assert code(send(site, "GET", "a", key, headers={"if-none-match": etag})) == (
        304, "ConditionNotMet",
    )  # fmt: skip
    assert send(site, "PUT", "a", key, b"two", {"if-match": etag, **BLOCK_BLOB}).status_code == 201
    assert send(site, "PUT", "b", key, b"new", none).status_code == 201
    past = "Mon, 01 Jan 2001 00:00:00 GMT"
    assert send(site, "GET", "a", key, headers={"if-modified-since": past}).status_code == 200
    assert send(site, "GET", "a", key, headers={"if-unmodified-since": past}).status_code == 412


def test_metadata(site: Served, key: str) -> None:
    etag = put(site, "a", b"one", key, meta_first="1").headers["etag"]
    fields = {"x-ms-meta-name": "my-data", "x-ms-meta-version": "1"}
    changed = send(site, "PUT", "a", f"comp=metadata&{key}", headers=fields)
    assert changed.status_code == 200 and changed.headers["etag"] != etag
    head = send(site, "HEAD", "a", f"comp=metadata&{key}")
    assert head.headers["x-ms-meta-name"] == "my-data" and "x-ms-meta-first" not in head.headers
    assert head.headers["etag"] == changed.headers["etag"]
    assert send(site, "GET", "a", key).content == b"one"
    put(site, "a", b"two", key)
    assert "x-ms-meta-name" not in send(site, "HEAD", "a", key).headers
    wrong = {"x-ms-meta-1st-name": "x"}
    assert code(send(site, "PUT", "a", f"comp=metadata&{key}", headers=wrong)) == (
        400, "InvalidMetadata",
    )  # fmt: skip
    long = {"x-ms-meta-a": "x" * 9000}
    assert code(send(site, "PUT", "a", f"comp=metadata&{key}", headers=long))[0] == 400
    assert code(send(site, "PUT", "none", f"comp=metadata&{key}")) == (404, "BlobNotFound")


def test_metadata_is_not_that_of_a_file_written_later(site: Served, key: str) -> None:
    """The metadata of a file is not that of another file that a job writes to its path."""
    put(site, "a", b"one", key, meta_name="mine")
    with site.parts.services.datastores.writing("default", "workspaceblobstore", "a") as writing:
        writing.write(b"another")
    head = send(site, "HEAD", "a", key)
    assert head.headers["content-length"] == "7" and "x-ms-meta-name" not in head.headers


def test_properties_are_set_and_changed(site: Served, key: str) -> None:
    put(site, "a", b"x", key)
    fields = {"x-ms-blob-content-type": "text/csv", "x-ms-blob-cache-control": "no-cache"}
    assert send(site, "PUT", "a", f"comp=properties&{key}", headers=fields).status_code == 200
    head = send(site, "HEAD", "a", key)
    assert head.headers["content-type"] == "text/csv"
    assert head.headers["cache-control"] == "no-cache"
    assert head.headers["content-security-policy"] == "sandbox"


def test_blocks(site: Served, key: str) -> None:
    sent = {block_id(number): bytes([number]) * 1000 for number in range(3)}
    for item in (2, 0, 1):
        request = f"comp=block&blockid={quote(block_id(item))}&{key}"
        answer = send(site, "PUT", "big", request, sent[block_id(item)])
        assert answer.status_code == 201 and answer.headers["content-md5"]
    assert code(send(site, "GET", "big", key)) == (404, "BlobNotFound")
    staged = send(site, "GET", "big", f"comp=blocklist&blocklisttype=all&{key}")
    assert staged.status_code == 200 and staged.text.count("<Size>1000</Size>") == 3
    fields = {"x-ms-blob-content-type": "text/plain", "x-ms-meta-name": "big"}
    body = block_list(*sent)
    created = send(site, "PUT", "big", f"comp=blocklist&{key}", body, fields)
    assert created.status_code == 201, created.text
    down = send(site, "GET", "big", key)
    assert down.content == b"".join(sent.values())
    assert down.headers["content-type"] == "text/plain" and down.headers["x-ms-meta-name"] == "big"
    stored = send(site, "GET", "big", f"comp=blocklist&{key}").text
    assert [stored.index(item) for item in sent] == sorted(stored.index(item) for item in sent)
    assert not list((site.parts.services.home / "uploads").iterdir())
    # The response was lost: the client sends the list again.
    again = send(site, "PUT", "big", f"comp=blocklist&{key}", body, fields)
    assert again.status_code == 201 and send(site, "GET", "big", key).content == down.content


def test_the_same_block_list_sent_several_times_at_once(site: Served, key: str) -> None:
    """A client without a response sends the list again: the blob is created only once."""
    ids = [block_id(number) for number in range(8)]
    for number, item in enumerate(ids):
        request = f"comp=block&blockid={quote(item)}&{key}"
        send(site, "PUT", "big", request, bytes([number]) * 500_000)
    with ThreadPoolExecutor(4) as several:
        created = [
            several.submit(send, site, "PUT", "big", f"comp=blocklist&{key}", block_list(*ids))
            for _ in range(4)
        ]
    assert [item.result().status_code for item in created] == [201] * 4
    content = send(site, "GET", "big", key).content
    assert content == b"".join(bytes([number]) * 500_000 for number in range(8))


def test_a_list_of_committed_and_new_blocks(site: Served, key: str) -> None:
    for number in range(2):
        request = f"comp=block&blockid={quote(block_id(number))}&{key}"
        send(site, "PUT", "big", request, bytes([65 + number]) * 10)
    ids = [block_id(number) for number in range(3)]
    send(site, "PUT", "big", f"comp=blocklist&{key}", block_list(*ids[:2]))
    send(site, "PUT", "big", f"comp=block&blockid={quote(ids[2])}&{key}", b"C" * 10)
    order = block_list(ids[2], ids[1], ids[0], ids[0])
    assert send(site, "PUT", "big", f"comp=blocklist&{key}", order).status_code == 201
    assert send(site, "GET", "big", key).content == b"C" * 10 + b"B" * 10 + b"A" * 20


def test_missing_blocks_and_invalid_lists_are_refused(site: Served, key: str) -> None:
    body = block_list(block_id(1))
    assert code(send(site, "PUT", "big", f"comp=blocklist&{key}", body)) == (
        400, "InvalidBlockList",
    )  # fmt: skip
    for wrong in (b"", b"<BlockList>", b"<List/>", b"<BlockList><Old>x</Old></BlockList>",
                  b'<!DOCTYPE a [<!ENTITY b "c">]><BlockList/>'):  # fmt: skip
        answer = send(site, "PUT", "big", f"comp=blocklist&{key}", wrong)
        assert code(answer) == (400, "InvalidXmlDocument"), wrong
    for wrong_id in ("", "not base64!", base64.b64encode(b"x" * 65).decode(), "../../etc"):
        request = f"comp=block&blockid={quote(wrong_id)}&{key}"
        answer = send(site, "PUT", "big", request, b"x")
        assert code(answer) == (400, "InvalidQueryParameterValue"), wrong_id
    assert code(send(site, "GET", "big", f"comp=blocklist&{key}")) == (404, "BlobNotFound")


def test_wrong_md5(site: Served, key: str) -> None:
    wrong = {"content-md5": base64.b64encode(b"x" * 16).decode(), **BLOCK_BLOB}
    assert code(send(site, "PUT", "a", key, b"one", wrong)) == (400, "Md5Mismatch")
    request = f"comp=block&blockid={quote(block_id(1))}&{key}"
    assert code(send(site, "PUT", "a", request, b"one", wrong)) == (400, "Md5Mismatch")
    assert code(send(site, "HEAD", "a", key)) == (404, "BlobNotFound")
    assert code(send(site, "GET", "a", f"comp=blocklist&{key}"))[0] == 404


def test_an_interrupted_upload_keeps_the_existing_blob(site: Served, key: str) -> None:
    put(site, "a", b"before", key, meta_name="first")

    def half() -> Iterator[bytes]:
        yield b"x" * 3_000_000
        raise OSError("the client's cable")

    answer = send(site, "PUT", "a", key, half(), BLOCK_BLOB)
    assert code(answer) == (500, "InternalError")
    assert send(site, "GET", "a", key).content == b"before"
    assert not [item for item in folder(site).rglob("*.part")]
    put(site, "a", b"after", key)
    assert send(site, "GET", "a", key).content == b"after"


def test_delete(site: Served, key: str) -> None:
    put(site, "a/b", b"x", key, meta_name="n")
    assert send(site, "DELETE", "a/b", key).status_code == 202
    assert code(send(site, "DELETE", "a/b", key)) == (404, "BlobNotFound")
    assert code(send(site, "HEAD", "a/b", key)) == (404, "BlobNotFound")
    # The empty folder that remains blocks nothing.
    put(site, "a", b"now a blob", key)
    services = site.parts.services
    entry = services.datastores.file("default", "workspaceblobstore", "a")
    assert entry.read_bytes() == b"now a blob"


def test_a_blob_and_a_folder_of_one_name(site: Served, key: str) -> None:
    put(site, "a/b", b"x", key)
    for name in ("a", "a/b/c"):
        answer = send(site, "PUT", name, key, b"y", BLOCK_BLOB)
        assert code(answer) == (409, "ResourceTypeMismatch"), name
        assert "can&#x27;t both" in answer.text or "can't both" in answer.text
    request = f"comp=block&blockid={quote(block_id(1))}&{key}"
    assert send(site, "PUT", "a", request, b"y").status_code == 201
    listed_blocks = block_list(block_id(1))
    answer = send(site, "PUT", "a", f"comp=blocklist&{key}", listed_blocks)
    assert code(answer) == (409, "ResourceTypeMismatch")
    assert send(site, "GET", "a/b", key).content == b"x"
    assert code(send(site, "GET", "a", key)) == (404, "BlobNotFound")


@pytest.mark.parametrize(
    "name",
    ["../up", "a/../../b", "a/./b", "a//b", "/a", "a/", "a\\b", "a\0b", "x" * 256,
     "a/" * 511 + "ab c", ".a.012345abcdef.part"],
)  # fmt: skip
def test_invalid_blob_names_are_refused(site: Served, key: str, name: str) -> None:
    put_one = send(site, "PUT", name, key, b"x", BLOCK_BLOB)
    if len(name) == 1026:
        assert code(put_one) == (400, "InvalidUri")
    else:
        assert code(put_one) == (400, "InvalidResourceName")
    assert code(send(site, "HEAD", name, key)) == (404, "BlobNotFound")
    assert not folder(site).exists() or not list(folder(site).rglob("*"))


@pytest.mark.parametrize("path", ["%2e%2e/up", "a/%2e%2e%2f%2e%2e/b", "..%2fup", "a%5cb", "a%00"])
def test_paths_that_leave_the_datastore_are_refused(site: Served, key: str, path: str) -> None:
    answer = site.client.request("PUT", f"/{STORE}/{path}?{key}", content=b"x", headers=BLOCK_BLOB)
    assert answer.status_code in (400, 403), answer.text
    assert not folder(site).exists() or not list(folder(site).rglob("*"))


@pytest.mark.parametrize(
    "name",
    ["ä/ö ü.txt", "日本語/データ", "a b+c%", "q?a=b&c#d", "x;y,z=1", "🙂", "new\nline", "a:b",
     "/".join(["d" * 200] * 5) + "/" + "f" * 19, "...", ".hidden"],
)  # fmt: skip
def test_valid_blob_names(site: Served, key: str, name: str) -> None:
    put(site, name, name.encode(), key)
    assert send(site, "GET", name, key).content == name.encode()
    page = send(site, "GET", "", f"restype=container&comp=list&{key}")
    assert page.status_code == 200
    document = listed(page)[0]
    assert document == [name]
    assert send(site, "DELETE", name, key).status_code == 202


@pytest.mark.parametrize("form", ["/{c}", "/{a}/{c}", "/azureml-blob/{c}"])
def test_every_form_of_a_blobs_url(site: Served, key: str, form: str) -> None:
    top = form.format(c=STORE, a=containers.account("default"))
    userinfo = {"authorization": "Basic " + base64.b64encode(b"acct.blob.:").decode()}
    created = site.client.put(f"{top}/a/b?{key}", content=b"x", headers={**BLOCK_BLOB, **userinfo})
    assert created.status_code == 201
    host = {"host": f"{containers.account('default')}.blob.ml.example.org"}
    assert site.client.get(f"{top}/a/b?{key}", headers=host).content == b"x"
    page = site.client.get(f"{top}?restype=container&comp=list&{key}")
    assert listed(page)[0] == ["a/b"]
    page = site.client.get(f"{top}/?restype=container&comp=list&{key}")
    assert listed(page)[0] == ["a/b"]


def test_unsupported_operations_are_refused_by_name(site: Served, key: str) -> None:
    put(site, "a", b"x", key)
    for comp in ("lease", "snapshot", "tier", "tags", "undelete", "page", "appendblock"):
        assert code(send(site, "PUT", "a", f"comp={comp}&{key}")) == (501, "NotImplemented"), comp
    copied = {"x-ms-copy-source": "https://example.org/a"}
    assert code(send(site, "PUT", "b", key, headers=copied)) == (501, "NotImplemented")
    pages = {"x-ms-blob-type": "PageBlob"}
    assert code(send(site, "PUT", "b", key, headers=pages)) == (501, "NotImplemented")
    assert code(send(site, "PUT", "b", key, b"x")) == (400, "MissingRequiredHeader")
    assert code(send(site, "GET", "a", f"comp=tags&{key}")) == (501, "NotImplemented")
    folder_mark = {"x-ms-meta-hdi_isfolder": "true", "content-length": "0", **BLOCK_BLOB}
    assert send(site, "PUT", "dir", key, b"", folder_mark).status_code == 201
    put(site, "dir/a", b"x", key)


def test_containers(site: Served, key: str) -> None:
    response = send(site, "GET", "", f"restype=container&{key}")
    assert response.status_code == 200 and response.headers["etag"]
    assert send(site, "HEAD", "", f"restype=container&{key}").status_code == 200
    admin = sas(site, "carl")
    assert code(send(site, "PUT", "", f"restype=container&{admin}")) == (
        409, "ContainerAlreadyExists",
    )  # fmt: skip
    assert code(send(site, "DELETE", "", f"restype=container&{admin}"))[0] == 501


def test_the_client_request_id_is_returned(site: Served, key: str) -> None:
    for method, name in (("GET", "none"), ("PUT", "a")):
        headers = {"x-ms-client-request-id": "abc", "x-ms-version": "2023-01-03", **BLOCK_BLOB}
        answer = send(site, method, name, key, b"" if method == "PUT" else None, headers)
        assert answer.headers["x-ms-client-request-id"] == "abc"
        assert answer.headers["x-ms-version"] == "2023-01-03"


def test_properties_are_forgotten_with_their_folder(site: Served, key: str) -> None:
    put(site, "azureml-data/one/a", b"x", key, meta_name="n")
    services = site.parts.services
    from torchyard.data import actions

    with services.db.write() as connection:
        actions.delete_checksums(connection, "default", "workspaceblobstore", "azureml-data/one")
    path = services.datastores.file("default", "workspaceblobstore", "azureml-data/one/a")
    assert path.exists()
    from torchyard.data.folders import FolderFiles

    entry = FolderFiles(folder(site)).entry("azureml-data/one/a")
    assert entry is not None
    assert file_properties.of(services.db, "default", "workspaceblobstore", entry) is None


def test_a_list_of_blocks_is_bounded(site: Served, key: str) -> None:
    for size_bytes, status in ((8 << 20, 400), ((8 << 20) + 1, 413)):
        answer = send(site, "PUT", "big", f"comp=blocklist&{key}", b"x" * size_bytes)
        assert answer.status_code == status, answer.text
