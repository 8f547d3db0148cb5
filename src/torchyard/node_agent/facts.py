"""What a machine tells the server of itself when it joins.

Owns: its name, its address towards the server, cores, memory and GPUs.
Leaves: what jobs get of it to Ray, which counts for itself.
Always: standard library only; what can't be found counts as none.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
from typing import Any
from urllib.parse import urlsplit

from torchyard import __version__

_ASK_S = 20.0
_LONGEST_NAME = 63


def own_name() -> str:
    """The host's name, as a machine's name may be."""
    name = re.sub(r"[^a-z0-9-]+", "-", socket.gethostname().split(".")[0].lower()).strip("-")
    return name[:_LONGEST_NAME].strip("-") or "machine"


def address_towards(url: str) -> str:
    """The address by which the server's machine reaches this one; empty without a network."""
    host = urlsplit(url).hostname or ""
    try:
        family, kind, _, _, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def has_address(address: str) -> bool:
    """Whether this machine still has it."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.bind((address, 0))
            return True
    except OSError:
        return False


def facts() -> dict[str, Any]:
    """hostname, cpus, memory_bytes, gpus, gpu_kind, system, version."""
    names = _gpu_names()
    return {
        "hostname": socket.gethostname(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "gpus": len(names),
        "gpu_kind": ", ".join(dict.fromkeys(names)),
        "system": platform.platform(),
        "version": __version__,
    }


def _gpu_names() -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        outcome = subprocess.run(
            [program, "--query-gpu=name", "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ASK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in outcome.stdout.splitlines() if line.strip()]
