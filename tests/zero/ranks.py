"""Start a program on several ranks with the variables that a job of torchyard gives them.

Owns: those variables, the end of the ranks, their answers.
Leaves: what they do to the programs.
Always: no rank outlives the call.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
COMPAT = Path(__file__).resolve().parents[2] / "compat"


def run(
    python: str, program: str, folder: Path, *arguments: str, count: int = 2, **more: str
) -> list[Any]:
    """What each rank wrote as JSON into the file that `ANSWER` names; all of them ended with 0."""
    processes = []
    for variables in launch_variables(count):
        rank = variables["RANK"]
        variables = {**os.environ, **variables, **more, "ANSWER": str(folder / f"{rank}.json")}
        # They import faster with their compiled modules.
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        with open(folder / f"{rank}.log", "wb") as log:
            processes.append(
                subprocess.Popen(
                    [python, str(PROGRAMS / program), *arguments], env=variables, cwd=folder,
                    stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                )
            )  # fmt: skip
    try:
        codes = [process.wait(900) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    logs = "\n".join((folder / f"{rank}.log").read_text()[-4000:] for rank in range(count))
    assert codes == [0] * count, logs
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]


def launch_variables(count: int) -> list[dict[str, str]]:
    """Those of worker/launch/variables.py, for ranks of one node."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    return [
        {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count), "NODE_RANK": "0", "GROUP_RANK": "0",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }
        for rank in range(count)
    ]  # fmt: skip
