"""Processes are told apart by number and start time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from torchyard.shared import processes


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_a_process_is_read_whatever_its_name_holds() -> None:
    script = (
        "import ctypes, time; ctypes.CDLL(None).prctl(15, b'a) R 1 (', 0, 0, 0); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        deadline = time.monotonic() + 60
        name = ""
        while name != "a) R 1 (" and time.monotonic() < deadline:
            with open(f"/proc/{process.pid}/comm") as file:
                name = file.read().rstrip("\n")
        read = processes.read(process.pid)
        process.kill()
    assert name == "a) R 1 ("
    assert read is not None
    assert (read.pid, read.parent) == (process.pid, os.getpid())
    assert not read.ended and read.start_time > 0


def test_a_zombie_is_not_running(child: subprocess.Popen[bytes]) -> None:
    started = processes.start_time(child.pid)
    assert processes.is_running(child.pid, started)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    read = processes.read(child.pid)
    assert read is not None and read.ended
    assert processes.start_time(child.pid) == 0
    assert not processes.is_running(child.pid, started)
    child.wait()
    assert processes.read(child.pid) is None
    assert not processes.is_running(child.pid, 0)


def test_a_later_process_with_the_number_is_not_signalled(child: subprocess.Popen[bytes]) -> None:
    started = processes.start_time(child.pid)
    processes.send(child.pid, started + 1, signal.SIGKILL)
    time.sleep(0.05)
    assert child.poll() is None
    processes.send(child.pid, started, signal.SIGTERM)
    assert child.wait(60) == -signal.SIGTERM
    processes.send(child.pid, started, signal.SIGTERM)


def test_a_kernel_without_pidfd_signals_all_the_same(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    started = processes.start_time(child.pid)
    processes.send(child.pid, started + 1, signal.SIGKILL)
    assert child.poll() is None
    processes.send(child.pid, started, signal.SIGTERM)
    assert child.wait(60) == -signal.SIGTERM
