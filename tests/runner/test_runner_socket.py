"""The runner's systemd units, and systemd's own program that starts it by its socket."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runner.runner_site import RunnerSite, runner_site
from torchyard.base.errors import InvalidInput
from torchyard.base.http import Transport
from torchyard.cli.compute import nodes
from torchyard.runner import cgroups

UNITS = Path(__file__).parents[2] / "packaging"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a runner")


@contextmanager
def activated(site: RunnerSite) -> Iterator[subprocess.Popen[bytes]]:
    """systemd listens; the first request starts the runner, in the same process."""
    words = ["systemd-socket-activate", "--listen", str(site.socket)]
    site.socket.unlink(missing_ok=True)
    site.socket.parent.mkdir(exist_ok=True)
    with open(site.log, "ab") as log:
        process = subprocess.Popen(
            [*words, *site.command("serve", "--allow-writable-code")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + 30
        while not site.socket.exists():
            assert process.poll() is None and time.monotonic() < deadline, site.log.read_text()
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.runner
@needs_root
def test_a_request_starts_the_runner_and_starts_it_again() -> None:
    if shutil.which("systemd-socket-activate") is None:
        if os.environ.get("TORCHYARD_TEST_SERVICES") == "required":
            pytest.fail("systemd-socket-activate is not on this machine: install systemd")
        pytest.skip("there is no systemd-socket-activate here")
    with runner_site() as site:
        site.stop()
        for _ in range(2):
            with activated(site) as process:
                program = Path(f"/proc/{process.pid}/cmdline")
                assert b"systemd-socket-activate" in program.read_bytes()
                assert site.client.call("hello")["server_user"] == site.user("server")
                assert b"torchyard.runner" in program.read_bytes()
                process.send_signal(signal.SIGKILL)
                process.wait()


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    for name in ("torchyard-runner.socket", "torchyard-runner.service"):
        # It looks whether program and user are there; here they are others.
        text = (UNITS / name).read_text().replace("/opt/torchyard/bin/yard-runner", sys.executable)
        (tmp_path / name).write_text(text.replace("SocketUser=torchyard", "SocketUser=root"))
    units = sorted(tmp_path.iterdir())
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    # The one key that is newer than systemd 253; without it, nodes get no cgroup.
    messages = [line for line in done.stderr.splitlines() if "'DelegateSubgroup'" not in line]
    assert (done.returncode, messages) == (0, [])


def test_the_units_let_jobs_outlive_the_runner_and_only_the_server_in() -> None:
    service = (UNITS / "torchyard-runner.service").read_text()
    socket = (UNITS / "torchyard-runner.socket").read_text()
    assert "\nKillMode=process\n" in service and "\nDelegate=yes\n" in service
    assert f"\nDelegateSubgroup={cgroups.RUNNER}\n" in service
    assert "\nSocketMode=0600\n" in socket and "\nSocketUser=torchyard\n" in socket
    user = re.findall(r"^User=(.*)$", (UNITS / "torchyard.service").read_text(), re.MULTILINE)
    assert user == ["torchyard"]


@pytest.fixture
def delegated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the group that a runner without a unit is started in."""
    group = tmp_path / "session"
    group.mkdir()
    for name in ("cgroup.procs", "cgroup.subtree_control"):
        (group / name).touch()
    (tmp_path / "mounts").write_text(f"cgroup2 {tmp_path} cgroup2 rw,nosuid 0 0\n")
    monkeypatch.setattr(cgroups, "_MOUNTS", tmp_path / "mounts")
    monkeypatch.setattr(cgroups, "_OWN", tmp_path / "self")
    monkeypatch.setattr(cgroups, "_LEAVE_LIMIT_S", 0.0)
    (tmp_path / "self").write_text("0::/session/yard-runner\n")
    (group / "yard-runner").mkdir()
    return group


def test_a_runner_that_ends_removes_the_group_that_it_made(delegated: Path) -> None:
    assert cgroups.leave()
    assert not (delegated / "yard-runner").exists()
    assert (delegated / "cgroup.procs").read_text() == str(os.getpid())


def test_a_group_with_another_process_is_left(delegated: Path) -> None:
    (delegated / "yard-runner" / "cgroup.procs").write_text(f"{os.getpid()}\n1\n")
    assert not cgroups.leave()
    assert (delegated / "cgroup.procs").read_text() == ""


def test_a_group_beside_running_jobs_is_left(delegated: Path) -> None:
    (delegated / "cgroup.procs").unlink()  # as if the kernel let nobody in
    (delegated / "yard-job-0").mkdir()
    assert not cgroups.leave()
    assert (delegated / "yard-runner").is_dir()
    assert (delegated / "cgroup.subtree_control").read_text() == ""


@pytest.mark.runner
@needs_root
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_no_group_of_a_runner_is_left_at_the_end(signum: int) -> None:
    parent = cgroups.own()
    if parent is None:
        pytest.skip("no cgroup can be made here")
    with runner_site() as site:
        assert site.process is not None
        group = parent / cgroups.RUNNER
        members = (group / "cgroup.procs").read_text().split()
        assert str(site.process.pid) in members
        site.stop(signum)
        if signum == signal.SIGKILL:
            # Nothing ran that could remove it: the next runner does.
            assert group.is_dir()
            site.start()
            site.stop()
        # Another test's runner may be in it, and goes on.
        assert not group.exists() or (group / "cgroup.procs").read_text().split()


def test_the_runner_leaves_the_group_of_its_unit_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With groups beside it that have jobs, systemd could not start it there again."""
    mounts, current = tmp_path / "mounts", tmp_path / "cgroup"
    mounts.write_text("cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n")
    monkeypatch.setattr(cgroups, "_MOUNTS", mounts)
    monkeypatch.setattr(cgroups, "_OWN", current)
    unit = "/system.slice/torchyard-runner.service"
    groups = {}
    for group in (unit, f"{unit}/yard-runner", "/user.slice/session-3.scope"):
        current.write_text(f"0::{group}\n")
        groups[group] = cgroups.own()
    assert groups == {
        unit: None,
        f"{unit}/yard-runner": Path("/sys/fs/cgroup/system.slice/torchyard-runner.service"),
        "/user.slice/session-3.scope": Path("/sys/fs/cgroup/user.slice/session-3.scope"),
    }


@needs_root
def test_systemd_takes_the_unit_of_a_node_for_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted = tmp_path / "server.pem"
    trusted.write_text("certificate")
    with runner_site() as site:
        monkeypatch.setenv("TORCHYARD_RUNNER", str(site.socket))
        transport = Transport("https://first:8765", "yard_p_x", ca_cert=str(trusted))
        words = [sys.executable, "node", "join", transport.url]
        text = nodes._install_for_everybody(words, transport, True, tmp_path / "etc")
        lines = text.splitlines()
        assert f"User={site.user('server')}" in lines
        token = tmp_path / "etc" / "node-token"
        assert token.read_text() == "yard_p_x" and token.stat().st_mode & 0o777 == 0o600
        assert f"LoadCredential=token:{token}" in lines and "yard_p_x" not in text
        assert any(line.endswith(f'"{tmp_path}/etc/node-ca.pem"') for line in lines)
        unit = tmp_path / "torchyard-node.service"
        unit.write_text(text)
        if shutil.which("systemd-analyze") is not None:
            done = subprocess.run(
                ["systemd-analyze", "verify", unit], capture_output=True, text=True
            )
            assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(InvalidInput, match="only root"):
        nodes._install_for_everybody(words, transport, False, tmp_path / "etc")
