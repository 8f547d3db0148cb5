"""The stream of events that an open page follows, at the app itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from torchyard.base import long_connections
from torchyard.web import event_hub, event_routes
from workspaces.served import HERE, JOB, MLFLOW, Served, http_scope, served

ONE_DATABASE = True
MARKUP = "</script><script>alert(1)</script>"
_LIMIT_S = 60.0


@pytest.fixture
def site(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(event_hub, "_READ_EVERY_S", 0.02)
    monkeypatch.setattr(event_hub, "_LOOK_EVERY_S", 0.05)
    with served(tmp_path, database_url) as made:
        yield made


class Stream:
    """One open stream; `events` are (kind, data, id)."""

    def __init__(self, site: Served, who: str, query: str = "", last_id: str = "") -> None:
        headers = [(b"authorization", f"Bearer {site.tokens[who]}".encode())]
        headers += [(b"accept", b"text/event-stream")]
        headers += [(b"last-event-id", last_id.encode())] if last_id else []
        self._scope = http_scope("GET", f"{HERE}/events", headers)
        self._scope["query_string"] = query.encode()
        self._app = site.client.app
        self._closing = asyncio.Event()
        self._arrived = asyncio.Event()
        self._text = ""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.events: list[tuple[str, Any, str]] = []
        self.is_over = False
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._send)
        finally:
            self.is_over = True
            self._arrived.set()

    async def _receive(self) -> dict[str, Any]:
        if "asked" not in self._scope:
            self._scope["asked"] = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._closing.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {key.decode(): value.decode() for key, value in message["headers"]}
        else:
            self.body += message.get("body", b"")
            self._parse()
        self._arrived.set()

    def _parse(self) -> None:
        if self.status != 200:
            return
        *frames, rest = self.body.decode().split("\n\n")
        self.body = rest.encode()
        for frame in frames:
            fields = dict(line.split(": ", 1) for line in frame.split("\n"))
            event = (fields["event"], json.loads(fields["data"]), fields.get("id", ""))
            self.events.append(event)

    async def until(self, is_there: Callable[[Stream], bool]) -> None:
        await asyncio.wait_for(self._until(is_there), _LIMIT_S)

    async def _until(self, is_there: Callable[[Stream], bool]) -> None:
        while not is_there(self):
            assert not self.is_over, (self.status, self.body, self.events)
            self._arrived.clear()
            await self._arrived.wait()

    async def over(self) -> None:
        await asyncio.wait_for(asyncio.shield(self._task), _LIMIT_S)

    async def close(self) -> None:
        self._closing.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(self._task, _LIMIT_S)

    def of(self, kind: str) -> list[Any]:
        return [data for name, data, _ in self.events if name == kind]


def _run(site: Served, scenario: Callable[[], Awaitable[None]]) -> None:
    async def with_loop() -> None:
        site.parts.services.signals.attach(asyncio.get_running_loop())
        await scenario()

    asyncio.run(with_loop())


async def _do(act: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(act)


def _create(site: Served, name: str, who: str = "dan", **more: Any) -> Any:
    return site.ok(who, "POST", f"{HERE}/jobs", {**JOB, "name": name, **more})


def _has_jobs(count: int, stream: Stream) -> bool:
    return len(stream.of("job")) >= count


def _log_metric(site: Served, name: str, key: str, value: float | str, step: int) -> None:
    body = {"run_id": name, "key": key, "value": value, "step": step, "timestamp": step}
    site.ok("dan", "POST", f"{MLFLOW}/runs/log-metric", body)


def test_a_stream_tells_of_new_and_changed_jobs(site: Served) -> None:
    async def scenario() -> None:
        stream = Stream(site, "rita")
        await stream.until(lambda it: bool(it.of("hello")))
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.headers["x-content-type-options"] == "nosniff"
        assert stream.headers["cache-control"] == "no-store"
        await _do(lambda: _create(site, "one", display_name=MARKUP))
        await stream.until(lambda it: bool(it.of("job")))
        change = stream.of("job")[0]
        assert change["name"] == "one" and change["job"]["display_name"] == MARKUP
        assert change["job"]["waiting"] == "" and change["last_event"] > 0
        await _do(lambda: site.ok("dan", "PATCH", f"{HERE}/jobs/one", {"description": "new"}))
        await stream.until(lambda it: it.of("job")[-1]["job"]["description"] == "new")
        await _do(lambda: site.ok("dan", "POST", f"{HERE}/jobs/one/cancel"))
        await stream.until(lambda it: it.of("job")[-1]["job"]["status"] == "Canceled")
        await _do(lambda: site.ok("dan", "DELETE", f"{HERE}/jobs/one"))
        await stream.until(lambda it: it.of("job")[-1]["job"] is None)
        await stream.close()

    _run(site, scenario)


def test_metrics_and_logs_are_told_of_followed_jobs_alone(site: Served) -> None:
    _create(site, "one")
    _create(site, "two")
    services = site.parts.services

    async def scenario() -> None:
        stream, other = Stream(site, "rita", "job=one&jobs=followed"), Stream(site, "rita")
        for each in (stream, other):
            await each.until(lambda it: bool(it.of("hello")))
        await _do(lambda: _log_metric(site, "two", "loss", 1.0, 1))
        await _do(lambda: _log_metric(site, "one", MARKUP.replace("/", "|"), 1.0, 1))
        await _do(lambda: _log_metric(site, "one", "loss", "NaN", 1))
        await stream.until(lambda it: "loss" in str(it.of("metrics")))
        points = [entry for event in stream.of("metrics") for entry in event["metrics"]]
        assert {entry["key"] for entry in points} == {"loss", MARKUP.replace("/", "|")}
        assert points[-1] == {"key": "loss", "count": 1, "step": 1, "timestamp": 1, "value": "NaN"}
        append = services.logs.append
        await _do(lambda: append("default", "one", 0, "user_logs/std_log.txt", 0, b"hello\n"))
        await stream.until(lambda it: bool(it.of("logs")))
        log = {"attempt": 0, "path": "user_logs/std_log.txt", "size_bytes": 6}
        assert stream.of("logs") == [{"job": "one", "logs": [log]}]
        assert {event["name"] for event in stream.of("job")} <= {"one"}
        assert not other.of("metrics") and not other.of("logs")
        await stream.close()
        await other.close()

    _run(site, scenario)


def test_a_stream_goes_on_where_it_was_left(site: Served) -> None:
    async def scenario() -> None:
        keeping = Stream(site, "rita")
        await keeping.until(lambda it: bool(it.of("hello")))
        stream = Stream(site, "rita")
        await stream.until(lambda it: bool(it.of("hello")))
        left_at = stream.events[-1][2]
        await stream.close()
        await _do(lambda: _create(site, "one"))
        await keeping.until(lambda it: bool(it.of("job")))
        again = Stream(site, "rita", last_id=left_at)
        await again.until(lambda it: bool(it.of("job")))
        assert [hello["resumed"] for hello in again.of("hello")] == [True]
        assert again.of("job")[0]["name"] == "one"
        for unknown in ("feed0000-1", "x", "-", f"{left_at.split('-')[0]}-99999", f"{left_at}x"):
            reopened = Stream(site, "rita", last_id=unknown)
            await reopened.until(lambda it: bool(it.of("hello")))
            assert [hello["resumed"] for hello in reopened.of("hello")] == [False], unknown
            await reopened.close()
        await keeping.close()
        await again.close()

    _run(site, scenario)


def test_who_was_away_too_long_is_told_to_begin_again(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_hub, "_MOST_KEPT", 3)

    async def scenario() -> None:
        keeping = Stream(site, "rita")
        await keeping.until(lambda it: bool(it.of("hello")))
        left_at = keeping.events[-1][2]
        for number in range(5):
            await _do(partial(_create, site, f"job-{number}"))
            await keeping.until(partial(_has_jobs, number + 1))
        again = Stream(site, "rita", last_id=left_at)
        await again.until(lambda it: bool(it.of("hello")))
        assert [hello["resumed"] for hello in again.of("hello")] == [False]
        hub = site.client.app.state.event_streams.hub  # type: ignore[attr-defined]
        feed = hub.enter("default")
        assert event_routes._since(
            feed, 0, event_routes._Subscription(frozenset(), frozenset(), False)
        )[0].startswith(f"id: {feed.epoch}-{feed.last}\nevent: reset\n".encode())
        hub.leave(feed, [], [])
        await keeping.close()
        await again.close()

    _run(site, scenario)


@pytest.mark.slow
def test_a_person_has_a_bounded_number_of_streams(site: Served) -> None:
    async def scenario() -> None:
        streams = [Stream(site, "rita") for _ in range(1000)]
        await asyncio.gather(*(each.until(lambda it: it.status != 0) for each in streams))
        opened = [each for each in streams if each.status == 200]
        refused = [each for each in streams if each.status == 429]
        assert (len(opened), len(refused)) == (event_routes.MOST_STREAMS, 1000 - len(opened))
        other = Stream(site, "dan")
        await other.until(lambda it: bool(it.of("hello")))
        await opened[0].close()
        again = Stream(site, "rita")
        await again.until(lambda it: bool(it.of("hello")))
        await asyncio.gather(*(each.close() for each in [*opened[1:], other, again]))
        assert not site.client.app.state.event_streams._open  # type: ignore[attr-defined]

    _run(site, scenario)


def test_a_stream_says_whose_it_is_and_which_jobs_are_not_there(site: Served) -> None:
    """Of a browser's tabs, one with a job that was deleted does not end the stream of all."""
    site.ok("home", "POST", "/v1/workspaces", {"name": "vision"})
    site.ok("home", "POST", "/v1/workspaces/vision/jobs", {**JOB, "name": "theirs"})
    _create(site, "one")

    async def scenario() -> None:
        stream = Stream(site, "rita", "job=theirs&job=one&job=gone")
        await stream.until(lambda it: bool(it.of("hello")))
        whoami = await _do(lambda: site.ok("rita", "GET", "/v1/whoami"))
        assert stream.of("hello") == [
            {
                "resumed": False,
                "user": "rita",
                "token": whoami["token"],
                "missing": ["theirs", "gone"],
            }
        ]
        await _do(lambda: _log_metric(site, "one", "loss", 1.0, 1))
        await stream.until(lambda it: bool(it.of("metrics")))
        assert [event["job"] for event in stream.of("metrics")] == ["one"]
        await stream.close()

    _run(site, scenario)


