"""This machine, and whether a recorded process still runs on it.

Owns: what tells machines apart, the kinds of file systems that folders are on.
Leaves: telling processes apart, and signalling them, to shared/processes.py.
Always: standard library only; a machine that was restarted is the same one with other processes,
and a container is a machine of its own.
"""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path

from torchyard.shared import processes

NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "lustre", "beegfs"}
)


@cache
def here() -> str:
    """Host, boot and process namespace in one line.

    Source: proc(5), `/proc/sys/kernel/random/boot_id`; pid_namespaces(7).
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        boot, namespace = "-", 0
    return f"{socket.gethostname()} {boot} {namespace}"


def host_of(machine: str) -> str:
    return machine.partition(" ")[0]


def is_seen(machine: str, viewer: str = "") -> bool:
    """Whether the processes of `machine` are seen from `own`, by default from here.

    Those of an earlier boot are: they are all gone. Empty means here.
    """
    viewer = viewer or here()
    if not machine or machine == viewer:
        return True
    theirs, parts = machine.split(" "), viewer.split(" ")
    return theirs[0] == parts[0] and theirs[1] != parts[1]


def is_alive(pid: int, start_time: int, machine: str = "") -> bool:
    """Whether process `pid` is the one that started at `start_time`, and no zombie.

    Args:
        machine: where it was started, if not here; one that is seen.
    """
    return machine in ("", here()) and processes.is_running(pid, start_time)


def file_system(folder: Path) -> str:
    """The type of the mount that holds `folder`. Source: proc(5), /proc/<pid>/mountinfo."""
    real = os.path.realpath(folder)
    best, kind = "", "unknown"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        mount_point = before.split()[4].encode().decode("unicode_escape")
        inside = real == mount_point or real.startswith(mount_point.rstrip("/") + "/")
        if inside and len(mount_point) >= len(best):
            best, kind = mount_point, after.split()[0]
    return kind
