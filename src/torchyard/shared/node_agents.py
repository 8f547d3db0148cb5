"""The agent that keeps this machine a node, as programs below its Ray know it.

Owns: the variable that names its process, whether that was killed.
Leaves: being one to node_agent/.
Always: standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping

from torchyard.shared import processes

VARIABLE = "TORCHYARD_NODE_AGENT"
"""The number and the start time of the agent's process, with a space between."""


def has_ended(environ: Mapping[str, str]) -> bool:
    """Whether the agent of this machine has gone before its Ray; False where there is none."""
    pid, _, started = environ.get(VARIABLE, "").partition(" ")
    if not (pid.isdecimal() and started.isdecimal()):
        return False
    return not processes.is_running(int(pid), int(started))
