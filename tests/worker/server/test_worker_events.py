"""Events and control against a server that forgets, goes away and gives control."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from torchyard.shared.connection import Connection
from torchyard.shared.server_address import ServerAddress
from torchyard.worker.server.control import OVER, Control
from torchyard.worker.server.events import Events, now_text
from worker.stub_server import StubServer, running

# A worker keeps a connection a thread until it ends, and so do the threads here.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture
def server() -> Iterator[StubServer]:
    with running() as made:
        yield made


def _events(server: StubServer, folder: Path, control: Control, heartbeat_s: float = 5.0) -> Events:
    link = Connection.of_attempt(ServerAddress(server.url), "token", "attempt")
    events = Events(link, 0, folder, control, heartbeat_s)
    events.start()
    return events


def test_many_events_arrive_in_order_once(server: StubServer, tmp_path: Path) -> None:
    events = _events(server, tmp_path, Control())
    for number in range(450):
        events.post("notice", message=str(number))
    assert events.deliver()
    messages = [event["body"]["message"] for event in server.events[0]]
    assert messages == [str(number) for number in range(450)]
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 450
    events.close()


@pytest.mark.parametrize("torn", [b'{"seq": 1, "ki', b"\0" * 40 + b"\n", b"\0\n{}\n", b"[]\n"])
def test_a_recovery_worker_continues_after_the_last_whole_event(
    server: StubServer, tmp_path: Path, torn: bytes
) -> None:
    first = {"seq": 0, "at": now_text(), "kind": "node_started", "body": {}}
    line = json.dumps(first).encode() + b"\n"
    (tmp_path / "events.jsonl").write_bytes(line + torn)
    events = _events(server, tmp_path, Control())
    events.post("node_exited", exit_code=1)
    assert events.deliver()
    assert [event["seq"] for event in server.events[0]] == [0, 1]
    events.close()
    assert (tmp_path / "events.jsonl").read_bytes().startswith(line + b'{"seq": 1')


def test_what_a_server_lost_is_sent_again(server: StubServer, tmp_path: Path) -> None:
    events = _events(server, tmp_path, Control())
    for number in range(3):
        events.post("notice", message=str(number))
    events.deliver()
    del server.events[0][1:]
    events.post("notice", message="3")
    server.wait_until(lambda: len(server.events[0]) == 4)
    assert [event["seq"] for event in server.events[0]] == [0, 1, 2, 3]
    events.close()


def test_silence_is_filled_with_heartbeats(server: StubServer, tmp_path: Path) -> None:
    events = _events(server, tmp_path, Control(), heartbeat_s=0.05)
    server.wait_until(lambda: server.heartbeats.get(0, 0) >= 3)
    events.close()


def test_the_first_reason_to_stop_stays_but_for_the_end(server: StubServer) -> None:
    control = Control()
    control.poll_server(Connection.of_attempt(ServerAddress(server.url), "token", "attempt"), 0)
    assert not control.stopped
    server.say_stop("cancel")
    server.wait_until(lambda: control.stopped)
    control.stop("failed")
    assert control.reason == "cancel"
    control.stop(OVER)
    assert control.over


def test_waiting_ends_when_woken() -> None:
    control = Control()
    control.wake()
    control.wait(60.0)
    control.wait(0.001)


def test_an_attempt_that_is_over_ends_the_delivery(server: StubServer, tmp_path: Path) -> None:
    server.over = True
    control = Control()
    events = _events(server, tmp_path, control)
    events.post("notice", message="x")
    assert not events.deliver()
    assert control.over
    events.close()


def test_times_are_utc_with_microseconds() -> None:
    text = now_text()
    assert len(text) == len("2026-01-01T00:00:00.000000Z")
    assert text.endswith("Z")


def _refuses(server: StubServer, is_bad: Callable[[dict[str, Any]], bool]) -> None:
    """Refuse every report that holds an event which is bad, as the real server does: 400."""
    real = server.answer

    def answer(method: str, path: str, query: dict[str, str], body: bytes) -> Any:
        if path.startswith("/report") and any(map(is_bad, json.loads(body)["events"])):
            return 400, {"error": {"code": "invalid_input", "message": "no event", "hint": ""}}
        return real(method, path, query, body)

    server.answer = answer  # type: ignore[method-assign]


def test_an_event_that_is_refused_is_shortened_and_the_loss_told(
    server: StubServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _refuses(server, lambda event: len(json.dumps(event)) > 5_000)
    events = _events(server, tmp_path, Control())
    for number in range(30):
        events.post("notice", message=str(number))
    error = {"code": "rank_failed", "message": "m" * 9_000, "details": {"lines": ["l"] * 9_000}}
    events.post("node_exited", exit_code=3, error=error)
    events.post("notice", message="after")
    assert events.deliver()
    events.close()
    delivered = server.events[0]
    assert [event["seq"] for event in delivered] == list(range(33))
    assert [event["body"]["message"] for event in delivered[:30]] == [str(n) for n in range(30)]
    assert delivered[30]["kind"] == "node_exited"
    assert delivered[30]["body"]["exit_code"] == 3
    assert delivered[30]["body"]["error"] == {
        "code": "rank_failed",
        "message": "m" * 200,
        "details": {},
    }
    lost = {delivered[31]["body"]["message"], delivered[32]["body"]["message"]} - {"after"}
    assert "a report of node 0 was refused and is lost in part: `node_exited`, 400" in lost.pop()
    assert "lost in part" in capfd.readouterr().err


@pytest.mark.parametrize("status", [400, 403, 404, 422])
def test_a_server_that_takes_nothing_keeps_nobody_waiting(
    server: StubServer, tmp_path: Path, capfd: pytest.CaptureFixture[str], status: int
) -> None:
    server.refuse = lambda method, path: (status, {}) if path.startswith("/report") else None
    link = Connection.of_attempt(ServerAddress(server.url), "token", "attempt")
    events = Events(link, 0, tmp_path, Control(), 0.05, refusal_limit_s=0.5)
    events.start()
    events.post("node_exited", exit_code=0)
    assert not events.deliver()
    events.close()
    assert "events dropped: the server refuses them" in capfd.readouterr().err


def test_a_refusal_that_passes_loses_nothing(server: StubServer, tmp_path: Path) -> None:
    """A proxy says 404 for a moment; what was shortened meanwhile is whole on disk."""
    bad = [True]
    _refuses(server, lambda event: bad[0])
    events = _events(server, tmp_path, Control(), heartbeat_s=0.05)
    events.post("node_exited", exit_code=7)
    server.wait_until(lambda: server.heartbeats.get(0, 0) >= 0)
    bad[0] = False
    assert events.deliver()
    events.close()
    assert server.find("node_exited") == {"exit_code": 7}


def test_a_server_that_is_away_is_waited_for_however_long(
    server: StubServer, tmp_path: Path
) -> None:
    """Other than refusals: nobody answers, for longer than refusals are borne."""
    server.stop()
    link = Connection.of_attempt(ServerAddress(server.url), "token", "attempt")
    events = Events(link, 0, tmp_path, Control(), 0.05, refusal_limit_s=0.0)
    events.start()
    events.post("node_exited", exit_code=0)
    threading.Timer(0.5, server.start).start()
    assert events.deliver()
    events.close()


def test_a_fault_of_ours_silences_no_node(
    server: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, faults = Connection.call, [TypeError("a fault")] * 2

    def faulty(self: Connection, *arguments: Any, **options: Any) -> Any:
        if faults:
            raise faults.pop()
        return call(self, *arguments, **options)

    monkeypatch.setattr(Connection, "call", faulty)
    events = _events(server, tmp_path, Control())
    events.post("node_exited", exit_code=1)
    assert events.deliver()
    assert not faults
    events.close()


def test_what_happened_while_the_server_was_away_has_its_time(
    server: StubServer, tmp_path: Path
) -> None:
    events = _events(server, tmp_path, Control())
    events.post("notice", message="first")
    assert events.deliver() and events.unreachable_s == 0
    server.stop()
    events.post("node_finalizing")
    server.wait_until(lambda: events.unreachable_s > 0)
    server.start()
    assert events.deliver()
    away_s = events.unreachable_s
    assert events.unreachable_s == away_s > 0  # it counts no further
    events.post("node_exited", earlier_s=3600, exit_code=0)
    assert events.deliver()
    finalizing, exited = (event["at"] for event in server.events[0][-2:])
    assert exited < finalizing
    events.close()


def _reports(server: StubServer) -> list[dict[str, Any]]:
    """The reports that arrive from now on."""
    reports: list[dict[str, Any]] = []
    real = server.answer

    def answer(method: str, path: str, query: dict[str, str], body: bytes) -> Any:
        if path.startswith("/report"):
            reports.append(json.loads(body))
        return real(method, path, query, body)

    server.answer = answer  # type: ignore[method-assign]
    return reports


def test_the_events_of_a_small_job_are_gathered_in_one_report(
    server: StubServer, tmp_path: Path
) -> None:
    reports = _reports(server)
    link = Connection.of_attempt(ServerAddress(server.url), "token", "attempt")
    events = Events(link, 0, tmp_path, Control(), gather_s=60.0)
    events.start()
    kinds = ["node_started", "ranks_started", "node_finalizing", "node_exited"]
    for kind in kinds:
        events.post(kind)
        time.sleep(0.05)  # for a report that does not wait
    assert events.deliver()
    events.close()
    sent = [[event["kind"] for event in report["events"]] for report in reports]
    assert [each for each in sent if each] == [kinds]


def test_a_node_measures_how_long_its_command_ran(server: StubServer, tmp_path: Path) -> None:
    reports = _reports(server)
    events = _events(server, tmp_path, Control())
    events.post("node_started")
    assert events.deliver()
    assert "ran_s" not in reports[-1]
    events.post("ranks_started", ranks=[])
    assert events.deliver()
    server.stop()
    events.post("node_finalizing")
    server.wait_until(lambda: events.unreachable_s > 0)
    server.start()
    assert events.deliver()
    events.close()
    started, finalizing = (event["steady_s"] for event in server.events[0][1:])
    assert reports[-1]["ran_s"] == round(finalizing - started, 6)
    assert reports[-1]["steady_s"] > finalizing
    # One that recovers the node knows it from its spool.
    recovered = _events(server, tmp_path, Control())
    recovered.post("node_exited", exit_code=1)
    assert recovered.deliver()
    assert reports[-1]["ran_s"] == round(finalizing - started, 6)
    recovered.close()
