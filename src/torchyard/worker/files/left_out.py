"""What stays on a node although it looks as if it should be delivered.

Owns: links among the outputs that point to nothing; model files of a job that has no outputs.
Leaves: delivering to uploads.py.
Always: looks at a bounded number of entries, and follows no link.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from torchyard.worker.files.node_folders import NodeFolders
from torchyard.worker.files.uploads import files_below, utf8_path

_MOST_ENTRIES = 20_000
_MOST_NAMED = 5
_MODEL_ENDINGS = (
    ".bin", ".ckpt", ".h5", ".joblib", ".keras", ".npz", ".onnx", ".pb", ".pkl", ".pt", ".pth",
    ".safetensors",
)  # fmt: skip


def notices(folders: NodeFolders, outputs: Sequence[Path], started_at: float) -> list[str]:
    """What to tell the user.

    Args:
        outputs: the folders that are delivered.
        started_at: when the ranks were started, in seconds since 1970.
    """
    notices = []
    links = [path for folder in outputs for path in _dangling(folder)]
    if links:
        notices.append(
            "links among the outputs that point to nothing are not delivered: "
            + _named(links, folders)
        )
    if not any(next(files_below(folder), None) for folder in outputs):
        models = [path for path in _models(folders) if _changed_at(path) >= started_at]
        if models:
            notices.append(
                f"nothing is in `./outputs`, and {_named(models, folders)} is not kept: write to "
                "`./outputs` or a named output what the job is to deliver"
            )
    return notices


def _dangling(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if path.is_symlink() and not path.exists()]


def _models(folders: NodeFolders) -> list[Path]:
    delivered = {folders.work / "outputs", folders.work / "logs"}
    return [
        path
        for path in _entries(folders.work)
        if path.name.endswith(_MODEL_ENDINGS)
        and path.is_file()
        and delivered.isdisjoint(path.parents)
    ]


def _entries(folder: Path) -> Iterator[Path]:
    entries = 0
    for top, folders, files in os.walk(folder):
        for name in (*folders, *files):
            entries += 1
            if entries > _MOST_ENTRIES:
                return
            yield Path(top, name)


def _changed_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _named(paths: Sequence[Path], folders: NodeFolders) -> str:
    shown = []
    for path in sorted(paths)[:_MOST_NAMED]:
        top = folders.work if folders.work in path.parents else folders.outputs
        shown.append(f"`{utf8_path(path.relative_to(top))}`")
    more = len(paths) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
