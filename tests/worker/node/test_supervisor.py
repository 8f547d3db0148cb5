"""The supervisor and its child, before the worker listens to signals."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from torchyard.worker.node import supervisor
from torchyard.worker.system import signals

SCRIPT = """
import os, signal, sys
from pathlib import Path
from torchyard.worker.node import supervisor
from torchyard.worker.server.control import Control

folder = Path(sys.argv[1])

def work():
    # Like a signal that arrives while the worker's modules are being imported.
    os.kill(os.getpid(), signal.SIGTERM)
    control = Control()
    control.handle_signals()
    (folder / "exit.json").write_text("{}")
    return 7 if control.reason == "signal" else 8

def run_recovery(death):
    print(death, flush=True)
    return 9

sys.exit(supervisor.supervise(work, run_recovery, supervisor.SupervisedNode("mark:0", 0.1, folder)))
"""


def test_a_signal_right_after_the_start_is_a_stop_request(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout) == (7, "")
    assert re.fullmatch(r"received SIGTERM from pid \d+ \(python\S*, user \S+\)\n", result.stderr)


def test_a_killed_agent_of_the_machine_is_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor._Supervisor, "pid", 12)
    received = signals.Received(15, 12, 0, "python")
    signals.save(tmp_path / supervisor.STARTER_FILE, signals.Received(15, 997, 0, "raylet"))
    assert "by SIGTERM from pid 997" in supervisor.describe_signal(tmp_path, received)
    (tmp_path / supervisor.AGENT_DIED).touch()
    cause = supervisor.describe_signal(tmp_path, received)
    assert "(`yard node join`) was killed" in cause and "997" not in cause