def test_streams_of_other_workspaces_are_refused(site: Served) -> None:
    site.ok("home", "POST", "/v1/workspaces", {"name": "vision"})
    site.client.headers["accept"] = "text/event-stream"
    site.refused("dan", "GET", "/v1/workspaces/vision/events")
    assert site.ask("dan", "GET", f"{HERE}/events?compute=no").status_code == 404
    assert site.ask("dan", "GET", f"{HERE}/events?jobs=some").status_code == 400
    many = "&".join(f"job=j{number}" for number in range(101))
    assert site.ask("dan", "GET", f"{HERE}/events?{many}").status_code == 400
    site.client.headers.pop("authorization", None)
    assert site.client.get(f"{HERE}/events").status_code == 401


def test_who_reads_to_the_end_is_refused(site: Served) -> None:
    answer = site.ask("dan", "GET", f"{HERE}/events?last=x")
    assert answer.status_code == 400 and "Accept: text/event-stream" in answer.text


def test_nothing_of_another_workspace_is_told(site: Served) -> None:
    site.ok("home", "POST", "/v1/workspaces", {"name": "vision"})

    async def scenario() -> None:
        stream = Stream(site, "rita")
        await stream.until(lambda it: bool(it.of("hello")))
        job = {**JOB, "name": "theirs"}
        await _do(lambda: site.ok("home", "POST", "/v1/workspaces/vision/jobs", job))
        await _do(lambda: _create(site, "ours"))
        await stream.until(lambda it: bool(it.of("job")))
        assert [event["name"] for event in stream.of("job")] == ["ours"]
        await stream.close()

    _run(site, scenario)


