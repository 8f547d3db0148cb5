"""A glance at the script before it runs.

Owns: whether command or script name NCCL although there is no GPU.
Leaves: what the job says of its backend to node_facts.py.
Always: a hint and never more: what a script does can't be read off its text.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from torchyard.worker.preflight.checks import WARNING, Finding

_MOST_BYTES = 1 << 18
_MOST_FILES = 8
_IN_COMMAND = re.compile(r"(?:--?[\w-]*backend[= ]+|[A-Z_]*BACKEND=)['\"]?nccl\b", re.IGNORECASE)
_IN_SCRIPT = re.compile(r"['\"]nccl['\"]", re.IGNORECASE)
# One that knows both chooses by itself.
_CHOOSES = re.compile(r"['\"](?:cpu:)?gloo['\"]|is_nccl_available", re.IGNORECASE)


def at_nccl(command: str, work: Path) -> Finding | None:
    """For a job that runs without a GPU and does not say its backend."""
    if _IN_COMMAND.search(command):
        return _hint("the command")
    for name in _scripts(command):
        try:
            with open(work / name, "rb") as file:
                text = file.read(_MOST_BYTES).decode("utf-8", "replace")
        except (OSError, ValueError):
            continue
        if _CHOOSES.search(text):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if _IN_SCRIPT.search(line) and not line.lstrip().startswith("#"):
                return _hint(f"`{name}` line {number}")
    return None


def _scripts(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    return [word for word in words if word.endswith(".py")][:_MOST_FILES]


def _hint(where: str) -> Finding:
    return Finding(
        "script_asks_nccl",
        WARNING,
        f"{where} names NCCL, and the nodes have no GPU",
        "use gloo there, run on a cluster with GPUs, or try it with `--rehearse-on-cpu`",
    )
