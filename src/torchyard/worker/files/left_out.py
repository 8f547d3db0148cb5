"""What stays on a node although it looks as if it should be delivered.

Owns: the notices about links among the outputs that point to nothing, about pipes, sockets and
devices there, and about model files of a job that has no outputs; finding these files.
Leaves: delivering, and finding such entries of outputs, to uploads.py.
Always: looks at a bounded number of entries, the outermost first, and follows no link.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from torchyard.worker.files.node_folders import NodeFolders
from torchyard.worker.files.uploads import files_below, utf8_path

# Milliseconds, where thousands of files of data lie beside the code.
_MOST_ENTRIES = 2_000
_MOST_NAMED = 5
_MODEL_ENDINGS = (
    ".bin", ".ckpt", ".h5", ".joblib", ".keras", ".npz", ".onnx", ".pb", ".pkl", ".pt", ".pth",
    ".safetensors",
)  # fmt: skip


def notices(
    folders: NodeFolders, outputs: Sequence[Path], missing: Sequence[Path], started_at: float
) -> list[str]:
    """What to tell the user.

    Args:
        outputs: the folders that are delivered.
        missing: what among the outputs is neither a file nor a folder.
        started_at: when the ranks were started, in seconds since 1970.
    """
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
    if not any(next(files_below(folder), None) for folder in outputs):
        models = [path for path in _models(folders) if _changed_at(path) >= started_at]
        if models:
            notices.append(
                f"nothing is in `./outputs`, and {_list_paths(models, folders)} "
                f"{'is' if len(models) == 1 else 'are'} not kept: "
                "write to `./outputs` or a named output what the job is to deliver"
            )
    return notices


def _models(folders: NodeFolders) -> list[Path]:
    delivered = {folders.work / "outputs", folders.work / "logs"}
    return [path for path in _files(folders.work, delivered) if path.name.endswith(_MODEL_ENDINGS)]


def _files(top: Path, delivered: Collection[Path]) -> Iterator[Path]:
    """Those below `top` but in no folder that is delivered, the outermost first."""
    waiting = deque([top])
    left = _MOST_ENTRIES
    while waiting:
        try:
            with os.scandir(waiting.popleft()) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return
                    path = Path(entry.path)
                    if entry.is_dir(follow_symlinks=False) and path not in delivered:
                        waiting.append(path)
                    elif entry.is_file(follow_symlinks=False):
                        yield path
        except OSError:
            continue  # it is being removed, or can't be read


def _changed_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _list_paths(paths: Sequence[Path], folders: NodeFolders) -> str:
    shown = []
    for path in sorted(paths)[:_MOST_NAMED]:
        top = folders.work if folders.work in path.parents else folders.outputs
        shown.append(f"`{utf8_path(path.relative_to(top))}`")
    more = len(paths) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
