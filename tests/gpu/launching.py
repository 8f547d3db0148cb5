"""Start a program of `programs/` on several ranks, and read what they answer.

Owns: the ranks' variables, their end, their answers.
Leaves: what they do to the programs.
Always: no rank outlives the test.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_PROGRAMS = Path(__file__).parent / "programs"
_ROOT = Path(__file__).parents[2]


def run(
    program: str, ranks: int, device: str, *arguments: str, timeout_s: float = 500, **more: str
) -> list[Any]:
    """What each rank wrote as JSON into the file that `ANSWER` names."""
    with (
        tempfile.TemporaryDirectory(prefix="gpu-") as name,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        folder, port = Path(name), str(server.getsockname()[1])
        server.close()
        processes = []
        for rank in range(ranks):
            variables = {
                **os.environ, **more, "RANK": str(rank), "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "DEVICE": device,
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo",
                "ANSWER": str(folder / f"{rank}.json"), "OMP_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join(map(str, (_PROGRAMS, _ROOT / "src"))),
            }  # fmt: skip
            with open(folder / f"{rank}.log", "wb") as log:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, str(_PROGRAMS / program), *arguments],
                        env=variables, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                    )
                )  # fmt: skip
        try:
            codes = [process.wait(timeout_s) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        logs = "\n".join((folder / f"{rank}.log").read_text()[-3000:] for rank in range(ranks))
        assert codes == [0] * ranks, logs
        return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]
