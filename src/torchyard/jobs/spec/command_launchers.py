"""Find launchers such as torchrun and mpirun in a job's command.

Owns: the launchers' names and the options that tell them of several nodes; the notice about one
that would train copies side by side.
Leaves: refusing a second mpirun to distribution.py.
Always: words in quotes and in comments are ignored; when in doubt there is no notice.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

_MPI = ("mpirun", "mpiexec", "orterun", "prterun", "horovodrun", "mpiexec.hydra")
_TORCHRUN = "torchrun"
_ACCELERATE, _DEEPSPEED = "accelerate launch", "deepspeed"
_MODULES = {
    "torch.distributed.run": "python -m torch.distributed.run",
    "torch.distributed.launch": "python -m torch.distributed.launch",
    "accelerate.commands.launch": _ACCELERATE,
    "accelerate.commands.accelerate_cli": _ACCELERATE,
    "deepspeed.launcher.runner": _DEEPSPEED,
}
# Options by which a launcher knows of other nodes, or of a file that may tell it.
_NODE_OPTIONS = {
    _TORCHRUN: ("nnodes",),
    _ACCELERATE: ("num_machines", "config_file"),
    _DEEPSPEED: ("hostfile", "H", "num_nodes"),
    "mpi": ("host", "H", "hostfile", "machinefile", "hosts", "f"),
}
# Variables that do the same.
_NODE_VARIABLES = {
    _TORCHRUN: ("PET_NNODES",),
    _ACCELERATE: ("ACCELERATE_CONFIG_FILE",),
    _DEEPSPEED: ("DLTS_HOSTFILE",),
    "mpi": ("OMPI_MCA_orte_default_hostfile", "HOROVOD_HOSTFILE"),
}
# Options with which another program starts accelerate's processes, or a file may say so.
_STARTS_PROCESSES = (
    "multi_gpu", "use_deepspeed", "use_fsdp", "use_megatron_lm", "tpu", "mpirun_hostfile",
    "config_file",
)  # fmt: skip
_ON_ALL_NODES = {
    _TORCHRUN: "--nnodes {nodes} --node_rank $NODE_RANK --master_addr $MASTER_ADDR "
    "--master_port $MASTER_PORT",
    _ACCELERATE: "--num_machines {nodes} --machine_rank $NODE_RANK "
    "--main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT",
    _DEEPSPEED: "--hostfile FILE --no_ssh --node_rank $NODE_RANK --master_addr $MASTER_ADDR "
    "--master_port $MASTER_PORT",
}
# What may stand before the program that a shell command starts.
_BEFORE = re.compile(r"^(?:(?:[A-Za-z_]\w*=\S*|exec|time|nohup|env|command|then|do|else|!|\{)\s+)+")
_COMMANDS = re.compile(r"&&|\|\||[;&|\n()]|\$\(|`")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|(?<!\S)#.*")
_CONTINUED = re.compile(r"\\\r?\n")
_PYTHON = re.compile(r"^python[\d.]*$")


@dataclass(frozen=True)
class Launcher:
    """`name` as the command has it, `family` the key of its options, `words` what follows it."""

    name: str
    family: str
    words: Sequence[str]


def mpi_launcher(command: str) -> str:
    """The launcher of MPI that a shell command starts, if it seems to start one."""
    return next((launcher.name for launcher in _find(command) if launcher.family == "mpi"), "")


def notice(
    command: str, distribution: str, nodes: int, processes: int, variables: Collection[str]
) -> str:
    """About a launcher that would train copies side by side; empty without one.

    Args:
        processes: how many times `distribution` starts the command on each node.
        variables: the names of the job's own environment variables.
    """
    for launcher in _find(command):
        if processes > 1:
            return (
                f"the command starts `{launcher.name}`, and `distribution.type: {distribution}` "
                f"starts the command {processes} times on each node: each of them trains a copy "
                "of its own; remove `process_count_per_instance` to start it once on each node"
            )
        if nodes > 1 and not _knows_nodes(launcher, variables):
            options = _ON_ALL_NODES.get(launcher.family, "").format(nodes=nodes)
            advice = f"add `{options}`" if options else "use `distribution: {type: mpi}` instead"
            return (
                f"the command starts `{launcher.name}` on each of {nodes} nodes without the "
                f"number of nodes: each of them trains a copy of its own; {advice}"
            )
    return ""


def single_process_notice(command: str, gpus: int | None) -> str:
    """About an `accelerate launch` that starts one process where more are requested.

    Args:
        gpus: of each node; None if not known.

    Source: `launch_command` of accelerate 1.2.
    """
    for launcher in _find(command):
        if launcher.family != _ACCELERATE or _has_any(launcher, _STARTS_PROCESSES):
            continue
        count = _option(launcher, ("num_processes",)) or ""
        if not count.isdecimal() or int(count) < 2:
            continue
        if _has_any(launcher, ("cpu",)):
            because = "with `--cpu`"
        elif gpus is not None and gpus < 2:
            because = f"on a node with {gpus or 'no'} GPU, without `--multi_gpu`"
        else:
            continue
        return (
            f"`accelerate launch` starts one process, not {count}: it ignores `--num_processes` "
            f"{because}; use `distribution: {{type: pytorch, process_count_per_instance: {count}}}`"
            f" and start the script with `python`, or `torchrun --nproc_per_node {count}`"
        )
    return ""


def _find(command: str) -> Iterator[Launcher]:
    joined = _CONTINUED.sub(" ", command)
    for part in _COMMANDS.split(_QUOTED.sub("''", joined)):
        words = _BEFORE.sub("", part.strip() + " ").split()
        if words:
            yield from _launcher(words)


def _launcher(words: Sequence[str]) -> Iterator[Launcher]:
    name = words[0].rpartition("/")[2]
    if name.removesuffix(".openmpi").removesuffix(".mpich") in _MPI:
        yield Launcher(name, "mpi", words[1:])
    elif name == "torchrun":
        yield Launcher(name, _TORCHRUN, words[1:])
    elif name == "deepspeed":
        yield Launcher(name, _DEEPSPEED, words[1:])
    elif words[1:] and name == "accelerate" and words[1] == "launch":
        yield Launcher(_ACCELERATE, _ACCELERATE, words[2:])
    elif _PYTHON.match(name):
        # Options of Python itself may stand before its module.
        for number, word in enumerate(words[1:-1], 1):
            if word == "-m" and words[number + 1] in _MODULES:
                module = _MODULES[words[number + 1]]
                family = module if module in _NODE_OPTIONS else _TORCHRUN
                yield Launcher(module, family, words[number + 2 :])
            if word == "-m" or not word.startswith("-"):
                break


def _knows_nodes(launcher: Launcher, variables: Collection[str]) -> bool:
    if any(name in variables for name in _NODE_VARIABLES[launcher.family]):
        return True
    value = _option(launcher, _NODE_OPTIONS[launcher.family])
    return value is not None and value not in ("1", "1:1")


def _has_any(launcher: Launcher, names: Collection[str]) -> bool:
    return _option(launcher, names) is not None


def _option(launcher: Launcher, names: Collection[str]) -> str | None:
    """The value of the first of these options that the launcher has."""
    for number, word in enumerate(launcher.words):
        option, equals, value = word.partition("=")
        if option.startswith("-") and option.lstrip("-").replace("-", "_") in names:
            return value if equals else "".join(launcher.words[number + 1 : number + 2])
    return None
