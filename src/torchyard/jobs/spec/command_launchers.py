"""Find launchers in a job's command: mpirun, and torchrun that would train copies side by side.

Owns: the launchers' names, the notices about torchrun.
Leaves: refusing a second mpirun to distribution.py.
Always: words in quotes and in comments are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_MPI = ("mpirun", "mpiexec", "orterun", "prterun", "horovodrun", "mpiexec.hydra",
        "mpirun.openmpi", "mpiexec.openmpi", "mpirun.mpich", "mpiexec.mpich")  # fmt: skip
_TORCHRUN = ("torch.distributed.run", "torch.distributed.launch")
# What may stand before the program that a shell command starts.
_BEFORE = re.compile(r"^(?:(?:[A-Za-z_]\w*=\S*|exec|time|nohup|env|command|then|do|else|!|\{)\s+)+")
_COMMANDS = re.compile(r"&&|\|\||[;&|\n()]|\$\(|`")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|(?<!\S)#.*")
_CONTINUED = re.compile(r"\\\r?\n")
_NODES = re.compile(r"--nnodes[= ](?!1(?::1)?(?: |$))")
_MEETING_PLACE = re.compile(
    r"--(rdzv[_-]endpoint|master[_-]addr)[= ][\"']?([\w\[][\w.:\]-]{0,200})"
)


def mpi_launcher(command: str) -> str:
    """The launcher of MPI that a shell command starts, if it seems to start one."""
    names = (words[0].rpartition("/")[2] for words in _programs(command))
    return next((name for name in names if name in _MPI), "")


def torchrun_notice(command: str, nodes: int, processes: int) -> str:
    """About a torchrun that would train copies side by side, or whose nodes would not meet; empty
    without one.

    Args:
        processes: how many times `distribution` starts the command on each node.
    """
    started = next((words for words in _programs(command) if _is_torchrun(words)), None)
    if started is None:
        return ""
    if processes > 1:
        return (
            f"the command starts `torchrun`, and `distribution` starts the command {processes} "
            "times on each node: each of them trains a copy of its own; remove "
            "`process_count_per_instance` to start it once on each node"
        )
    if nodes > 1 and not _NODES.search(" ".join(started)):
        return (
            f"the command starts `torchrun` on each of {nodes} nodes without the number of nodes: "
            f"each of them trains a copy of its own; add `--nnodes {nodes} --node_rank $NODE_RANK "
            "--master_addr $MASTER_ADDR --master_port $MASTER_PORT`"
        )
    place = _MEETING_PLACE.search(_CONTINUED.sub(" ", command))
    if nodes > 1 and place:
        own = "$MASTER_ADDR:$MASTER_PORT" if place[1].startswith("rdzv") else "$MASTER_ADDR"
        return (
            f"the nodes of `torchrun` are to meet at `{place[2]}`, which must be a node of this "
            f"job; write `--{place[1]} {own}`, the job's first node"
        )
    return ""


def _programs(command: str) -> Iterator[list[str]]:
    """The words of each program that a shell command seems to start."""
    plain = _QUOTED.sub("''", _CONTINUED.sub(" ", command))
    for part in _COMMANDS.split(plain):
        if words := _BEFORE.sub("", part.strip() + " ").split():
            yield words


def _is_torchrun(words: list[str]) -> bool:
    name, module = words[0].rpartition("/")[2], ""
    if name.startswith("python") and "-m" in words:
        module_at = words.index("-m")
        # Before it, only Python's own options.
        if all(word.startswith("-") for word in words[1:module_at]):
            module = "".join(words[module_at + 1 : module_at + 2])
    return name == "torchrun" or module in _TORCHRUN