@pytest.mark.parametrize("how", ["role", "token", "person"])
def test_a_stream_ends_with_the_right_to_it(
    site: Served, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(event_routes, "_PING_EVERY_S", 0.05)
    monkeypatch.setattr(long_connections, "CHECK_EVERY_S", 0.05)
    changes: dict[str, tuple[str, str, Any]] = {
        "role": ("PUT", f"{HERE}/people/rita", {"role": None}),
        "token": ("DELETE", "/v1/users/rita/tokens/first", None),
        "person": ("DELETE", "/v1/users/rita", None),
    }

    async def scenario() -> None:
        stream = Stream(site, "rita")
        await stream.until(lambda it: len(it.of("ping")) > 1)
        method, path, body = changes[how]
        await _do(lambda: site.ok("home", method, path, body))
        await stream.over()
        assert stream.events[-1][0] == "end"

    _run(site, scenario)


def test_without_a_stream_nothing_is_read(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_hub, "_GRACE_S", 0.0)

    async def scenario() -> None:
        stream = Stream(site, "rita", "compute=local")
        await stream.until(lambda it: bool(it.of("hello")))
        hub = site.client.app.state.event_streams.hub  # type: ignore[attr-defined]
        signals = site.parts.services.signals
        assert len(signals._listeners) == 1
        await stream.close()
        await _do(lambda: _create(site, "one"))
        await asyncio.wait_for(asyncio.shield(hub._task), _LIMIT_S)
        assert not signals._listeners and not hub._feeds and not hub._progress
        again = Stream(site, "rita", last_id=stream.events[0][2])
        await again.until(lambda it: bool(it.of("hello")))
        assert [hello["resumed"] for hello in again.of("hello")] == [False]
        await again.close()

    _run(site, scenario)


def test_streams_end_when_the_server_stops(site: Served) -> None:
    async def scenario() -> None:
        streams = [Stream(site, "rita"), Stream(site, "dan")]
        for each in streams:
            await each.until(lambda it: bool(it.of("hello")))
        site.parts.services.signals.close()
        await asyncio.gather(*(each.over() for each in streams))

    _run(site, scenario)
