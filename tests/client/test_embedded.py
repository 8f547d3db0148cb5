"""The server of this machine: found, started once, stopped."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from eventually import eventually
from torchyard.base.errors import InvalidInput, Unreachable
from torchyard.base.home import home_service
from torchyard.base.http import Transport
from torchyard.base.machine import is_alive
from torchyard.base.settings import Settings
from torchyard.client import embedded

IDLE = (sys.executable, str(Path(__file__).with_name("idle_server.py")))
"""Starts in a moment, where only the process is of interest."""
SOMEWHERE = embedded.Running("http://127.0.0.1:9", 1, 1, "0.1.0")


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    made = Settings(tmp_path / "home")
    yield made
    embedded.stop(made, limit_s=0.2)


def kill(running: embedded.Running) -> None:
    """End its process, and see it gone: a signal is on its way for a moment."""
    os.kill(running.pid, signal.SIGKILL)
    eventually(lambda: not is_alive(running.pid, running.start_time), "the process to be gone")


def test_a_home_on_a_network_file_system_is_warned_of(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "file_system", lambda folder: "nfs4")
    with pytest.warns(UserWarning, match=r"network file system \(nfs4\)"):
        embedded.ensure(settings, command=IDLE)


@pytest.mark.slow
def test_racing_commands_start_one_server(settings: Settings) -> None:
    script = (
        "import sys; from pathlib import Path; from torchyard.client import embedded;"
        "from torchyard.base.settings import Settings;"
        "print(embedded.ensure(Settings(Path(sys.argv[1])), lambda: print('first')))"
    )
    racers = [
        subprocess.Popen([sys.executable, "-c", script, str(settings.home)], stdout=subprocess.PIPE)
        for _ in range(10)
    ]
    lines = b"".join(racer.communicate(timeout=60)[0] for racer in racers).splitlines()
    assert lines.count(b"first") == 1
    assert len(set(lines)) == 2 and sum(line.startswith(b"Running(url=") for line in lines) == 10
    # Stopped by another process than the one that started it: no zombie to wait for.
    assert embedded.stop(settings) is not None


def test_the_real_server_is_found_again_and_stopped(settings: Settings) -> None:
    starts: list[str] = []
    first = embedded.ensure(settings, lambda: starts.append("start"))
    assert embedded.ensure(settings, lambda: starts.append("start")) == first
    assert starts == ["start"]
    assert embedded.token(settings).startswith("yard_p_")
    assert os.getsid(first.pid) == first.pid, "Ctrl-C in a terminal must not reach it"
    assert embedded.running_jobs(settings, first) == 0
    assert embedded.stop(settings) == first
    assert embedded.find(settings) is None and embedded.stop(settings) is None


def test_one_that_was_stopped_or_killed_is_replaced(settings: Settings) -> None:
    first = embedded.ensure(settings, command=IDLE)
    embedded.stop(settings)
    second = embedded.ensure(settings, command=IDLE)
    kill(second)
    assert len({first.pid, second.pid, embedded.ensure(settings, command=IDLE).pid}) == 3


def test_a_moved_port_of_azures_clients_is_told(settings: Settings) -> None:
    embedded.ensure(settings, command=[*IDLE, "--tls-port", "8766"])
    embedded.stop(settings)
    embedded.ensure(settings, command=[*IDLE, "--tls-port", "8766"])
    embedded.stop(settings)
    with pytest.warns(UserWarning, match=r"uses port 8766,.* now uses port 9766.*client-env"):
        embedded.ensure(settings, command=[*IDLE, "--tls-port", "9766"])


def test_a_server_deaf_to_sigterm_is_killed(settings: Settings) -> None:
    running = embedded.ensure(settings, command=(*IDLE, "--deaf"))
    assert embedded.stop(settings, limit_s=0.3) == running
    assert not is_alive(running.pid, running.start_time)


def test_another_process_with_the_same_number_is_left_alone(settings: Settings) -> None:
    settings.home.mkdir()
    with subprocess.Popen(["sleep", "60"]) as bystander:
        body = {"url": "http://127.0.0.1:9", "pid": bystander.pid, "start_time": 1, "version": "x"}
        settings.server_file.write_text(json.dumps(body))
        assert embedded.find(settings) is None
        assert embedded.stop(settings) is None
        assert bystander.poll() is None
        bystander.kill()


def test_a_server_that_fails_shows_its_log(settings: Settings) -> None:
    settings.home.mkdir()
    settings.server_log.write_text("old news\n")
    program = "print('something is wrong with the disk'); raise SystemExit(3)"
    with pytest.raises(Unreachable) as caught:
        embedded.ensure(settings, command=(sys.executable, "-c", program))
    assert "ended with 3\nsomething is wrong with the disk" in caught.value.message
    assert "old news" not in caught.value.message
    assert str(settings.server_log) in caught.value.hint


def test_a_server_that_refuses_is_quoted(settings: Settings) -> None:
    settings.home.mkdir()
    words = "error: port 1 is taken\\nhint: choose another with `--port`\\n"
    program = f"import sys; sys.stderr.write('{words}'); sys.exit(2)"
    with pytest.raises(InvalidInput) as caught:
        embedded.ensure(settings, command=(sys.executable, "-c", program))
    assert caught.value.message == "the server could not be started: port 1 is taken"
    assert caught.value.hint == "choose another with `--port`"


def test_a_server_that_never_is_ready(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "START_LIMIT_S", 0.3)
    with pytest.raises(Unreachable, match=r"was not ready in 0.3 s"):
        embedded.ensure(settings, command=(sys.executable, "-c", "import time; time.sleep(60)"))


def test_a_file_that_is_no_json_is_no_server(settings: Settings) -> None:
    settings.home.mkdir()
    for text in ("", "{", "[]", '{"pid": "x"}', "null"):
        settings.server_file.write_text(text)
        assert embedded.find(settings) is None


def test_a_home_that_a_unit_serves_gets_no_embedded_server(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.home.mkdir()
    home_service.record(settings.home, home_service.HomeService("yard.service", "0.0.0.0"))
    monkeypatch.setattr(embedded, "RESTART_LIMIT_S", 0.3)
    with pytest.raises(Unreachable) as caught:
        embedded.ensure(settings, command=IDLE)
    assert "the unit `yard.service`" in caught.value.message
    assert "systemctl start yard.service" in caught.value.hint
    assert not settings.server_log.exists(), "none was started"
    home_service.record(settings.home, None)
    assert embedded.ensure(settings, command=IDLE).pid


def test_a_command_waits_for_a_service_that_restarts(settings: Settings) -> None:
    settings.home.mkdir()
    home_service.record(settings.home, home_service.HomeService("", "0.0.0.0"))
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(embedded.ensure, settings, None, ("false",))
        # As `systemctl restart` does, beside the command.
        restarted = embedded._start(settings, IDLE, None)
        assert waiting.result(timeout=60) == restarted


def test_a_killed_server_of_a_unit_is_told_at_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = embedded.ensure(settings, command=IDLE)
    home_service.record(settings.home, home_service.HomeService("yard.service", "0.0.0.0"))
    assert embedded.killed(settings) is None
    kill(running)
    assert embedded.killed(settings) == running
    # Nothing is waited for.
    monkeypatch.setattr(embedded, "RESTART_LIMIT_S", 3600.0)
    with pytest.raises(Unreachable) as caught:
        embedded.ensure(settings, command=IDLE)
    assert f"(pid {running.pid}) at `{running.url}` was killed or crashed" in caught.value.message
    assert "systemctl start yard.service" in caught.value.hint
    embedded.stop(settings)
    assert embedded.killed(settings) is None


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        (
            'torchyard_jobs{status="Completed"} 9\ntorchyard_jobs{status="Queued"} 4\n'
            'torchyard_jobs{status="Running"} 2\ntorchyard_jobs{status="Finalizing"} 1\n',
            3,
        ),
        ("", 0),
    ],
)
def test_running_jobs_are_read_from_the_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, jobs: int
) -> None:
    @contextmanager
    def stream(self: object, path: str) -> Iterator[io.BytesIO]:
        assert path == "/metrics"
        yield io.BytesIO(text.encode())

    monkeypatch.setattr(Transport, "stream", stream)
    assert embedded.running_jobs(Settings(tmp_path, token="x"), SOMEWHERE) == jobs


def test_endpoints_with_traffic_keep_answering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(tmp_path, token="x")
    answers = {
        "/v1/workspaces": [{"name": "default"}, {"name": "team"}],
        "/v1/workspaces/default/online-endpoints": [
            {"name": "numbers", "traffic": {"blue": 100, "green": 0}},
            {"name": "idle", "traffic": {"blue": 0}},
        ],
        "/v1/workspaces/team/online-endpoints": [{"name": "new", "traffic": {}}],
    }
    monkeypatch.setattr(Transport, "get", lambda self, path: {"value": answers[path]})
    assert embedded.answering_endpoints(settings, SOMEWHERE) == []  # no router was ever started
    (settings.home / "router").mkdir()
    assert embedded.answering_endpoints(settings, SOMEWHERE) == ["default/numbers"]


def test_a_server_without_metrics_has_no_running_jobs(settings: Settings) -> None:
    running = embedded.ensure(settings, command=IDLE)
    assert embedded.running_jobs(replace(settings, token="x"), running) == 0
