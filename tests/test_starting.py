"""The server's own process at its start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchyard.base.http import Transport


@pytest.mark.slow
def test_a_server_outlives_the_command_that_started_it_and_was_killed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    read, write = os.pipe()
    words = ["--home", str(home), "--port", "0", "--ready-fd", str(write)]
    server = subprocess.Popen(
        [sys.executable, "-m", "torchyard.server", *words],
        pass_fds=(write,),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        os.close(write)
        os.close(read)
        deadline = time.monotonic() + 120
        while not (home / "server.json").exists():
            assert server.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        server_file = json.loads((home / "server.json").read_text())
        transport = Transport(server_file["url"], "")
        assert transport.get("/health")["pid"] == server.pid == server_file["pid"]
        transport.close()
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    # Nothing says of a server that ended in order that it was killed.
    assert not (home / "server.json").exists()
