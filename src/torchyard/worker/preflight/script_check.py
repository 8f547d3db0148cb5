"""Check the command and the script for NCCL before they run without a GPU.

Owns: finding NCCL in the text of the command or the script.
Leaves: the backend that the job itself requests to node_facts.py.
Always: the result is a warning, because a text search can't tell what a script does.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from torchyard.worker.preflight.checks import WARNING, Finding

_MOST_BYTES = 1 << 18
_MOST_FILES = 8
_IN_COMMAND = re.compile(r"(?:(?<![\w-])-[\w-]*backend[= ]+|BACKEND=)['\"]?nccl\b", re.IGNORECASE)
_IN_SCRIPT = re.compile(r"['\"]nccl['\"]", re.IGNORECASE)
# A script that mentions both chooses by itself.
_HANDLES_BOTH = re.compile(r"['\"](?:cpu:)?gloo['\"]|is_nccl_available", re.IGNORECASE)


def find_nccl(command: str, work: Path) -> Finding | None:
    """A warning if the command or its script names NCCL.

    For a job that runs without a GPU and does not specify its backend.
    """
    if _IN_COMMAND.search(command):
        return _finding("the command")
    for name in _scripts(command):
        try:
            with open(work / name, "rb") as file:
                text = file.read(_MOST_BYTES).decode("utf-8", "replace")
        except (OSError, ValueError):
            continue
        if _HANDLES_BOTH.search(text):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if _IN_SCRIPT.search(line) and not line.lstrip().startswith("#"):
                return _finding(f"`{name}` line {number}")
    return None


def _scripts(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    return [word for word in words if word.endswith(".py")][:_MOST_FILES]


def _finding(where: str) -> Finding:
    return Finding(
        "script_asks_nccl",
        WARNING,
        f"{where} names NCCL, but the nodes have no GPU",
        "use gloo, run on a cluster with GPUs, or try the script with `--rehearse-on-cpu`",
    )
