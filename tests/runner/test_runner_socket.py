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
    # A key of systemd 254; with an older one, the runner goes into its leaf by itself.
    messages = [line for line in done.stderr.splitlines() if "'DelegateSubgroup'" not in line]
    assert (done.returncode, messages) == (0, [])


def test_the_units_let_jobs_outlive_the_runner_and_only_the_server_in() -> None:
    service = (UNITS / "torchyard-runner.service").read_text()
    socket = (UNITS / "torchyard-runner.socket").read_text()
    assert "\nKillMode=process\n" in service and "\nDelegate=yes\n" in service
    assert "\nDelegateSubgroup=yard-runner\n" in service
    assert "\nSocketMode=0600\n" in socket and "\nSocketUser=torchyard\n" in socket
    user = re.findall(r"^User=(.*)$", (UNITS / "torchyard.service").read_text(), re.MULTILINE)
    assert user == ["torchyard"]
