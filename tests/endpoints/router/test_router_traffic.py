"""Which deployment and which instance get a request, through the real router."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from contextlib import ExitStack

import pytest

from endpoints.router.router_process import (
    BEARER,
    PATH,
    RouterProcess,
    read_all,
    send,
    wait_until,
)
from torchyard.endpoints.router.table import DeploymentRow

pytestmark = pytest.mark.slow

ONE_DATABASE = True


def test_1000_requests_are_split_90_to_10_exactly(router: RouterProcess) -> None:
    blue, green = router.model("blue-1"), router.model("green-1")
    rows = {"blue": DeploymentRow((blue.row(),)), "green": DeploymentRow((green.row(),))}
    router.write(rows, {"blue": 90, "green": 10})
    connection = router.connection()
    counts: Counter[str] = Counter()
    for _ in range(1000):
        response = send(connection)
        assert response.status == 200
        counts[response.headers["azureml-model-deployment"]] += 1
        assert response.json["from"] == response.headers["azureml-model-deployment"] + "-1"
    connection.close()
    assert counts == {"blue": 900, "green": 100}


def test_a_header_chooses_a_deployment_without_traffic(router: RouterProcess) -> None:
    blue, green = router.model("blue-1"), router.model("green-1")
    rows = {"blue": DeploymentRow((blue.row(),)), "green": DeploymentRow((green.row(),))}
    router.write(rows, {"blue": 100})
    chosen = router.request(headers={"azureml-model-deployment": "green"})
    assert chosen.json["from"] == "green-1"
    missing = router.request(headers={"azureml-model-deployment": "red"})
    assert (missing.status, missing.json["error"]["code"]) == (404, "NotFound")


def test_without_traffic_nothing_answers(router: RouterProcess) -> None:
    blue = router.model("blue-1")
    router.write({"blue": DeploymentRow((blue.row(),))}, {"blue": 0})
    assert router.request().status == 404
    assert router.request(headers={"azureml-model-deployment": "blue"}).status == 200


@pytest.mark.parametrize("threads", [8])
def test_no_request_fails_while_instances_are_replaced(router: RouterProcess, threads: int) -> None:
    old, new = router.model("blue-1-0"), router.model("blue-2-0")
    router.write({"blue": DeploymentRow((old.row(),), max_concurrent=threads)})
    answers: Counter[int] = Counter()
    names: Counter[str] = Counter()
    lock = threading.Lock()

    def ask() -> None:
        connection = router.connection()
        for _ in range(2000 // threads):
            response = send(connection)
            with lock:
                answers[response.status] += 1
                names[response.json.get("from", "")] += 1
        connection.close()

    running = [threading.Thread(target=ask) for _ in range(threads)]
    for thread in running:
        thread.start()
    wait_until(lambda: sum(answers.values()) > 200)
    both = (old.row(is_draining=True), new.row())
    router.write({"blue": DeploymentRow(both, max_concurrent=threads)})
    wait_until(lambda: not router.statistics("blue")["in_flight"]["blue-1-0"])
    router.write({"blue": DeploymentRow((new.row(),), max_concurrent=threads)})
    old.stop()
    for thread in running:
        thread.join()
    assert answers == {200: 2000}
    assert names["blue-1-0"] and names["blue-2-0"]


def test_a_draining_instance_gets_nothing_new(router: RouterProcess) -> None:
    first, second = router.model("one"), router.model("two")
    router.write({"blue": DeploymentRow((first.row(is_draining=True), second.row()))})
    assert {router.request().json["from"] for _ in range(10)} == {"two"}


def test_instances_take_turns(router: RouterProcess) -> None:
    first, second = router.model("one"), router.model("two")
    router.write({"blue": DeploymentRow((first.row(), second.row()))})
    counts = Counter(router.request().json["from"] for _ in range(20))
    assert counts == {"one": 10, "two": 10}


def test_without_an_instance_503_says_when_to_try_again(router: RouterProcess) -> None:
    router.write({"blue": DeploymentRow()})
    answer = router.request()
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.headers["azureml-model-deployment"] == "blue"
    unknown = router.raw(b"GET /endpoints/vision/other/score HTTP/1.0\r\n\r\n")
    assert unknown.startswith(b"HTTP/1.1 404 ")


def test_the_first_request_waits_while_an_instance_starts(router: RouterProcess) -> None:
    router.write({"blue": DeploymentRow(can_wake=True)})
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.append(router.request().status)) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    waiting = router.ask("demand", timeout_s=60)["waiting"]
    assert [(each["endpoint"], each["deployment"]) for each in waiting] == [
        ("vision/digits", "blue")
    ]
    assert answers == []
    assert router.statistics("blue")["waiting_since"] > 0
    started = router.model("blue-1-0")
    router.write({"blue": DeploymentRow((started.row(),), can_wake=True)})
    for thread in threads:
        thread.join()
    assert answers == [200] * 3
    assert router.statistics("blue")["waiting_since"] is None
    assert router.ask("demand", timeout_s=0.1)["waiting"] == []


def test_a_thousand_requests_wait_for_an_instance_and_the_next_are_refused(
    router: RouterProcess,
) -> None:
    router.write({"blue": DeploymentRow(can_wake=True)})
    body = b"x" * 1000
    head = b"POST %b/score HTTP/1.1\r\nhost: a\r\nconnection: close\r\n" % PATH.encode()
    head += b"authorization: %b\r\n" % BEARER["Authorization"].encode()
    request = head + b"content-length: %d\r\n\r\n%b" % (len(body), body)
    with ExitStack() as stack:

        def ask(count: int) -> list[socket.socket]:
            opened = [stack.enter_context(router.open()) for _ in range(count)]
            for each in opened:
                each.sendall(request)
            return opened

        opened = ask(1000)
        wait_until(lambda: router.statistics("blue")["queued"] == 1000)
        assert router.ask("statistics")["held_bytes"] == 1000 * len(body)
        for each in ask(20):
            assert read_all(each).startswith(b"HTTP/1.1 503 ")
        assert router.statistics("blue")["queued"] == 1000
        # What a client gives up, another one gets.
        for each in opened[:10]:
            each.close()
        wait_until(lambda: router.statistics("blue")["queued"] == 990)
        started = router.model("blue-1-0")
        router.write({"blue": DeploymentRow((started.row(),), can_wake=True)})
        statuses = Counter(read_all(each).split(maxsplit=2)[1] for each in opened[10:])
    assert statuses == {b"200": 990}
    assert router.ask("statistics")["held_bytes"] == 0
    assert router.statistics("blue")["queued"] == 0


def test_statistics_count_by_deployment(router: RouterProcess) -> None:
    blue = router.model("blue-1")
    router.write({"blue": DeploymentRow((blue.row(),))})
    for _ in range(5):
        assert router.request().status == 200
    assert router.request("/status?code=500").status == 424
    counted = router.statistics("blue")
    assert counted["requests"] == {"2xx": 5, "4xx": 1}
    assert sum(counted["latency"]) == 6
    assert counted["busy_s"] > 0
    assert counted["in_flight"] == {"blue-1": 0}
    assert BEARER  # the key is never in the log
    assert BEARER["Authorization"].split()[1] not in router.log()
