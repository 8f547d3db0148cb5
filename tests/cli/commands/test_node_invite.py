"""`yard node invite`, and the line that it prints, typed on another machine."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Yard
from cli.real_server import RealServer
from torchyard.executors.ray.head_nodes import RayHead
from torchyard.node_agent import invitations
from torchyard.workspaces.types import TokenKind

PROGRAM = "import sys; from torchyard.cli.main import main; sys.argv[0] = 'yard'; sys.exit(main())"


class Heads:
    """In place of Ray's: a head that nobody can reach, so that no machine joins."""

    def __init__(self, folder: Path) -> None:
        self._token = folder / "token-of-ray"
        self._token.write_text("the-token-of-ray")

    def ensure(self, key: str, address: str = "") -> RayHead:
        return RayHead("127.0.0.1:9", "2.60.0", "3.11.7", self._token)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[RealServer]:
    home = tmp_path / "server"
    home.mkdir(mode=0o700)
    server = RealServer(home, with_tls=True, node_urls=["https://10.0.0.5:1", "https://box:1"])
    _ = server.tls_url  # opened
    server.app.state.ray_heads = Heads(tmp_path)
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def environment(served: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHYARD_URL", served.url)
    monkeypatch.setenv("TORCHYARD_TOKEN", served.token)


def invite(yard: Yard, *words: str) -> dict[str, Any]:
    answer = yard("node", "invite", *words, "-o", "json")
    assert answer.code == 0, answer.err
    body: dict[str, Any] = json.loads(answer.text)
    return body


def typed(line: str, url: str, home: Path) -> subprocess.CompletedProcess[str]:
    """What the line does on a machine that reaches the server at `url`."""
    variable, *words = shlex.split(line)
    name, _, token = variable.partition("=")
    assert words[:3] == ["yard", "node", "join"] and token not in words
    environ = {"PATH": os.environ["PATH"], "TORCHYARD_HOME": str(home), name: token}
    command = [sys.executable, "-c", PROGRAM, "node", "join", url, *words[4:]]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)


def test_the_line_is_printed_with_all_that_is_needed(yard: Yard) -> None:
    body = invite(yard)
    words = shlex.split(body["line"])
    assert words[0] == f"TORCHYARD_INVITATION={body['token']}"
    assert words[1:5] == ["yard", "node", "join", "https://10.0.0.5:1"]
    assert words[5:] == ["--fingerprint", body["fingerprint"]]
    assert body["fingerprint"].startswith("sha256:")
    page = yard("node", "invite").text
    assert "yard node join https://10.0.0.5:1 --fingerprint sha256:" in page
    assert "it works once, until " in page and "`https://box:1`" in page


def test_the_address_is_one_of_the_server(yard: Yard) -> None:
    assert "yard node join https://box:1 " in invite(yard, "--address", "box")["line"]
    answer = yard("node", "invite", "--address", "10.0.0.6")
    assert answer.code == 2 and "`10.0.0.6` is not an address of this server" in answer.err
    assert "10.0.0.5, box" in answer.err


@pytest.mark.parametrize("expires", ["never", "8d", "-1h", "soon"])
def test_an_invitation_ends_within_a_week(yard: Yard, expires: str) -> None:
    answer = yard("node", "invite", f"--expires={expires}")
    assert answer.code == 2 and answer.err.startswith("error: ")


def test_the_line_is_all_that_the_other_machine_needs(
    served: RealServer, yard: Yard, tmp_path: Path
) -> None:
    line, home = invite(yard, "lab-3")["line"], tmp_path / "far"
    # It gets as far as the head, which nobody reaches.
    ended = typed(line, served.tls_url, home)
    assert "can't connect to the cluster's head" in ended.stderr, ended.stderr
    kept = invitations.read(home / "node")
    assert kept is not None and kept.token.startswith(TokenKind.MACHINE.value)
    assert (kept.workspace, kept.compute, kept.name) == ("default", "machines", "lab-3")
    file = home / "node" / invitations.FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(yard("node", "list", "-o", "json").text) == [], "as it was"
    # When the way is open, the same line does it, or `yard node join` alone.
    again = typed(line, served.tls_url, home)
    assert "can't connect to the cluster's head" in again.stderr, again.stderr
    environ = {"PATH": os.environ["PATH"], "TORCHYARD_HOME": str(home)}
    command = [sys.executable, "-c", PROGRAM, "node", "join"]
    alone = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert "can't connect to the cluster's head" in alone.stderr, alone.stderr
    # Somebody who saw the line has nothing of it.
    other = typed(line, served.tls_url, tmp_path / "other")
    assert other.returncode != 0 and "this invitation was used before" in other.stderr


def test_another_server_gets_neither_the_invitation_nor_a_machine(
    served: RealServer, yard: Yard, tmp_path: Path
) -> None:
    body = invite(yard)
    line = body["line"].replace(body["fingerprint"], "sha256:" + "0" * 64)
    ended = typed(line, served.tls_url, tmp_path / "far")
    assert ended.returncode != 0 and "has another fingerprint" in ended.stderr
    assert (
        "can't connect to the cluster's head"
        in typed(body["line"], served.tls_url, tmp_path / "far").stderr
    ), "the invitation is still good"


def test_a_line_without_its_address_is_told(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHYARD_INVITATION", "yard_i_" + "x" * 43)
    answer = yard("node", "join")
    assert answer.code == 2 and "as `yard node invite` printed it" in answer.err


def test_the_machine_is_started_at_every_boot_without_a_login(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHYARD_URL")
    monkeypatch.delenv("TORCHYARD_TOKEN")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    folder = tmp_path / "home" / "node"
    folder.mkdir(parents=True)
    (folder / invitations.FILE).write_text(
        json.dumps(
            {
                "invitation": "",
                "url": "https://10.0.0.5:1",
                "token": "yard_m_secret",
                "ca_cert": "",
                "workspace": "default",
                "compute": "machines",
                "name": "lab-3",
            }
        )
    )
    answer = yard("node", "install")
    assert answer.code == 0, answer.err
    unit = (tmp_path / "config/systemd/user/torchyard-node.service").read_text()
    assert '"node" "join"\n' in unit and "secret" not in unit
