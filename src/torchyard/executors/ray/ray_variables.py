"""The environment variables of Ray's processes.

Owns: what is kept of a program's own, how Ray finds its token.
Leaves: making the token's file to who starts the head or joins it.
Always: the token is in a file, never in a variable or an argument; authentication is switched on or
off by name, since Ray would otherwise decide by what lies in the home folder.

Source: https://docs.ray.io/en/latest/ray-security/token-auth.html
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from torchyard.executors.ray.ray_environment import RayEnvironment

# Else Ray's workers take ports from 10002 on, whatever range the machine has for programs.
PORTS = ("--min-worker-port=0", "--max-worker-port=0")
"""Options of `ray start`: all ports are of the machine's own range, which a firewall may narrow."""
_DROPPED = ("RAY_", "TORCHYARD_", "PYTHON", "VIRTUAL_ENV", "CONDA_")
# Where jobs' files go on a node, how many of them are kept, and what starts jobs there.
_KEPT = ("TORCHYARD_NODE_FOLDER", "TORCHYARD_NODE_CACHE_GB", "TORCHYARD_NODE_RUNNER")


def variables(
    environ: Mapping[str, str], environment: RayEnvironment, token_file: Path | None
) -> dict[str, str]:
    """Of a Ray process; torchyard's own and those of another Ray are left out."""
    inherited = {
        name: text
        for name, text in environ.items()
        if name in _KEPT or not name.startswith(_DROPPED)
    }
    path = os.pathsep.join([str(environment.folder / "bin"), environ.get("PATH", os.defpath)])
    return {**inherited, **common(token_file), "PATH": path}


def common(token_file: Path | None) -> dict[str, str]:
    """Of every program that uses Ray; without a file, the program finds its token itself, or the
    cluster asks for none.
    """
    mode = {"RAY_AUTH_MODE": "disabled"}
    if token_file is not None:
        mode = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token_file)}
    return {**mode, "RAY_USAGE_STATS_ENABLED": "0"}
