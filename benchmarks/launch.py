"""Two ranks that join and leave again: torchyard beside torchrun and spawning by hand.

    python benchmarks/launch.py [--rounds 4] [--home FOLDER]

Every way runs the same script with the same packages: those that torchyard built for the job.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from figures import (
    CREATE,
    FIRST_LINE,
    YARD,
    Case,
    Measure,
    clean_variables,
    compare,
    printed_lines,
    run,
    temporary_yard,
    timed_job,
)

SCRIPT = f"""
{FIRST_LINE}
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
model(torch.ones(2, 4)).sum().backward()
dist.destroy_process_group()
"""

# What torch 2.13 sometimes says as its last words when a rank ends at once after gloo, under
# any launcher; that try says nothing about the launcher.
ABORTED = "terminate called without an active exception"
TRIES = 5

WHERE = """
import json, os, sys, torch
packages = os.path.dirname(os.path.dirname(torch.__file__))
print("packages at", json.dumps({"python": sys._base_executable, "packages": packages}))
"""

JOB = """
command: python {script}
code: .
environment:
  pip_requirements: [torch==2.13.0, numpy]
environment_variables:
  OMP_NUM_THREADS: "1"
distribution:
  type: pytorch
  process_count_per_instance: {processes}
"""


def not_aborted(measure: Measure) -> dict[str, float]:
    """Measure again when torch aborted a rank as it ended, and say so."""
    for _ in range(TRIES):
        try:
            return dict(measure())
        except SystemExit as failure:
            if ABORTED not in str(failure):
                raise
            print("torch aborted a rank as it ended; measured again", file=sys.stderr)
    raise SystemExit(f"torch aborted a rank {TRIES} times in a row")


def by_torchrun(folder: Path, variables: Mapping[str, str], python: str) -> dict[str, float]:
    launcher = "torch.distributed.run"
    command = [python, "-m", launcher, "--standalone", "--nproc_per_node", "2", "script.py"]
    return timed_job([*command], variables, folder)


def by_hand(folder: Path, variables: Mapping[str, str], python: str) -> dict[str, float]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    started = time.time()
    ranks = [
        subprocess.Popen(
            [python, "script.py"],
            cwd=folder,
            env={**variables, **shared, "RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in ("0", "1")
    ]
    printed = "".join(rank.communicate()[0] for rank in ranks)
    if any(rank.returncode for rank in ranks):
        raise SystemExit(f"a rank spawned by hand failed\n{printed}")
    whole_job_s = time.time() - started
    return {"first_line_s": min(printed_lines(printed)) - started, "whole_job_s": whole_job_s}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--home", type=Path, help="a TORCHYARD_HOME to use and keep")
    arguments = parser.parse_args()
    with (
        temporary_yard(arguments.home) as variables,
        tempfile.TemporaryDirectory() as temporary,
    ):
        folder = Path(temporary)
        (folder / "script.py").write_text(SCRIPT)
        (folder / "where.py").write_text(WHERE)
        (folder / "where.yml").write_text(JOB.format(script="where.py", processes=1))
        (folder / "job.yml").write_text(JOB.format(script="script.py", processes=2))
        # Builds the environment, and tells the peers where its packages are.
        printed = run([YARD, "job", "create", "-f", "where.yml", "--stream"], variables, folder)
        match = re.search(r"packages at ({.*})", printed)
        if not match:
            raise SystemExit(f"the first job did not say where its packages are\n{printed}")
        where = json.loads(match[1])
        peer = clean_variables(PYTHONPATH=where["packages"], OMP_NUM_THREADS="1")
        ways: dict[str, Measure] = {
            "torchyard": partial(timed_job, CREATE, variables, folder),
            "spawning by hand": partial(by_hand, folder, peer, where["python"]),
            "torchrun --standalone": partial(by_torchrun, folder, peer, where["python"]),
        }
        cases = [Case(name, partial(not_aborted, way)) for name, way in ways.items()]
        compare("Two ranks on one node", cases, arguments.rounds)


if __name__ == "__main__":
    main()
