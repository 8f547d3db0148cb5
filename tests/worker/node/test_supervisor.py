"""The guardian and its child, before the worker listens to signals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, signal, sys
from pathlib import Path
from torchyard.worker.node import supervisor
from torchyard.worker.server.control import Orders

folder = Path(sys.argv[1])

def work():
    # As one that comes while the worker's modules are still being imported.
    os.kill(os.getpid(), signal.SIGTERM)
    orders = Orders()
    orders.listen_to_signals()
    (folder / "exit.json").write_text("{}")
    return 7 if orders.reason == "signal" else 8

def inherit(how):
    print(how, flush=True)
    return 9

sys.exit(supervisor.split(work, inherit, supervisor.Guarded("mark:0", 0.1, folder)))
"""


def test_a_signal_right_after_the_start_is_a_stop_request(tmp_path: Path) -> None:
    words = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
