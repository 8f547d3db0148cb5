"""Commands where several servers share a home."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.conftest import Yard
from cli.fake_server import TOKEN, FakeServer, Part, job_body
from cli.fake_server import FakeJob as Job
from client.test_embedded import kill
from eventually import eventually
from torchyard.base.errors import Unreachable
from torchyard.base.http import Transport
from torchyard.base.settings import Settings
from torchyard.client import embedded

FAKE = (sys.executable, str(Path(__file__).parents[1] / "fake_server.py"))


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    made = Settings(tmp_path / "home")
    (made.home / "servers").mkdir(parents=True)  # as it was served last
    yield made
    embedded.stop_all(made, limit_s=0.2)


@pytest.fixture
def pair(settings: Settings) -> tuple[embedded.Running, embedded.Running]:
    """Two that run; `server.json` names the second one."""
    first = embedded.ensure(settings, command=FAKE)
    folder = settings.servers_folder.rename(settings.home / "aside")
    settings.server_file.unlink()
    settings.servers_folder.mkdir()
    second = embedded.ensure(settings, command=FAKE)
    for file in folder.iterdir():
        file.rename(settings.servers_folder / file.name)
    return first, second


def _announce(settings: Settings, name: str, fake: FakeServer) -> None:
    """As one of another machine: nobody here signals its process, which is this test's."""
    body = {"url": fake.url, "pid": os.getpid(), "start_time": 1, "version": "0.1.0"}
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
    assert embedded.ensure(settings, command=(*FAKE, "--fail")) == first
    assert embedded.answering(settings, but=first.url) is None


def test_one_of_another_machine_lives_as_long_as_it_answers(settings: Settings) -> None:
    fake = FakeServer()
    _announce(settings, "far", fake)
    running = embedded.find(settings)
    assert running is not None and running.url == fake.url
    assert not embedded.stop_all(settings), "only its own machine can stop it"
    fake.stop()
    assert embedded.find(settings) is None


def test_a_command_goes_on_at_another_server() -> None:
    first, second = FakeServer(), FakeServer()
    transport = Transport(first.url, TOKEN, elsewhere=lambda url: second.url)
    try:
        transport.get("/v1/workspaces/default/jobs", {"limit": 1})
        first.stop()
        transport.close()
        transport.get("/v1/workspaces/default/jobs", {"limit": 1})
        assert transport.url == second.url and transport.twin().url == second.url
    finally:
        transport.close()
        second.stop()
    alone = Transport(first.url, TOKEN, elsewhere=lambda url: "")
    with pytest.raises(Unreachable):
        alone.get("/health")


def test_a_stream_goes_on_at_another_server(settings: Settings, yard: Yard) -> None:
    first, second = FakeServer(), FakeServer()
    lines = [b"line 1\n", b"line 2\n", b"line 3\n"]
    log = {"kind": "log", "attempt": 1, "path": "user_logs/std_log.txt"}
    # The first one breaks every connection off, until it is gone.
    for fake, cuts in ((first, [150, *[1] * 1000]), (second, [])):
        parts = [Part(dict(log), line) for line in lines]
        fake.state.jobs["j"] = Job(job_body("j"), parts, cuts=cuts)
        fake.state.jobs["j"].may_end.set()
    for name, fake in (("a", first), ("b", second)):
        _announce(settings, name, fake)
    (settings.home / "token").write_text(TOKEN)
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
    assert any("/jobs/j/stream" in path for _, path in second.state.requests)


def _stop_once_broken(fake: FakeServer) -> None:
    eventually(lambda: len(fake.state.jobs["j"].cuts) <= 1000, "the stream to be cut")
    fake.stop()
