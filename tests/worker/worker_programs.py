"""Find workers and their supervisors, which are forked and have nobody's arguments of their own.

Owns: telling them by the log that they write to.
Leaves: what a test does to them to the test.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from torchyard.shared.processes import Process, read


def worker_programs(folder: Path) -> dict[int, tuple[Process, int]]:
    """Those that live, by pid, each with its node, whose log is anywhere in the folder."""
    found = {}
    for name in os.listdir("/proc"):
        with suppress(OSError):
            log = os.readlink(f"/proc/{name}/fd/1")
            match = re.search(r"/(?:node-(\d+)|[^/]+)/worker\.log", log)
            process = read(int(name)) if match and log.startswith(f"{folder}/") else None
            if match and process is not None and not process.ended:
                found[process.pid] = process, int(match[1] or 0)
    return found
