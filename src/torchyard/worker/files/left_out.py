"""What among the outputs is neither a file nor a folder.

Owns: the notices about links that point to nothing, and about pipes, sockets and devices.
Leaves: delivering, and finding such entries, to uploads.py.
Always: follows no link.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchyard.worker.files.node_folders import NodeFolders
from torchyard.worker.files.uploads import utf8_path

_MOST_NAMED = 5


def notices(folders: NodeFolders, missing: Sequence[Path]) -> list[str]:
    """What to tell the user of these entries of the outputs, which are not delivered."""
    notices = []
    others = [path for path in missing if path.exists()]
    links = [path for path in missing if path not in others]
    if links:
        notices.append(
            "links among the outputs that point to nothing are not delivered: "
            + _list_paths(links, folders)
        )
    if others:
        notices.append(
            f"only files and folders are delivered, not pipes, sockets and devices: "
            f"{_list_paths(others, folders)}"
        )
    return notices


def _list_paths(paths: Sequence[Path], folders: NodeFolders) -> str:
    shown = []
    for path in sorted(paths)[:_MOST_NAMED]:
        below = (
            utf8_path(path.relative_to(top))
            for top in (folders.work, folders.outputs)
            if top in path.parents
        )
        shown.append(f"`{next(below, utf8_path(path))}`")
    more = len(paths) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
