"""A node that an engine started on a machine with a runner: it lasts as long as who asks for it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually
from runner.runner_site import RunnerSite, runner_site
from torchyard.executors.runner_client import RunnerRefused
from torchyard.shared import runner_messages as messages

pytestmark = [
    pytest.mark.runner,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a runner"),
]
# Runs the plan's command, as a worker runs its ranks.
WORKER = """
import json, os, sys
command = json.load(open(sys.argv[sys.argv.index("--plan") + 1]))["command"]
os.execv("/bin/sh", ["sh", "-c", command])
"""
# More than the runner answers at the same time.
_MANY = 70


@pytest.fixture(scope="module")
def site() -> Iterator[RunnerSite]:
    with runner_site() as made:
        yield made


@pytest.fixture
def worker(site: RunnerSite) -> str:
    return site.keep_worker(WORKER)


def ask(site: RunnerSite, worker: str, attempt: str, command: str, **changes: Any) -> socket.socket:
    """Ask for a node; the connection that it lasts as long as."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(90)
    connection.connect(str(site.socket))
    body = {"attempt": attempt, "node": 0, "person": "anna", "worker": worker, "limits": {}}
    plan = json.dumps({"command": command})
    messages.send(connection, {"request": "run", **body, "plan": plan, "grace_s": 1, **changes})
    return connection


def started(site: RunnerSite, count: int = 1) -> bool:
    return len(site.processes_of("job1")) >= count


def test_the_answer_comes_when_the_node_has_ended(site: RunnerSite, worker: str) -> None:
    flag = site.folder / "go-on"
    waits = f"while [ ! -e {flag} ]; do sleep 0.05; done"
    with closing(ask(site, worker, "ends", waits)) as connection:
        eventually(lambda: started(site), "the node runs")
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        flag.touch()
        connection.settimeout(90)
        assert messages.receive(connection) == ({"ok": {}}, [])
    assert not site.processes_of("job1")


@pytest.mark.parametrize("ignores", [False, True])
def test_a_node_ends_with_who_asked_for_it(site: RunnerSite, worker: str, ignores: bool) -> None:
    log = site.folder / f"told-{ignores}"
    log.touch()
    log.chmod(0o666)
    ending = "true" if ignores else "exit"
    traps = f"trap 'echo told >> {log}; {ending}' TERM; echo ready >> {log}"
    traps += "; while true; do sleep 0.05; done"
    connection = ask(site, worker, f"left-{ignores}".lower(), traps)
    eventually(lambda: log.read_text() == "ready\n", "the node runs")
    connection.close()
    eventually(lambda: not site.processes_of("job1"), "the node has ended")
    assert log.read_text() == "ready\ntold\n"


def test_nodes_that_last_hold_up_no_request(site: RunnerSite, worker: str) -> None:
    connections = []
    try:
        for number in range(_MANY):
            connections.append(ask(site, worker, f"lasts-{number}", "exec sleep 600"))
        eventually(lambda: started(site, _MANY), "all nodes run")
        states = site.client.call("states", attempt="lasts-0", count=1)["states"]
        assert states == ["running"]
    finally:
        for connection in connections:
            connection.close()
    eventually(lambda: not site.processes_of("job1"), "the node has ended")


def test_who_may_not_ask_gets_no_node(site: RunnerSite, worker: str) -> None:
    with closing(ask(site, worker, "nobody", "true", person="")) as connection:
        answer, _ = messages.receive(connection)
    assert answer["error"]["code"] == "bad_request"
    with pytest.raises(RunnerRefused, match="grace_s"):
        site.client.call("run", attempt="x", node=0, grace_s=-1)


def test_an_account_is_told_with_its_home(site: RunnerSite) -> None:
    answer = site.client.call("account", person="anna")
    home = Path(answer["home"])
    assert answer["account"] == site.user("job1") and home.stat().st_uid == site.uid("job1")
    assert home.stat().st_mode & 0o077 == 0
