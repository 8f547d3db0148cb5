"""Open MPI's programs, which jobs of `distribution.type: mpi` need on every node.

Owns: which programs these are, how to install them, whether this machine has them.
Leaves: their version and how they are run to worker/launch/.
Always: the standard library only.
"""

from __future__ import annotations

import shutil

PROGRAMS = ("mpirun", "orted")
INSTALL = "install Open MPI 4 there: `apt-get install openmpi-bin` on Debian and Ubuntu"


def missing() -> str:
    """The first program that this process's PATH lacks; empty if it has all."""
    return next((name for name in PROGRAMS if not shutil.which(name)), "")
