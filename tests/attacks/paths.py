"""Names that try to lead out of the folder they are meant for, and a look at what they did."""

from __future__ import annotations

import os
from pathlib import Path

SECRET = "the-file-outside"
NAMES = [
    "../outside.txt", "../../outside.txt", "../../../../../../../../outside.txt",
    "../../../../../../../../../etc/passwd", "/etc/passwd", "//etc/passwd", "a/../../outside.txt",
    "outputs/../../../outside.txt", "./../outside.txt", "..", ".", "", " ", "...", "../", "/",
    "..\\outside.txt", "..\\..\\..\\outside.txt", "a\\..\\..\\outside.txt", "\\etc\\passwd",
    "C:\\outside.txt", "C:outside.txt", "\\\\host\\share\\x", "file:///etc/passwd",
    "%2e%2e/outside.txt", "%2e%2e%2foutside.txt", "%2E%2E%5Coutside.txt", "..%2foutside.txt",
    "%252e%252e%252foutside.txt", "%25252e%25252e%25252foutside.txt", "..%c0%afoutside.txt",
    "%c0%ae%c0%ae/outside.txt", "..;/outside.txt", "....//....//outside.txt",
    "\N{FULLWIDTH FULL STOP}\N{FULLWIDTH FULL STOP}/outside.txt",
    "\N{TWO DOT LEADER}/outside.txt", "..\N{FULLWIDTH SOLIDUS}outside.txt",
    "..\N{DIVISION SLASH}outside.txt", "e\N{COMBINING ACUTE ACCENT}/../../outside.txt",
    "a\0/../outside.txt", "outside.txt\0.png", "a%00b", "~/outside.txt", "~root/outside.txt",
    "$HOME/outside.txt", "link/outside.txt", "link", "x\n/../../outside.txt", "\r\n",
    "x" * 256, "é" * 200, "/".join(["d"] * 2000), "a/" * 5000 + "b", "-rf",
    ".git/hooks/post-checkout",
    "\ud800", "a\udcff", "CON", "NUL.txt", "x:y", "*", "|id", "`id`", ";id",
]  # fmt: skip


def tree(folder: Path, but: Path) -> dict[str, tuple[str, bytes]]:
    """Everything below `folder` that is not below `but`."""
    entries = {}
    for root, folders, names in os.walk(folder):
        if Path(root) == but:
            folders.clear()
            continue
        for name in [*folders, *names]:
            path = Path(root, name)
            if path == but:
                continue
            kind = "link" if path.is_symlink() else "folder" if path.is_dir() else "file"
            entries[str(path)] = (kind, path.read_bytes() if kind == "file" else b"")
    return entries
