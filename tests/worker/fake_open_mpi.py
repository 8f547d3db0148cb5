"""Fake programs that start ranks like Open MPI's, without any communication.

Owns: `mpirun` and `orted` as files in a folder for PATH.
Always: mpirun has the agent start one daemon on each other host, then starts the ranks of the
first; each waits for the ranks that it started.
"""

from __future__ import annotations

import sys
from pathlib import Path

_COMMON = """#!{python}
import os, subprocess, sys, time

def start(first, count, size, words):
    ranks = []
    for local in range(count):
        variables = {{
            "OMPI_COMM_WORLD_RANK": first + local,
            "OMPI_COMM_WORLD_SIZE": size,
            "OMPI_COMM_WORLD_LOCAL_RANK": local,
            "OMPI_COMM_WORLD_LOCAL_SIZE": count,
            "PMIX_RANK": first + local,
            "UNRELATED": "not for the ranks",
        }}
        environment = {{**os.environ, **{{name: str(value) for name, value in variables.items()}}}}
        ranks.append(subprocess.Popen(words, env=environment))
    return ranks

def wait(started):
    return max([abs(process.wait()) for process in started], default=0)
"""

_MPIRUN = """
if "--version" in sys.argv:
    print({version!r})
    sys.exit(0)
{first}
words = sys.argv[1:]
hosts = [host.split(":") for host in words[words.index("--host") + 1].split(",")]
size = words[words.index("-np") + 1]
agent = words[words.index("plm_rsh_agent") + 1]
command = words[words.index("/bin/sh"):]
rank = int(hosts[0][1])
for host, count in hosts[1:]:
    subprocess.run([agent, host, "", f"orted {{rank}} {{count}} {{size}}"], check=True)
    rank += int(count)
started = start(0, int(hosts[0][1]), size, command)
sys.exit(wait(started))
"""

_ORTED = """
rank, count, size = map(int, sys.argv[1:4])
sys.exit(wait(start(rank, count, size, ["/bin/sh", "-c", {rank!r}])))
"""


def put(folder: Path, version: str = "mpirun (Open MPI) 4.1.4", first: str = "") -> Path:
    """Write both programs; `first` is code that mpirun runs first."""
    from torchyard.worker.launch import mpi_shim

    common = _COMMON.format(python=sys.executable)
    folder.mkdir(exist_ok=True)
    for name, text in (
        ("mpirun", _MPIRUN.format(version=version, first=first)),
        ("orted", _ORTED.format(rank=mpi_shim.RANK)),
    ):
        program = folder / name
        program.write_text(common + text)
        program.chmod(0o755)
    return folder
