"""What Open MPI starts in the place of a rank, and in the place of ssh.

Owns: handing over what Open MPI told this process to the worker of this node, by its socket.
Leaves: starting ranks and daemons to the worker, whose own children they shall be.
Always: a shim ends when its rank ended well, with code 0, and otherwise when it is ended: how a
rank failed is the worker's to tell, and Open MPI shall not be quicker. Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import sys

DOOR, PROGRAM, PYTHON = "TORCHYARD_MPI_DOOR", "TORCHYARD_MPI_PROGRAM", "TORCHYARD_MPI_PYTHON"
# By the shell, because folders and interpreters may be named otherwise on each node.
RANK = f'exec "${PYTHON}" -I -S -c "${PROGRAM}" rank'
AGENT = f'#!/bin/sh\nexec "${PYTHON}" -I -S -c "${PROGRAM}" daemon "$@"\n'
# What Open MPI says to a rank.
_TELLING = ("OMPI_", "PMIX_", "PMI_", "ORTE_", "OPAL_", "HFI_NO_", "IPATH_NO_")
_FAILED = 1


def main(words: list[str]) -> int:
    """`rank` stands for a rank; `daemon HOST COMMAND…` has a daemon started elsewhere."""
    if words[:1] == ["rank"]:
        told = {name: value for name, value in os.environ.items() if name.startswith(_TELLING)}
        return _ask({"rank": told})
    if words[:1] == ["daemon"] and len(words) > 2:
        return _ask({"host": words[1], "command": " ".join(words[2:])})
    print(f"torchyard: no such errand: {words}", file=sys.stderr)
    return 2


def _ask(what: dict[str, object]) -> int:
    with socket.socket(socket.AF_UNIX) as door:
        try:
            door.connect(os.environ[DOOR])
            door.sendall(json.dumps(what).encode() + b"\n")
            answer = door.makefile("r").readline().strip()
        except OSError as error:
            print(f"torchyard: the worker of this node does not answer: {error}", file=sys.stderr)
            return _FAILED
    if answer not in ("", "0"):
        print(f"torchyard: {answer}", file=sys.stderr)
    return 0 if answer == "0" else _FAILED
