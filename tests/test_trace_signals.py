"""The record of SIGTERMs names sender and receiver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "tools" / "trace_signals.py"


def _wait_for(text: str, file: Path) -> str:
    deadline = time.monotonic() + 60.0
    while not file.exists() or text not in file.read_text():
        assert time.monotonic() < deadline, file.read_text() if file.exists() else "no file"
        time.sleep(0.02)
    return file.read_text()


def test_a_sigterm_is_recorded_with_its_sender(tmp_path: Path) -> None:
    log = tmp_path / "signals"
    with subprocess.Popen([sys.executable, str(PROGRAM), str(log)]) as recorder:
        first = _wait_for("record", log)
        if "no signals are recorded" in first:
            pytest.skip(first)
        with subprocess.Popen(["sleep", "300"]) as receiver:
            os.kill(receiver.pid, signal.SIGTERM)
            assert receiver.wait() == -signal.SIGTERM
            line = _wait_for(f"pid={receiver.pid} ", log)
        recorder.terminate()
        assert recorder.wait() == 0
    # The kernel knows the thread that sent it.
    assert f"-{threading.get_native_id()} " in line and "sig=15" in line
