"""What ssh's end means to a person, and what a host's lines do; ssh is a program of the test's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchyard.base.home.ray_archive import RayArchives
from torchyard.cli.hosts import addresses, ssh
from torchyard.cli.hosts.ssh import HostFailed, Session

(HOST,) = addresses.read(["ann@lab-1:2222"])


@pytest.mark.parametrize(
    "line, message, hint",
    [
        ("ssh: Could not resolve hostname lab-1: Name or service not known", "name", "config"),
        ("Host key verification failed.", "host key", "run `ssh -p 2222 ann@lab-1` once"),
        ("ann@lab-1: Permission denied (publickey).", "key", "ssh-copy-id -p 2222 ann@lab-1"),
        ("ssh: connect to host lab-1 port 2222: Connection refused", "no ssh server", "host:2222"),
        ("ssh: connect to host lab-1 port 2222: No route to host", "reached", "switched on"),
        ("ssh: connect to host lab-1 port 2222: Connection timed out", "answer", "firewall"),
        ("kex_exchange_identification: read: reset", "kex_exchange", "ssh -p 2222 ann@lab-1"),
    ],
)
def test_failures_of_ssh_say_what_to_type(line: str, message: str, hint: str) -> None:
    failure = ssh.failure(HOST, 255, ["a banner", line])
    assert message in failure.message and hint in failure.hint


def test_a_host_without_python_is_told_apart() -> None:
    assert "no Python 3.9" in ssh.failure(HOST, 41, []).message
    other = ssh.failure(HOST, 1, ["Traceback", "\x1b[2Jboom"])
    assert "exit code 1" in other.message and "boom" in other.message
    assert "\x1b" not in other.message


def session(folder: Path, program: str) -> Session:
    """A session whose ssh runs this Python text."""
    file = folder / "ssh"
    file.write_text(f"#!{sys.executable}\n{program}")
    file.chmod(0o755)
    return Session(str(file), HOST, {"action": "join"}, RayArchives(folder), lambda line: None)


def test_lines_of_a_login_shell_are_left_out(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "print('welcome to lab-1')\n"
        "print('torchyard not json')\n"
        'print(\'torchyard {"started": {"address": "10.0.0.1"}}\', flush=True)\n'
        "print(repr(sys.stdin.buffer.read()[-5:]), file=sys.stderr)\n"
        "print('torchyard {\"done\": {}}', flush=True)\n"
    )
    with session(tmp_path, program) as opened:
        assert opened.wait_for("started") == {"address": "10.0.0.1"}
        opened.keep()
        opened._input.close()
        assert opened.wait_for("done") == {}


def test_errors_of_a_host_are_raised(tmp_path: Path) -> None:
    line = 'print(\'torchyard {"error": "no disk\\\\u001b[2J", "hint": "df -h"}\')'
    with session(tmp_path, line) as opened, pytest.raises(HostFailed) as failed:
        opened.wait_for("started")
    assert (failed.value.message, failed.value.hint) == ("no disk[2J", "df -h")


def test_a_session_that_breaks_off_is_a_failure(tmp_path: Path) -> None:
    program = (
        "import sys; sys.stderr.write('Connection to lab-1 closed: timed out\\n'); sys.exit(255)"
    )
    with session(tmp_path, program) as opened, pytest.raises(HostFailed, match="does not answer"):
        opened.wait_for("started")


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_command_starts_what_comes_first(shell: str) -> None:
    program = b"print(sys.stdin.buffer.readline())"
    ended = subprocess.run(
        [shell, "-c", ssh.COMMAND],
        input=b"%d\n%bhere\n" % (len(program), program),
        capture_output=True,
        timeout=60,
    )
    assert (ended.stdout, ended.returncode) == (b"b'here\\n'\n", 0), ended.stderr
