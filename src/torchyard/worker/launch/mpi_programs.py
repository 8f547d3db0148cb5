"""Find Open MPI on a node and check its version.

Owns: which `mpirun` of the node is used, the errors if a program is missing.
Leaves: running them to mpi.py.
Always: this happens before any rank starts; the job's environment comes first on PATH, so its
Open MPI takes precedence over the machine's.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess

from torchyard.shared import open_mpi
from torchyard.shared.failures import Failure

_VERSION = re.compile(r"\(Open ?(?:MPI|RTE)\)\s+(\d+)\.(\S+)")
_SUPPORTED_MAJOR = 4
_VERSION_TIMEOUT_S = 20.0


def find(path: str, node: int) -> str:
    """Find `mpirun` on `path`, the value of a PATH variable, where all of Open MPI must be.

    Raises:
        Failure: one is missing, or is not from Open MPI 4.
    """
    where = f"node {node} ({socket.gethostname()})"
    paths = {name: shutil.which(name, path=path) for name in open_mpi.PROGRAMS}
    missing = [name for name, program in paths.items() if not program]
    if paths["mpirun"]:
        _check(paths["mpirun"], where)
    if missing:
        raise Failure(
            "mpi_missing",
            f"{where} has no `{missing[0]}`, which `distribution.type: mpi` needs",
            open_mpi.INSTALL + "; `type: pytorch` does not need MPI",
        )
    return str(paths["mpirun"])


def _check(mpirun: str, where: str) -> None:
    try:
        result = subprocess.run(
            [mpirun, "--version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
        output = result.stdout + result.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        output = f"its version can't be read: {error}"
    match = _VERSION.search(output)
    if match and int(match[1]) == _SUPPORTED_MAJOR:
        return
    description = f"Open MPI {match[1]}.{match[2]}" if match else _other_mpi(output)
    raise Failure(
        "mpi_unsupported",
        f"`{mpirun}` on {where} is {description}; `distribution.type: mpi` requires Open MPI 4",
        open_mpi.INSTALL + ", and remove packages with another MPI from the environment",
    )


def _other_mpi(output: str) -> str:
    for marker, name in (("Intel(R) MPI", "Intel MPI"), ("HYDRA", "MPICH"), ("mvapich", "MVAPICH")):
        if marker.lower() in output.lower():
            return name
    line = next(iter(output.strip().splitlines()), "no version")
    return f"not Open MPI (`{line[:100]}`)"
