"""Images on their way to a registry: logins, broken uploads, registries that lie."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from client.images.registry_server import Registry, Seen
from torchyard.base.errors import Forbidden, InvalidInput, NotAuthenticated, TorchyardError
from torchyard.client.images import layout as layouts
from torchyard.client.images import registry
from torchyard.client.images.credentials import Credentials
from torchyard.client.images.layout import FolderLayout, Image
from torchyard.client.images.registry import Pushed, Upload, UploadFailed
from torchyard.client.images.registry_connection import Access, Connection, Refused

ME = Credentials("me", "secret")
Answer = tuple[int, dict[str, str], bytes]


@pytest.fixture
def server() -> Iterator[Registry]:
    made = Registry()
    yield made
    made.close()


@pytest.fixture
def other() -> Iterator[Registry]:
    """Another host, as far as credentials are concerned."""
    made = Registry(login="basic")
    yield made
    made.close()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> tuple[FolderLayout, Image]:
    layout = FolderLayout(tmp_path_factory.mktemp("layout"))
    contents = [os.urandom(3 << 20), os.urandom(20 << 20)]  # no compression makes them smaller
    layers = [
        layouts.add_layer(layout, f"layer {number}", [content])
        for number, content in enumerate(contents)
    ]
    config = {"Labels": {"torchyard.environment": "vision:3"}}
    return layout, layouts.complete(layout, layers, "amd64", config, "localhost/vision:3")


Push = Callable[..., Pushed]


@pytest.fixture
def push(server: Registry, image: tuple[FolderLayout, Image]) -> Push:
    def push(access: Access | None = None, waits: list[float] | None = None) -> Pushed:
        connection = Connection(server.host, access or Access())
        to = registry.parse(f"{server.host}/team/vision:3")
        try:
            sleep = (lambda s: None) if waits is None else waits.append
            return Upload(connection, to, sleep=sleep).run(*image)
        finally:
            connection.close()

    return push


def first(
    method: str, count: int, answer: Answer, part: str = ""
) -> Callable[[Seen], Answer | None]:
    """A fault for the first requests of a kind."""
    left = [count]

    def fault(seen: Seen) -> Answer | None:
        if seen.method == method and part in seen.path and left[0]:
            left[0] -= 1
            return answer
        return None

    return fault


def test_what_is_pushed_is_there_once_all_of_it_is(
    server: Registry, push: Push, image: tuple[FolderLayout, Image]
) -> None:
    pushed = push()
    assert f"sha256:{hashlib.sha256(server.manifests['3']).hexdigest()}" == pushed.digest
    assert set(server.blobs) == {
        image[1].config.digest, *(layer.blob.digest for layer in image[1].layers)
    }  # fmt: skip
    assert max(seen.size_bytes for seen in server.seen) <= 8 << 20
    assert pushed.there_bytes == 0


def test_what_is_there_already_is_not_sent_again(server: Registry, push: Push) -> None:
    sent = push().sent_bytes
    server.seen.clear()
    again = push()
    assert (again.sent_bytes, again.there_bytes) == (0, sent)
    assert not server.requests("PATCH") and not server.requests("POST")


@pytest.mark.parametrize("login", ["basic", "bearer"])
def test_a_registry_that_wants_a_login(server: Registry, push: Push, login: str) -> None:
    server.login = login
    with pytest.raises(NotAuthenticated, match="wants you to log in"):
        push()
    with pytest.raises(NotAuthenticated, match="does not accept `me`"):
        push(Access(Credentials("me", "wrong")))
    assert push(Access(ME)).digest


def test_an_upload_goes_on_where_it_broke_off(server: Registry, push: Push) -> None:
    calls = [0]

    def fault(seen: Seen) -> Answer | None:
        calls[0] += seen.method == "PATCH"
        return (503, {}, b"") if seen.method == "PATCH" and calls[0] in (3, 5) else None

    server.fault = fault
    pushed = push()
    received = sum(seen.size_bytes for seen in server.requests("PATCH"))
    # Two pieces that were refused came twice, and nothing else did.
    assert received <= pushed.sent_bytes + 2 * (8 << 20)
    assert len(server.requests("POST")) == 3


def test_an_upload_whose_place_is_gone_begins_again(server: Registry, push: Push) -> None:
    def fault(seen: Seen) -> Answer | None:
        if seen.method == "PATCH" and len(server.requests("PATCH")) == 3:
            server.uploads.clear()
            return 500, {}, b""
        return None

    server.fault = fault
    assert push().digest and len(server.requests("POST")) == 4


def test_a_busy_registry_is_asked_again_when_it_says_so(server: Registry, push: Push) -> None:
    server.fault = first("PUT", 1, (429, {"Retry-After": "7"}, b""), "manifests")
    waits: list[float] = []
    assert push(waits=waits).digest
    assert waits == [7.0]


@pytest.mark.parametrize(
    ("method", "part"), [("PATCH", ""), ("POST", ""), ("PUT", "manifests"), ("HEAD", "blobs")]
)
def test_a_registry_that_fails_for_good(
    server: Registry, push: Push, method: str, part: str
) -> None:
    server.fault = first(method, 1000, (502, {}, b"<html>\x1b[2J"), part)
    with pytest.raises(UploadFailed, match="failed 5 times") as failed:
        push()
    assert "push again" in failed.value.hint and not server.manifests


def test_a_registry_that_takes_nothing_is_given_up(server: Registry, push: Push) -> None:
    headers = {"Location": "/uploads/1", "Range": "0-0"}
    server.fault = first("PATCH", 1000, (202, headers, b""))
    with pytest.raises(UploadFailed, match="failed 5 times"):
        push()


LIE = {"Docker-Content-Digest": "sha256:" + "0" * 64}


@pytest.mark.parametrize(
    ("method", "part", "answer"),
    [
        ("PUT", "uploads", (201, LIE, b"")),
        ("PUT", "uploads", (201, {}, b"")),  # it does not have it
        ("PUT", "manifests", (201, LIE, b"")),
        ("PUT", "manifests", (201, {}, b"")),
        ("GET", "manifests", (200, {}, b"{}")),
        ("HEAD", "blobs", (200, {"Content-Length": "5"}, b"")),
        ("HEAD", "blobs", (200, LIE, b"")),
        ("PATCH", "", (202, {"Range": "0-999999999"}, b"")),
        ("POST", "", (202, {}, b"")),
    ],
)
def test_a_registry_that_lies_is_believed_nothing(
    server: Registry, push: Push, method: str, part: str, answer: Answer
) -> None:
    server.fault = first(method, 1000, answer, part)
    with pytest.raises(UploadFailed, match=r"claims|failed"):
        push()


def test_credentials_go_to_no_other_host(server: Registry, other: Registry, push: Push) -> None:
    server.login = "bearer"
    # By its other name, this machine is another host.
    stranger = f"localhost:{other.host.partition(':')[2]}"
    server.realm = f"http://{stranger}/token"
    with pytest.raises(Refused, match="`localhost`, another host") as refused:
        push(Access(ME))
    assert "--token-host localhost" in refused.value.hint
    assert not other.seen
    assert push(Access(ME, token_host="localhost")).digest


def test_an_upload_elsewhere_gets_no_token(server: Registry, other: Registry, push: Push) -> None:
    server.login = "bearer"
    other.login = ""
    other.uploads["1"] = bytearray()

    def fault(seen: Seen) -> Answer | None:
        if seen.method == "POST" and seen.authorization:
            return 202, {"Location": f"http://{other.host}/uploads/1"}, b""
        return None

    server.fault = fault
    with pytest.raises(TorchyardError):  # what arrives there is not in the registry
        push(Access(ME))
    assert other.seen and not any(seen.authorization for seen in other.seen)


def test_a_redirect_takes_no_token_along(server: Registry, other: Registry, push: Push) -> None:
    server.login = "basic"
    target = {"Location": f"http://{other.host}/v2/team/vision/blobs/uploads/"}
    server.fault = lambda seen: (307, target, b"") if seen.method == "POST" else None
    with pytest.raises(NotAuthenticated):
        push(Access(ME))
    assert other.seen and not any(seen.authorization for seen in other.seen)


def test_a_circle_of_redirects_ends(server: Registry, push: Push) -> None:
    server.fault = lambda seen: (
        (307, {"Location": seen.path}, b"") if seen.method == "POST" else None
    )
    with pytest.raises(Refused, match="in a circle"):
        push()


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://x/y", "http://a:b@c/", "//"])
def test_an_address_that_is_none(server: Registry, push: Push, address: str) -> None:
    server.fault = first("POST", 1000, (202, {"Location": address}, b""))
    with pytest.raises(TorchyardError):
        push()


def test_an_endless_answer_is_not_read(server: Registry, push: Push) -> None:
    server.fault = first("GET", 1000, (200, {}, b"x" * (5 << 20)), "manifests")
    with pytest.raises(UploadFailed, match="failed 5 times"):
        push()


def test_a_refusal_has_the_registrys_reason_in_one_plain_line(server: Registry, push: Push) -> None:
    body = b'{"errors": [{"code": "DENIED", "message": "quota\\n\\u001b[31m of team"}]}'
    server.fault = first("POST", 1, (403, {}, body))
    with pytest.raises(Forbidden) as refused:
        push()
    assert "quota ?[31m of team" in refused.value.message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("localhost:5000/vision", ("localhost:5000", "vision", "")),
        (
            "registry.example.com/team/sub/vision:3",
            ("registry.example.com", "team/sub/vision", "3"),
        ),
        ("docker.io/me/a_b.c-d:v1.0_x", ("docker.io", "me/a_b.c-d", "v1.0_x")),
        ("[::1]:5000/x:1", ("[::1]:5000", "x", "1")),
    ],
)
def test_places_in_registries(text: str, parts: tuple[str, str, str]) -> None:
    address = registry.parse(text)
    assert (address.registry, address.name, address.tag) == parts


@pytest.mark.parametrize(
    "text",
    [
        "vision", "team/vision:3", "host.example/Vision", "host.example/../x", "host.example/a//b",
        "https://host.example/x", "host.example/x:", "host.example/x@sha256:1", "a.b/c\n", "-a.b/c",
        "host.example/x:" + "a" * 129, "",
    ],
)  # fmt: skip
def test_what_is_no_place_in_a_registry(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a place in a registry"):
        registry.parse(text)


def test_a_registry_that_does_not_answer(tmp_path: Path) -> None:
    connection = Connection("127.0.0.1:9", Access())
    with pytest.raises(TorchyardError, match=r"`127.0.0.1:9` does not answer"):
        connection.check("vision")
