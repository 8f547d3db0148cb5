"""`yard-server` as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def started_server(
    home: Path,
    *options: str,
    variables: Mapping[str, str] | None = None,
    python: Path = Path(sys.executable),
) -> Iterator[tuple[int, int]]:
    """Its port and pid.

    Raises:
        CalledProcessError: it refuses to start.
    """
    command = [str(python), "-m", "torchyard.server", "--home", str(home), "--port", "0"]
    errors = home.parent / f"{home.name}.errors"
    environ = {**os.environ, "TORCHYARD_HOME": str(home), **(variables or {})}
    with open(errors, "wb") as writing:
        process = subprocess.Popen(
            [*command, *options], stdout=subprocess.DEVNULL, stderr=writing, env=environ
        )
    try:
        deadline = time.monotonic() + 60
        while not (home / "server.json").exists():
            if process.poll() is not None:
                text = errors.read_text()
                raise subprocess.CalledProcessError(process.returncode, command, stderr=text)
            assert time.monotonic() < deadline, errors.read_text()
            time.sleep(0.02)
        url = json.loads((home / "server.json").read_text())["url"]
        yield int(url.rpartition(":")[2]), process.pid
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        (home / "server.json").unlink(missing_ok=True)
