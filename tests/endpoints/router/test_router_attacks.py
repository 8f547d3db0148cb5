"""What hostile or broken clients send to the real router."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from endpoints.router.router_process import AUTH, KEY, PATH, RouterProcess, read_all
from torchyard.endpoints.router.table import Auth, DeploymentRow, EndpointRow, Table

pytestmark = pytest.mark.slow

ONE_DATABASE = True
GOOD = f"host: h\r\nauthorization: Bearer {KEY}\r\n".encode()
AT = PATH.encode()
SECRET = b"the token's secret"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST %b/score HTTP/1.1\r\n%bcontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        b"POST %b/score HTTP/1.1\r\n%bcontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n"
        b"0\r\n\r\n",
        b"POST %b/score HTTP/1.1\r\n%btransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n"
        b"0\r\n\r\n",
        b"POST %b/score HTTP/1.1\r\n%btransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST %b/score HTTP/1.1\r\n%btransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST %b/score HTTP/1.1\r\n%btransfer-encoding: chunked\r\n"
        b"transfer-encoding: identity\r\n\r\n0\r\n\r\n",
        b"POST %b/score HTTP/1.1\r\n%btransfer-encoding : chunked\r\n\r\n0\r\n\r\n",
        b"POST %b/score HTTP/1.0\r\n%btransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST %b/score HTTP/1.1\r\n%bcontent-length: +3\r\n\r\nabc",
        b"POST %b/score HTTP/1.1\r\n%bcontent-length: 3, 3\r\n\r\nabc",
        b"POST %b/score HTTP/1.1\r\n%bcontent-length: -1\r\n\r\n",
        b"POST %b/score HTTP/1.1\r\n%btransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        b"POST %b/score HTTP/1.1\r\n%btransfer-encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n",
        b"POST %b/score HTTP/1.1\r\n%bx: a\r\n folded\r\n\r\n",
        b"POST %b/score HTTP/1.1\r\n%bx: a\rb\r\n\r\n",
        b"POST %b/score HTTP/1.1\r\n%bx: a\nb: c\r\n\r\n",
        b"POST %b/score HTTP/1.1\r\n%bx: a\x00b\r\n\r\n",
        b"GET %b/score HTTP/1.1\r\n%bhost: other\r\n\r\n",
        b"GET %b/score HTTP/1.1\r\n%bauthorization: Bearer x\r\n\r\n",
        b"GET %b/score HTTP/1.1\r\n%bazureml-model-deployment: a\r\n"
        b"azureml-model-deployment: b\r\n\r\n",
        b"GET %b/\xff HTTP/1.1\r\n%b\r\n",
        b"GET %b/score HTTP/3.9\r\n%b\r\n",
        b"GET %b/score HTTP/1.1\r\n%bexpect: the-unexpected\r\n\r\n",
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(
    router: RouterProcess, request_bytes: bytes
) -> None:
    server = router.model("blue-1")
    router.write({"blue": DeploymentRow((server.row(),))})
    answer = router.raw(request_bytes % (AT, GOOD) + b"GET %b/2 HTTP/1.1\r\n%b\r\n" % (AT, GOOD))
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert answer.count(b"HTTP/1.1") == 1
    assert server.seen() == []
    assert router.request().status == 200


def test_only_what_the_router_writes_frames_a_request(router: RouterProcess) -> None:
    server = router.model("blue-1")
    router.write({"blue": DeploymentRow((server.row(),))})
    answer = router.raw(
        b"POST %b/score HTTP/1.1\r\n%bconnection: close, x-secret, content-length\r\n"
        b"x-secret: 1\r\nte: trailers\r\nkeep-alive: 9\r\nproxy-authorization: x\r\n"
        b"transfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nx-trailer: 9\r\n\r\n" % (AT, GOOD)
    )
    assert answer.startswith(b"HTTP/1.1 200 ")
    names = [name.lower() for name, _ in server.seen()[0]["headers"]]
    assert sorted(names) == ["content-length", "host", "x-ms-request-id"]
    assert server.seen()[0]["size"] == 3


def test_requests_that_are_sent_ahead_are_answered_in_order(router: RouterProcess) -> None:
    server = router.model("blue-1")
    router.write({"blue": DeploymentRow((server.row(),))})
    ahead = b"".join(
        b"POST %b/score HTTP/1.1\r\n%bcontent-length: 1\r\n\r\n%d" % (AT, GOOD, number)
        for number in range(9)
    )
    last = b"POST %b/score HTTP/1.1\r\n%bconnection: close\r\ncontent-length: 1\r\n\r\n9"
    answers = router.raw(ahead + last % (AT, GOOD))
    texts = [part[:1] for part in answers.split(b'"text": "')[1:]]
    assert texts == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize(
    ("head", "status"),
    [(b"x: %b\r\n" % (b"a" * 70_000), b"431"), (b"x: a\r\n" * 300, b"431")],
)
def test_long_heads_are_refused(router: RouterProcess, head: bytes, status: bytes) -> None:
    answer = router.raw(b"GET %b/score HTTP/1.1\r\n%b%b\r\n" % (AT, GOOD, head))
    assert answer.startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"authorization: Bearer wrong\r\n",
        b"authorization: Bearer \r\n",
        b"authorization: Basic dGhlLXByaW1hcnkta2V5\r\n",
        b"authorization: %b\r\n" % KEY.encode(),
        b"authorization: Bearer %bx\r\n" % KEY.encode(),
        b"authorization: Bearer %b\r\n" % KEY[:-1].encode(),
        b"authorization: Bearer %b\r\n" % (b"x" * 30_000),
    ],
)
def test_every_wrong_key_gets_the_same_answer(router: RouterProcess, header: bytes) -> None:
    server = router.model("blue-1")
    router.write({"blue": DeploymentRow((server.row(),))})
    answer = router.raw(
        b"POST %b/score HTTP/1.1\r\nhost: h\r\nx-ms-request-id: 1\r\n%bcontent-length: 9\r\n\r\n"
        b"unsent" % (AT, header) + b"abc"
    )
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 401 ")
    assert json.loads(body) == {
        "error": {
            "code": "Unauthorized",
            "message": "The key or token is missing, wrong or expired.",
        }
    }
    assert server.seen() == []


def _token(claims: object, secret: bytes = SECRET, algorithm: str = "HS256") -> str:
    def encode(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode()

    header = {"alg": algorithm, "typ": "JWT"}
    signed = ".".join(encode(json.dumps(part).encode()) for part in (header, claims))
    return f"{signed}.{encode(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"


def test_tokens_are_good_until_they_expire(router: RouterProcess) -> None:
    server = router.model("blue-1")
    auth = Auth("aml_token", (), SECRET)
    router.write({"blue": DeploymentRow((server.row(),))}, auth=auth)

    def status(token: str) -> int:
        return router.request(headers={"Authorization": f"Bearer {token}"}).status

    now = time.time()
    good = _token({"exp": now + 60})
    assert status(good) == 200
    wrong = [
        _token({"exp": now - 1}),
        _token({}),
        _token({"exp": "never"}),
        _token({"exp": True}),
        _token([]),
        _token({"exp": now + 60, "nbf": now + 30}),
        _token({"exp": now + 60}, b"another"),
        _token({"exp": now + 60}, algorithm="none"),
        good.rpartition(".")[0] + ".",
        good[:-2],
        "a.b.c",
        "...",
        KEY,
    ]
    assert [status(token) for token in wrong] == [401] * len(wrong)


class _Server(BaseHTTPRequestHandler):
    seen: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.seen.append(self.path)
        good = self.headers["Authorization"] == "Bearer olga"
        self.send_response(200 if good else 403 if "anna" in self.headers["Authorization"] else 401)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_tokens_of_people_are_asked_of_the_server_once(router: RouterProcess) -> None:
    blue = router.model("blue-1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        row = EndpointRow(
            Auth("aad_token"), {"blue": 100}, {}, {"blue": DeploymentRow((blue.row(),))}
        )
        address = f"http://127.0.0.1:{server.server_address[1]}"
        router.write_table(Table(server=address, endpoints={"vision/digits": row}))
        statuses = [
            router.request(headers={"Authorization": f"Bearer {name}"}).status
            for name in ("olga", "olga", "anna", "nobody")
        ]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert statuses == [200, 200, 403, 401]
    assert _Server.seen == ["/v1/workspaces/vision/online-endpoints/digits/access"] * 3
    # What it said is remembered; what it did not say is not guessed.
    assert router.request(headers={"Authorization": "Bearer olga"}).status == 200
    assert router.request(headers={"Authorization": "Bearer peter"}).status == 503


def test_a_key_is_good_for_its_own_endpoint_alone(router: RouterProcess) -> None:
    server = router.model("blue-1")
    other = Auth("key", (hashlib.sha256(b"another").digest(),))
    rows = {"blue": DeploymentRow((server.row(),))}
    endpoint = EndpointRow(AUTH, {"blue": 100}, {}, rows)
    router.write_table(
        Table(endpoints={"vision/digits": EndpointRow(other, {}, {}, rows), "vision/a": endpoint})
    )
    assert router.request().status == 401
    assert router.request("/../../vision/a/score").status == 401


def test_a_flood_of_connections_leaves_the_router_answering(router: RouterProcess) -> None:
    server = router.model("blue-1")
    router.write({"blue": DeploymentRow((server.row(),))})
    opened = [router.open() for _ in range(300)]
    try:
        for each in opened:
            each.sendall(b"POST %b/score HTTP/1.1\r\n%bcontent-length: 99999\r\n\r\n" % (AT, GOOD))
        assert router.request().status == 200
        assert router.ask("statistics")["connections"] >= 300
    finally:
        for each in opened:
            each.close()


def test_the_control_socket_takes_nothing_that_is_wrong(router: RouterProcess) -> None:
    assert "error" in router.ask("what")
    assert "error" in router.ask("demand", timeout_s="soon")
    assert (router.folder / "control.sock").stat().st_mode & 0o777 == 0o600
    with router.open() as plain:
        plain.sendall(b'{"ask": "stop"}\n')
        assert read_all(plain).startswith(b"HTTP/1.1 400 ")
    assert router.ask("hello")["port"] == router.port
