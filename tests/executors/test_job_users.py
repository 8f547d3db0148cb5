"""Which Unix users a server's jobs run as."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import torchyard
from torchyard.base.errors import Conflict, InvalidInput
from torchyard.executors import job_users
from torchyard.executors.runner_client import RunnerUnreachable
from torchyard.shared import runner_messages

pytestmark = pytest.mark.slow

NOWHERE = Path("/nonexistent/runner.sock")


@contextmanager
def fake_runner(folder: Path, **answer: str) -> Iterator[Path]:
    """A program that says hello as a runner does."""
    path = folder / "runner.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    hello = {"version": torchyard.__version__, "node_folder": "/var/lib/node", **answer}

    def answer_one() -> None:
        connection, _ = listener.accept()
        with connection:
            assert runner_messages.receive(connection)[0] == {"request": "hello"}
            runner_messages.send(connection, {"ok": hello})

    thread = threading.Thread(target=answer_one)
    thread.start()
    try:
        yield path
    finally:
        thread.join()
        listener.close()


def choose(home: Path, is_shared: bool = True, **changes: object) -> job_users.JobUsers:
    words = {"socket": None, "node_folder": None, "as_server_user": False, **changes}
    return job_users.choose(home, is_shared, default_socket=NOWHERE, **words)  # type: ignore[arg-type]


def test_a_server_of_ones_own_needs_nothing(tmp_path: Path) -> None:
    users = choose(tmp_path, is_shared=False)
    assert users.runner is None and users.node.root == tmp_path and not users.node.is_separate


def test_a_shared_server_without_a_runner_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has no runner") as caught:
        choose(tmp_path)
    assert caught.value.code == "no_runner"
    assert "If you trust everyone with a token that far, start it with" in caught.value.hint
    assert "--jobs-as-server-user" in caught.value.hint and "runner.md" in caught.value.hint


@pytest.mark.parametrize("typed", ["yard server start --listen", "yard-server --host 0.0.0.0"])
def test_both_ways_to_go_on_are_commands(tmp_path: Path, typed: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        choose(tmp_path, start_command=typed)
    assert f"then type `{typed}` again" in caught.value.hint
    assert f"`{typed} --jobs-as-server-user`" in caught.value.hint


def test_what_the_owner_accepted_once_is_remembered_and_can_be_taken_back(tmp_path: Path) -> None:
    assert choose(tmp_path, as_server_user=True).runner is None
    assert choose(tmp_path).runner is None
    (tmp_path / "jobs-as-server-user").unlink()
    with pytest.raises(InvalidInput):
        choose(tmp_path)


def test_a_runner_says_which_folder_jobs_reach(tmp_path: Path) -> None:
    with fake_runner(tmp_path) as path:
        users = choose(tmp_path, socket=path)
    assert users.runner is not None and users.node.is_separate
    assert users.node.root == Path("/var/lib/node")


def test_the_runner_of_the_machine_is_found_by_a_shared_server_alone(tmp_path: Path) -> None:
    with fake_runner(tmp_path) as path:
        alone = job_users.choose(tmp_path, False, None, None, False, default_socket=path)
        shared = job_users.choose(tmp_path, True, None, None, False, default_socket=path)
    assert alone.runner is None and shared.runner is not None


def test_a_runner_of_another_version_is_refused(tmp_path: Path) -> None:
    with fake_runner(tmp_path, version="0.0.1") as path:
        with pytest.raises(Conflict, match=r"is of version 0\.0\.1") as caught:
            choose(tmp_path, socket=path)
    assert "systemctl restart torchyard-runner" in caught.value.hint


def test_another_node_folder_than_the_runners_is_refused(tmp_path: Path) -> None:
    with fake_runner(tmp_path) as path:
        with pytest.raises(Conflict, match="node folder is `/var/lib/node`"):
            choose(tmp_path, socket=path, node_folder=tmp_path / "other")


def test_a_runner_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunnerUnreachable, match="does not answer"):
        choose(tmp_path, socket=tmp_path / "nobody.sock")


@pytest.mark.parametrize(
    "words",
    [["--host", "0.0.0.0", "--insecure"], ["--shared"], ["--trusted-proxy", "127.0.0.1"]],
)
def test_the_program_refuses_with_exit_code_2(tmp_path: Path, words: list[str]) -> None:
    if Path(runner_messages.SOCKET).exists():
        pytest.skip("a runner is installed on this machine")
    command = [sys.executable, "-m", "torchyard.server", "--home", str(tmp_path / "home"), *words]
    environ = {name: value for name, value in os.environ.items() if "TORCHYARD" not in name}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "error: other people reach this server, and it has no runner" in done.stderr
    assert "hint: install the runner" in done.stderr
    assert not (tmp_path / "home" / "torchyard.db").exists()
