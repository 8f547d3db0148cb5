"""What comes back through the real router: bodies, streams, upgrades, and what replaces them."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random

import pytest

from endpoints.router.router_process import (
    BEARER,
    KEY,
    PATH,
    ModelServer,
    Response,
    RouterProcess,
    read_all,
    read_until,
    send,
    wait_until,
)
from torchyard.endpoints.router.table import Batching, Collect, DeploymentRow

pytestmark = pytest.mark.slow

ONE_DATABASE = True
_KILLS = 60
HEAD = f"host: h\r\nauthorization: Bearer {KEY}\r\n".encode()


def _serve(router: RouterProcess, **settings: object) -> ModelServer:
    server = router.model("blue-1")
    router.write({"blue": DeploymentRow((server.row(),), **settings)})  # type: ignore[arg-type]
    return server


def test_path_query_method_and_body_reach_the_instance(router: RouterProcess) -> None:
    server = _serve(router)
    answer = router.request("/deep/path?a=1&b=%2F", b"x" * 10, method="PUT")
    assert answer.json["path"] == "/deep/path?a=1&b=%2F"
    assert (answer.json["method"], answer.json["size"]) == ("PUT", 10)
    assert router.request("", None).json["path"] == "/"
    names = {name.lower() for name, _ in server.seen()[0]["headers"]}
    assert "authorization" not in names
    assert "x-ms-request-id" in names


def test_answers_carry_request_ids_and_the_deployment(router: RouterProcess) -> None:
    _serve(router)
    answer = router.request(headers={"x-ms-request-id": "abc-1", "x-ms-client-request-id": "c-2"})
    assert answer.headers["x-ms-request-id"] == "abc-1"
    assert answer.headers["x-ms-client-request-id"] == "c-2"
    assert answer.headers["azureml-model-deployment"] == "blue"
    fresh = {router.request().headers["x-ms-request-id"] for _ in range(3)}
    assert len(fresh) == 3 and "the model's own" not in fresh


@pytest.mark.parametrize("size", [0, 1000, 300_000, 5_000_000])
def test_bodies_of_any_length_pass_in_both_framings(router: RouterProcess, size: int) -> None:
    _serve(router, timeout_ms=60_000)
    body = b"x" * size
    assert router.request(body=body).json["size"] == size
    connection = router.connection()
    parts = iter([body[at : at + 70_000] for at in range(0, size, 70_000)])
    connection.request("POST", PATH + "/score", parts, BEARER, encode_chunked=True)
    assert Response(connection.getresponse()).json["size"] == size
    connection.close()
    assert router.request(f"/large?n={size}").body == body
    assert router.ask("statistics")["held_bytes"] == 0


def test_pieces_of_an_answer_pass_when_they_come(router: RouterProcess) -> None:
    _serve(router)
    with router.open() as opened:
        opened.sendall(b"GET %b/stream?n=3&every=0.5 HTTP/1.1\r\n%b\r\n" % (PATH.encode(), HEAD))
        first = read_until(opened, b"piece 0")
        assert b"transfer-encoding: chunked" in first and b"piece 1" not in first
        assert b"piece 2" in read_until(opened, b"0\r\n\r\n")
    old = router.raw(b"GET %b/stream?n=2 HTTP/1.0\r\n%b\r\n" % (PATH.encode(), HEAD))
    assert old.endswith(b"\r\n\r\npiece 0\npiece 1\n")
    assert router.request("/till-end").body == b"till the end"


def test_a_client_may_ask_before_it_sends_its_body(router: RouterProcess) -> None:
    _serve(router, max_body_bytes=100)
    line = b"POST %b/score HTTP/1.1\r\n%b" % (PATH.encode(), HEAD)
    with router.open() as opened:
        opened.sendall(line + b"expect: 100-continue\r\ncontent-length: 3\r\n\r\n")
        assert read_until(opened, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        opened.sendall(b"abc")
        assert b'"text": "abc"' in read_until(opened, b"}")
    with router.open() as opened:
        opened.sendall(line + b"expect: 100-continue\r\ncontent-length: 101\r\n\r\n")
        assert read_until(opened, b"\r\n").startswith(b"HTTP/1.1 413 ")


def test_bodies_over_the_limit_are_refused_in_both_framings(router: RouterProcess) -> None:
    server = _serve(router, max_body_bytes=100)
    assert router.request(body=b"x" * 100).status == 200
    assert router.request(body=b"x" * 101).json["error"]["code"] == "PayloadTooLarge"
    chunked = b"POST %b/score HTTP/1.1\r\n%btransfer-encoding: chunked\r\n\r\n65\r\n%b\r\n"
    answer = router.raw(chunked % (PATH.encode(), HEAD, b"x" * 101) + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert len(server.seen()) == 1


@pytest.mark.parametrize("path", ["/score", "/status?code=404"])
def test_head_and_options_pass(router: RouterProcess, path: str) -> None:
    _serve(router)
    head = router.request(path, None, method="HEAD")
    assert head.body == b"" and int(head.headers["content-length"]) > 0
    options = router.request(path, None, method="OPTIONS")
    assert options.headers["access-control-allow-origin"] == "*"


def test_a_preflight_reaches_no_deployment_that_does_not_ask_for_it(router: RouterProcess) -> None:
    server = _serve(router)
    asks = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
    connection = router.connection()
    try:
        assert send(connection, "/score", None, asks, "OPTIONS").status == 401
    finally:
        connection.close()
    assert server.seen() == []


def test_a_preflight_needs_no_key_and_all_else_does(router: RouterProcess) -> None:
    server = _serve(router, has_cors=True)
    asks = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
    connection = router.connection()
    try:
        for method, headers, status in (
            ("OPTIONS", asks, 200),
            ("OPTIONS", {"Origin": "https://page.example"}, 401),
            ("POST", asks, 401),
        ):
            answer = send(connection, "/score", None, headers, method)
            assert answer.status == status, (method, headers)
    finally:
        connection.close()
    assert [each["method"] for each in server.seen()] == ["OPTIONS"]
    # It wakes nothing.
    router.write({"blue": DeploymentRow((), can_wake=True, has_cors=True)})
    connection = router.connection()
    try:
        assert send(connection, "/score", None, asks, "OPTIONS").status == 503
    finally:
        connection.close()


def test_a_models_error_becomes_424_with_its_own_status(router: RouterProcess) -> None:
    _serve(router)
    answer = router.request("/status?code=503")
    assert answer.status == 424
    assert answer.headers["ms-azureml-model-error-statuscode"] == "503"
    assert answer.json == {"from": "blue-1"}


def test_websockets_pass_bytes_both_ways(router: RouterProcess) -> None:
    _serve(router)
    with router.open() as opened:
        opened.sendall(
            b"GET %b/ws HTTP/1.1\r\n%bconnection: Upgrade\r\nupgrade: websocket\r\n\r\n"
            % (PATH.encode(), HEAD)
        )
        assert b" 101 " in read_until(opened, b"\r\n\r\n")
        payload = Random(1).randbytes(3_000_000)
        sender = threading.Thread(target=opened.sendall, args=(payload,))
        sender.start()
        echoed = b""
        while len(echoed) < len(payload):
            echoed += opened.recv(1 << 20)
        sender.join()
        assert echoed == payload
        assert router.statistics("blue")["in_flight"] == {"blue-1": 1}
    wait_until(lambda: router.statistics("blue")["in_flight"] == {"blue-1": 0})


def test_an_instance_that_dies_in_its_answer_is_502_and_the_next_request_passes(
    router: RouterProcess,
) -> None:
    first, second = router.model("first"), router.model("second")
    router.write({"blue": DeploymentRow((first.row(), second.row()))})
    answer = router.request("/die")
    assert (answer.status, answer.json["error"]["code"]) == (502, "BadGateway")
    assert [router.request().status for _ in range(5)] == [200] * 5
    assert router.statistics("blue")["refusals"] == {"502": 1}


def test_an_answer_that_is_not_http_is_502(router: RouterProcess) -> None:
    _serve(router)
    assert router.request("/garbage").status == 502
    assert router.request().status == 200


def test_time_over_is_408_and_the_slot_is_free_again(router: RouterProcess) -> None:
    _serve(router, timeout_ms=300)
    answer = router.request("/score?s=30")
    assert (answer.status, answer.json["error"]["code"]) == (408, "RequestTimeout")
    assert router.request().status == 200
    assert router.statistics("blue")["in_flight"] == {"blue-1": 0}


def test_requests_wait_for_a_slot_and_429_says_when_to_try_again(router: RouterProcess) -> None:
    _serve(router, max_queue=1, max_queue_wait_ms=60_000, timeout_ms=60_000)
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(router.request("/score?s=1").status)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for number, thread in enumerate(threads):
        thread.start()
        wait_until(
            lambda n=number: (  # type: ignore[misc]
                router.statistics("blue")["queued"] == n
                and router.statistics("blue")["in_flight"]["blue-1"] == 1
            )
        )
    full = router.request()
    assert full.status == 429 and int(full.headers["retry-after"]) > 0
    for thread in threads:
        thread.join()
    assert statuses == [200, 200]


def test_waiting_ends_with_429_after_its_limit(router: RouterProcess) -> None:
    _serve(router, max_queue_wait_ms=100, timeout_ms=60_000)
    with router.open() as opened:
        opened.sendall(b"GET %b/score?s=20 HTTP/1.1\r\n%b\r\n" % (PATH.encode(), HEAD))
        wait_until(lambda: router.statistics("blue")["in_flight"]["blue-1"] == 1)
        assert router.request().status == 429
    # The client is gone: so is its request.
    assert router.request().status == 200


def test_copies_change_nothing_for_the_client(router: RouterProcess) -> None:
    blue, green = router.model("blue-1"), router.model("green-1")
    rows = {"blue": DeploymentRow((blue.row(),)), "green": DeploymentRow((green.row(),))}
    router.write(rows, {"blue": 100}, mirror={"green": 50})
    connection = router.connection()
    for number in range(20):
        answer = send(connection, body=b"%d" % number)
        assert answer.json["from"] == "blue-1"
        wait_until(lambda: router.statistics("green")["in_flight"] == {"green-1": 0})
    connection.close()
    wait_until(lambda: len(green.seen()) == 10)
    assert router.statistics("green")["mirrored"] == 10
    green.stop()
    assert {router.request().status for _ in range(6)} == {200}


def test_rows_of_several_requests_become_one_request(router: RouterProcess) -> None:
    server = _serve(router, batching=Batching(6, 10_000))
    answers: dict[int, Response] = {}

    def ask(number: int) -> None:
        body = json.dumps({"data": [number, number + 100]}).encode()
        answers[number] = router.request("/rows", body, {"content-type": "application/json"})

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: answer.json for number, answer in answers.items()} == {
        number: [2 * number, 2 * number + 200] for number in range(3)
    }
    assert len({answer.headers["x-ms-request-id"] for answer in answers.values()}) == 3
    assert len(server.seen()) == 1
    router.write({"blue": DeploymentRow((server.row(),), batching=Batching(6, 5))})
    short = router.request("/short-rows", b'{"data": [1, 2]}')
    assert short.status == 424 and "not a list with one value" in short.json["error"]["message"]
    assert router.request("/score", b"not rows").json["text"] == "not rows"


def test_inputs_and_outputs_are_kept_as_lines(router: RouterProcess, tmp_path: Path) -> None:
    rates = {"model_inputs": 1.0, "model_outputs": 1.0, "response": 1.0, "request": 0.0, "own": 1.0}
    _serve(router, collect=Collect(str(tmp_path / "kept"), rates, "day"))
    answer = router.request(body=b'{"x": 1}')
    wait_until(lambda: router.statistics("blue")["collected"] == 1)
    lines = {
        name: json.loads(next((tmp_path / "kept" / name).rglob("*.jsonl")).read_text())
        for name in ("model_inputs", "model_outputs", "response")
    }
    assert {each.name for each in (tmp_path / "kept").iterdir()} == set(lines)
    assert lines["response"]["data"] == lines["model_outputs"]["data"]
    assert lines["response"]["type"] == "azureml.inference.response"
    assert lines["model_inputs"]["data"] == {"x": 1}
    assert lines["model_outputs"]["data"]["from"] == "blue-1"
    identities = {line["correlationid"] for line in lines.values()}
    assert identities == {answer.headers["x-ms-request-id"]}


def _has_more(answers: Counter[int], count: int) -> bool:
    return answers[200] > count


@pytest.mark.timeout(300)
def test_no_request_is_without_an_answer_while_instances_are_killed(
    router: RouterProcess,
) -> None:
    servers = [router.model(f"blue-{number}") for number in range(3)]
    settings = {"max_concurrent": 4, "max_queue": 100, "max_queue_wait_ms": 20_000}

    def write() -> None:
        rows = tuple(server.row() for server in servers)
        router.write({"blue": DeploymentRow(rows, **settings)})  # type: ignore[arg-type]

    write()
    answers: Counter[int] = Counter()
    is_over = threading.Event()
    lock = threading.Lock()

    def ask() -> None:
        connection = router.connection()
        while not is_over.is_set():
            response = send(connection)
            with lock:
                answers[response.status] += 1
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    random = Random(22)
    for number in range(_KILLS):
        at = random.randrange(3)
        time.sleep(random.random() * 0.01)
        servers[at].stop()
        servers[at] = router.model(f"blue-{number + 3}")
        write()
        wait_until(partial(_has_more, answers, number))
    is_over.set()
    for thread in threads:
        thread.join()
    assert set(answers) <= {200, 502, 503}
    assert answers[200] > _KILLS
    assert answers[502] <= _KILLS * 4


def test_tls_protects_the_same_answers(tmp_path: Path) -> None:
    from datetime import datetime, timezone

    from torchyard.base import certificates

    issued = certificates.ensure(tmp_path, [], datetime.now(timezone.utc))
    router = RouterProcess(tmp_path / "home")
    try:
        router.start("--certificate", str(issued.file))
        assert router.ask("hello")["is_tls"]
        _serve(router)
        context = ssl.create_default_context(cadata=certificates.authority(tmp_path))
        connection = http.client.HTTPSConnection("127.0.0.1", router.port, context=context)
        assert send(connection).status == 200
        assert send(connection, "/large?n=3000000").body == b"x" * 3_000_000
        connection.close()
        with socket.create_connection(("127.0.0.1", router.port)) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
            assert b"200" not in read_all(plain)
    finally:
        router.close()
