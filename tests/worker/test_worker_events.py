"""Events and orders against a server that forgets, goes away and gives orders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from torchyard.worker.events import Events, now_text
from torchyard.worker.link import Link
from torchyard.worker.orders import OVER, Orders
from worker.stub_server import StubServer, running

# A worker keeps a connection a thread until it ends, and so do the threads here.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture
def server() -> Iterator[StubServer]:
    with running() as made:
        yield made


def _events(server: StubServer, folder: Path, orders: Orders, heartbeat_s: float = 5.0) -> Events:
    link = Link(server.url, "token", "attempt")
    events = Events(link, 0, folder, orders, heartbeat_s)
    events.start()
    return events


def test_many_events_arrive_in_order_once(server: StubServer, tmp_path: Path) -> None:
    events = _events(server, tmp_path, Orders())
    for number in range(450):
        events.post("notice", message=str(number))
    assert events.deliver()
    messages = [event["body"]["message"] for event in server.events[0]]
    assert messages == [str(number) for number in range(450)]
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 450
    events.close()


def test_what_a_server_lost_is_sent_again(server: StubServer, tmp_path: Path) -> None:
    events = _events(server, tmp_path, Orders())
    for number in range(3):
        events.post("notice", message=str(number))
    events.deliver()
    del server.events[0][1:]
    events.post("notice", message="3")
    server.wait_until(lambda: len(server.events[0]) == 4)
    assert [event["seq"] for event in server.events[0]] == [0, 1, 2, 3]
    events.close()


def test_silence_is_filled_with_heartbeats(server: StubServer, tmp_path: Path) -> None:
    events = _events(server, tmp_path, Orders(), heartbeat_s=0.05)
    server.wait_until(lambda: server.heartbeats.get(0, 0) >= 3)
    events.close()


def test_the_first_reason_to_stop_stays_but_for_the_end(server: StubServer) -> None:
    orders = Orders()
    orders.listen_to_server(Link(server.url, "token", "attempt"), 0)
    assert not orders.stopped
    server.say_stop("cancel")
    server.wait_until(lambda: orders.stopped)
    orders.stop("failed")
    assert orders.reason == "cancel"
    orders.stop(OVER)
    assert orders.over


def test_waiting_ends_when_woken() -> None:
    orders = Orders()
    orders.wake()
    orders.wait(30.0)
    orders.wait(0.001)


def test_an_attempt_that_is_over_ends_the_delivery(server: StubServer, tmp_path: Path) -> None:
    server.over = True
    orders = Orders()
    events = _events(server, tmp_path, orders)
    events.post("notice", message="x")
    assert not events.deliver()
    assert orders.over
    events.close()


def test_times_are_utc_with_microseconds() -> None:
    text = now_text()
    assert len(text) == len("2026-01-01T00:00:00.000000Z")
    assert text.endswith("Z")
