"""Read-only mounts: files that a rank may read and not change.

Owns: which mounts a job's inputs need, whether this machine allows them, the command that starts a
rank's shell inside them; the read-only environment of a worker that root runs.
Leaves: making them to mount_launcher.py, in the rank's own process.
Always: the very mounts of the ranks are tried before any rank starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchyard.worker import IMPORT_PATH

_REASON_BYTES = 2000


@dataclass(frozen=True)
class Mount:
    """`source` appears at `target`, read-only. Both are folders, or both are files.

    `for_good` also takes from root the capability to mount it another way. A rank none of whose
    mounts is for good starts even if they can't be made.
    """

    source: str
    target: str
    for_good: bool = True


def command(mounts: Sequence[Mount], program: Sequence[str]) -> list[str]:
    """The command that runs `program` inside the mounts."""
    if not mounts:
        return list(program)
    paths = [path for mount in mounts for path in (mount.source, mount.target)]
    capabilities = "none" if any(mount.for_good for mount in mounts) else "kept"
    launcher = [sys.executable, "-I", "-S", "-c", _PROGRAM, IMPORT_PATH]
    return [*launcher, str(len(mounts)), capabilities, *paths, *program]


def protect(folder: str) -> None:
    """Make a folder read-only for this process and its children, if this machine allows it.

    Only for a process of root that has one thread: other users would need a user namespace. A
    mount for each rank would start one more program for each.
    """
    from torchyard.worker.system import mount_launcher  # It loads libc.

    try:
        mount_launcher.own_namespaces()
        mount_launcher.bind_read_only(folder, folder)
    except OSError:
        pass  # `is_read_only` tells the callers


def is_read_only(folder: str) -> bool:
    """Whether the folder's file system, or the mount of it seen here, is read-only."""
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def why_not(mounts: Sequence[Mount]) -> str:
    """Why the mounts can't be made here; empty when they can."""
    reading, writing = os.pipe()
    try:
        pid = os.posix_spawn(
            sys.executable,
            command([replace(mount, for_good=True) for mount in mounts], [""]),
            dict(os.environ),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, writing, 2),
                (os.POSIX_SPAWN_CLOSE, reading),
            ],
        )
    except OSError as error:
        os.close(reading)
        os.close(writing)
        return f"their program could not be started: {error}"
    os.close(writing)
    with open(reading, "rb") as reader:
        message = reader.read(_REASON_BYTES).decode(errors="replace").strip()
    try:
        status = os.waitpid(pid, 0)[1]
    except ChildProcessError:
        status = 1  # reaped by the end of this node, when nobody needs the result
    if status == 0:
        return ""
    return message.rpartition("\n")[2] or f"their program ended with status {status}"


# By exec, so that process id, session and signals stay those of the rank.
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from torchyard.worker.system.mount_launcher import main; main(*sys.argv[2:4], sys.argv[4:])"
)
