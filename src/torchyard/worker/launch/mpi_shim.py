"""The shim that Open MPI starts in place of a rank, and in place of ssh.

Owns: passing the variables or the command from Open MPI to this node's worker, over its socket.
Leaves: starting ranks and daemons to the worker, so that they are its own children.
Always: a shim exits with code 0 once its rank succeeded; if the rank failed, the shim runs until it
is stopped, so that the worker reports the failure before Open MPI does. Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import sys

SOCKET, PROGRAM, PYTHON = "TORCHYARD_MPI_SOCKET", "TORCHYARD_MPI_PROGRAM", "TORCHYARD_MPI_PYTHON"
# Expanded by the shell, because folders and interpreters may differ between nodes.
RANK = f'exec "${PYTHON}" -I -S -c "${PROGRAM}" rank'
AGENT = f'#!/bin/sh\nexec "${PYTHON}" -I -S -c "${PROGRAM}" daemon "$@"\n'
# The variables that Open MPI sets for a rank.
_MPI_PREFIXES = ("OMPI_", "PMIX_", "PMI_", "ORTE_", "OPAL_", "HFI_NO_", "IPATH_NO_")
_FAILED = 1


def main(arguments: list[str]) -> int:
    """`rank` replaces a rank; `daemon HOST COMMAND…` starts a daemon on another node."""
    if arguments[:1] == ["rank"]:
        variables = {
            name: value for name, value in os.environ.items() if name.startswith(_MPI_PREFIXES)
        }
        return _request({"rank": variables})
    if arguments[:1] == ["daemon"] and len(arguments) > 2:
        return _request({"host": arguments[1], "command": " ".join(arguments[2:])})
    print(f"torchyard: unknown arguments: {arguments}", file=sys.stderr)
    return 2


def _request(body: dict[str, object]) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(os.environ[SOCKET])
            connection.sendall(json.dumps(body).encode() + b"\n")
            answer = connection.makefile("r").readline().strip()
        except OSError as error:
            print(f"torchyard: the worker of this node does not answer: {error}", file=sys.stderr)
            return _FAILED
    if answer not in ("", "0"):
        print(f"torchyard: {answer}", file=sys.stderr)
    return 0 if answer == "0" else _FAILED
