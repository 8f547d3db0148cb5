"""The mark of a built environment: whether a folder at the same path is the same build.

Owns: computing it, on the server and on nodes.
Leaves: noticing changed files to environments/build/sealed.py, which looks at all of them.
Always: it costs a `stat` of the topmost entries only; a build has its own times to the nanosecond,
so that two builds never have the same mark.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_COMPILED = "__pycache__"


def mark_of(folder: Path) -> str:
    """The mark; empty where the folder is not an environment that can be run."""
    if not os.path.exists(folder / "bin" / "python"):
        return ""
    lines = []
    for part in (folder, *sorted((folder / "lib").glob("python3*/site-packages"))):
        try:
            with os.scandir(part) as entries:
                lines += [_line(part.name, entry) for entry in entries if entry.name != _COMPILED]
        except OSError:
            return ""
    return hashlib.sha256("\n".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()


def _line(parent: str, entry: os.DirEntry[str]) -> str:
    if not entry.is_file(follow_symlinks=False):
        # The times of folders change when root's Python writes compiled modules.
        return f"{parent}/{entry.name}"
    stat = entry.stat(follow_symlinks=False)
    return f"{parent}/{entry.name}\0{stat.st_size}\0{stat.st_mtime_ns}"
