"""Commands where several servers share a home."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.conftest import Yard
from cli.real_server import RealServer
from cli.relay import Relay
from cli.served_workspace import ServedWorkspace
from client.test_embedded import IDLE, kill
from eventually import eventually
from torchyard.base.errors import Unreachable
from torchyard.base.http import Transport
from torchyard.base.settings import Settings
from torchyard.client import embedded


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    made = Settings(tmp_path / "home")
    (made.home / "servers").mkdir(parents=True)  # as it was served last
    yield made
    embedded.stop_all(made, limit_s=0.2)


@pytest.fixture
def pair(settings: Settings) -> tuple[embedded.Running, embedded.Running]:
    """Two that run; `server.json` names the second one."""
    first = embedded.ensure(settings, command=IDLE)
    folder = settings.servers_folder.rename(settings.home / "aside")
    settings.server_file.unlink()
    settings.servers_folder.mkdir()
    second = embedded.ensure(settings, command=IDLE)
    for file in folder.iterdir():
        file.rename(settings.servers_folder / file.name)
    return first, second


def _announce(settings: Settings, name: str, url: str) -> None:
    """As one of another machine: nobody here signals its process, which is this test's."""
    body = {"url": url, "pid": os.getpid(), "start_time": 1, "version": "0.1.0"}
    record = json.dumps({**body, "machine": "far b 1"})
    (settings.servers_folder / f"{name}.json").write_text(record)


def test_all_are_shown_and_all_are_stopped(
    pair: tuple[embedded.Running, embedded.Running], settings: Settings, yard: Yard
) -> None:
    first, second = pair
    assert list(embedded.living(settings)) == [second, first]
    shown = yard("server", "status", "-o", "json")
    body = json.loads(shown.text)
    assert (shown.code, body["status"], body["pid"]) == (0, "running", second.pid)
    assert [server_record["url"] for server_record in body["servers"]] == [second.url, first.url]
    assert f"  {first.url} on " in yard("server", "status").text
    stopped = yard("server", "stop").text
    assert stopped == "".join(
        f"Stopped the server (pid {server_record.pid}).\n" for server_record in (second, first)
    )
    assert not list(embedded.living(settings)) and not settings.server_file.exists()


@pytest.mark.parametrize(
    ("names", "line"),
    [
        (["default/a"], "Online endpoint `default/a` keeps answering; `{}` ends it."),
        (
            [f"default/{name}" for name in "abcdefg"],
            "7 online endpoints (`default/a`, `default/b`, `default/c`, `default/d`, `default/e`, "
            "2 more) keep answering; `{}` ends the first.",
        ),
    ],
)
def test_endpoints_that_keep_answering_are_told(
    pair: tuple[embedded.Running, embedded.Running],
    yard: Yard,
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
    line: str,
) -> None:
    monkeypatch.setattr(embedded, "answering_endpoints", lambda settings, running: names)
    stopped = yard("server", "stop")
    end = "yard online-endpoint delete -n a -w default"
    assert stopped.text.splitlines()[-1] == line.format(end)


def test_another_one_is_found_when_the_named_one_is_killed(
    pair: tuple[embedded.Running, embedded.Running], settings: Settings
) -> None:
    first, second = pair
    kill(second)
    assert embedded.ensure(settings, command=("false",)) == first
    assert embedded.answering(settings, but=first.url) is None


def test_one_of_another_machine_lives_as_long_as_it_answers(
    settings: Settings, shared_server: RealServer
) -> None:
    relay = Relay(shared_server.url)
    _announce(settings, "far", relay.url)
    running = embedded.find(settings)
    assert running is not None and running.url == relay.url
    assert not embedded.stop_all(settings), "only its own machine can stop it"
    relay.stop()
    assert embedded.find(settings) is None


def test_a_command_goes_on_at_another_server(shared_server: RealServer) -> None:
    first, second = Relay(shared_server.url), Relay(shared_server.url)
    transport = Transport(first.url, shared_server.token, elsewhere=lambda url: second.url)
    try:
        transport.get("/v1/workspaces/default/jobs", {"limit": 1})
        first.stop()
        transport.close()
        transport.get("/v1/workspaces/default/jobs", {"limit": 1})
        assert transport.url == second.url and transport.twin().url == second.url
    finally:
        transport.close()
        second.stop()
    alone = Transport(first.url, shared_server.token, elsewhere=lambda url: "")
    with pytest.raises(Unreachable):
        alone.get("/health")


def test_a_stream_goes_on_at_another_server(
    settings: Settings, server: ServedWorkspace, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = server.start("j").run()
    for line in (b"line 1\n", b"line 2\n", b"line 3\n"):
        job.log(line)
    job.complete()
    monkeypatch.delenv("TORCHYARD_URL")
    # The first one breaks every connection off, until it is gone.
    first, second = Relay(server.url, [1500, *[1] * 1000]), Relay(server.url)
    for name, relay in (("a", first), ("b", second)):
        _announce(settings, name, relay.url)
    (settings.home / "token").write_text(server.token)
    stopper = threading.Thread(target=_stop_once_broken, args=(first,))
    stopper.start()
    try:
        answer = yard("job", "stream", "-n", "j")
    finally:
        stopper.join()
        second.stop()
    assert answer.code == 0
    assert [line for line in answer.text.splitlines() if line.startswith("line")] == [
        "line 1",
        "line 2",
        "line 3",
    ]


def _stop_once_broken(relay: Relay) -> None:
    eventually(lambda: len(relay.cuts) <= 1000, "the stream to be cut")
    relay.stop()
