"""Read-only mounts: what a rank may see and not change.

Owns: which mounts a job's inputs need, whether this machine allows them, the words that start a
rank's shell within them.
Leaves: making them to mount_launcher.py, in the rank's own process.
Always: whether they can be had is tried before any rank starts, with the very mounts it will get.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchyard.worker import IMPORT_PATH

_WHY_BYTES = 2000


@dataclass(frozen=True)
class Mount:
    """`source` is seen at `target`, read-only. Both are folders, or both are files.

    `for_good` takes from root, too, the right to mount it another way. Where none of a rank's
    mounts is, it starts even if they can't be made.
    """

    source: str
    target: str
    for_good: bool = True


def command(mounts: Sequence[Mount], words: Sequence[str]) -> list[str]:
    """`words` as they are started within the mounts."""
    if not mounts:
        return list(words)
    pairs = json.dumps([[mount.source, mount.target] for mount in mounts])
    rights = "none" if any(mount.for_good for mount in mounts) else "kept"
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, IMPORT_PATH, pairs, rights, *words]


def why_not(mounts: Sequence[Mount]) -> str:
    """Why the mounts can't be had here; empty when they can."""
    told, telling = os.pipe()
    try:
        pid = os.posix_spawn(
            sys.executable,
            command([replace(mount, for_good=True) for mount in mounts], [""]),
            dict(os.environ),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, telling, 2),
                (os.POSIX_SPAWN_CLOSE, told),
            ],
        )
    except OSError as error:
        os.close(told)
        os.close(telling)
        return f"their program could not be started: {error}"
    os.close(telling)
    with open(told, "rb") as reader:
        said = reader.read(_WHY_BYTES).decode(errors="replace").strip()
    try:
        status = os.waitpid(pid, 0)[1]
    except ChildProcessError:
        status = 1  # reaped by whoever ends this node: then nobody waits for the answer
    if status == 0:
        return ""
    return said.rpartition("\n")[2] or f"their program ended with status {status}"


# By exec, so that process id, session and signals stay those of the rank.
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from torchyard.worker.system.mount_launcher import main; main(*sys.argv[2:4], sys.argv[4:])"
)
