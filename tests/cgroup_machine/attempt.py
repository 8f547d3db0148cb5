"""Runs inside the virtual machine: what a worker does with cgroups, and what came of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time

sys.path.insert(0, "/src")

from torchyard.worker.system import cgroups
from torchyard.worker.system.cgroups import Ceiling

# Ends by itself, so that a limit that does not hold is seen and does no harm.
_BOMB = """
import os, time
for _ in range(60):
    try:
        child = os.fork()
    except BlockingIOError:
        time.sleep(0.2)
        os._exit(9)
    if not child:
        time.sleep(1)
        os._exit(0)
"""
_EATER = "print(len(bytearray(200 << 20)))"


def _run(mark: str, program: str) -> int:
    with cgroups.inside(mark):
        process = subprocess.Popen([sys.executable, "-I", "-S", "-c", program])
    return process.wait()


def main(name: str) -> None:
    mark = f"{name}:0"
    in_force = cgroups.limit(mark, Ceiling(memory_bytes=48 << 20, processes=20))
    bomb = _run(mark, _BOMB)
    refused = cgroups.refused_processes(mark)
    time.sleep(1.5)
    eater = _run(mark, _EATER)
    files = [file for file in cgroups.memory_events(mark) if file.exists()]
    lines = [line.split() for file in files for line in file.read_text().splitlines()]
    outcome = {
        "name": name,
        "held": len(in_force.held),
        "missing": len(in_force.missing),
        "bomb": bomb,
        "refused": refused > 0,
        "eater": eater,
        "kills": sum(int(words[1]) for words in lines if words[0] == "oom_kill"),
        "left": len(cgroups.members(mark)),
    }
    cgroups.remove(mark)
    print("RESULT", json.dumps(outcome), flush=True)


main(sys.argv[1])
