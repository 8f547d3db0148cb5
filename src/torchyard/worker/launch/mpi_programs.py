"""Open MPI on a node: found, and known to be one that this worker can use.

Owns: which `mpirun` and `orted` of the node are used, the errors when there are none.
Leaves: running them to mpi.py.
Always: it is asked before any rank starts; the environment of the job comes first on PATH, so an
Open MPI that it brings is used before the machine's.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from dataclasses import dataclass

from torchyard.shared.failures import Failure

_VERSION = re.compile(r"\(Open ?(?:MPI|RTE)\)\s+(\d+)\.(\S+)")
_SERVED = 4
_ASK_S = 20.0
_INSTALL = "install Open MPI 4 there: `apt-get install openmpi-bin` on Debian and Ubuntu"


@dataclass(frozen=True)
class Programs:
    mpirun: str
    orted: str


def find(path: str, node: int) -> Programs:
    """Those that `path`, a PATH, leads to.

    Raises:
        Failure: one is not there, or is not Open MPI 4.
    """
    where = f"node {node} ({socket.gethostname()})"
    found = {name: shutil.which(name, path=path) for name in ("mpirun", "orted")}
    missing = [name for name, place in found.items() if not place]
    if found["mpirun"]:
        _check(found["mpirun"], where)
    if missing:
        raise Failure(
            "mpi_missing",
            f"{where} has no `{missing[0]}`, which `distribution.type: mpi` needs",
            _INSTALL + "; `type: pytorch` needs no MPI",
        )
    return Programs(str(found["mpirun"]), str(found["orted"]))


def _check(mpirun: str, where: str) -> None:
    try:
        asked = subprocess.run(
            [mpirun, "--version"], capture_output=True, text=True, timeout=_ASK_S, check=False
        )
        said = asked.stdout + asked.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        said = f"its version could not be asked for: {error}"
    match = _VERSION.search(said)
    if match and int(match[1]) == _SERVED:
        return
    what = f"Open MPI {match[1]}.{match[2]}" if match else _name(said)
    raise Failure(
        "mpi_not_served",
        f"`{mpirun}` on {where} is {what}; `distribution.type: mpi` is served with Open MPI 4",
        _INSTALL + ", and leave packages that bring another MPI out of the environment",
    )


def _name(said: str) -> str:
    for sign, name in (("Intel(R) MPI", "Intel MPI"), ("HYDRA", "MPICH"), ("mvapich", "MVAPICH")):
        if sign.lower() in said.lower():
            return name
    line = next(iter(said.strip().splitlines()), "silent about its version")
    return f"no Open MPI (`{line[:100]}`)"
